"""Files of the Camelyon16 release: slides and annotations by id, their content, and known errors."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from histo_monai.data.readers.shared.lesion_centers import NORMAL, TUMOR, Lesions
from histo_monai.slides.annotations import LeftOut, log_left_out, parse_asap_xml
from histo_monai.slides.annotations.asap import HOLE_GROUPS, NO_GROUP
from histo_monai.slides.annotations.content import is_plain, short
from histo_monai.slides.annotations.outlines import read_annotation
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import find_tree, has_tree, read_bytes, split_archive

TUMOR_GROUPS = ("Tumor", "_0", "_1")
KNOWN_DIRT = {
    "normal_086": "it is tumor_111 under its old name; the release removed it",
    "test_049": "it is a duplicate; the release removed it",
    "test_114": "its lesions are not all outlined",
}
"""Slides without labeled patches -> the reason."""

NOT_EXHAUSTIVE = ("test_114",)
"""Slides of `KNOWN_DIRT` with a label: they are diagnosed, but their lesions are not counted."""

PARTLY_OUTLINED = tuple(
    f"tumor_{number:03d}"
    for number in (10, 15, 18, 20, 25, 29, 33, 34, 44, 46, 51, 54, 55, 56, 67, 79, 85, 92, 95, 110)
)
"""Training slides that may hold tumor without an outline (the release's README); they give no normal patch."""

ANNOTATIONS = "lesion_annotations"
_NO_GROUPS = (NO_GROUP, "")
_NAME = re.compile(r"(normal|tumor|test)_([0-9]{1,9})\.(tif|xml)", re.IGNORECASE)
_REFERENCE_ID = re.compile(r"test_([0-9]{1,9})(\.tif)?", re.IGNORECASE)


def read_lesions(path: Path) -> Lesions:
    """Outlines of an annotation file, sorted by group into tumor and holes.

    Outlines without a group are unclear: they give no tumor patch, and no normal patch touches them.

    Raises:
        InputError: The file is no ASAP XML, a group is unknown, or the file has no tumor.
    """
    left_out: list[LeftOut] = []
    outlines = parse_asap_xml(read_annotation(path), path, left_out.append).outlines
    known = (TUMOR_GROUPS, HOLE_GROUPS, _NO_GROUPS)
    for one in outlines:
        if not any(one.group in groups for groups in known):
            raise InputError(
                f"{path}, annotation {short(one.name)}: group {short(one.group)} is unknown. "
                f"Fix: use {', '.join(TUMOR_GROUPS)} for tumor, {', '.join(HOLE_GROUPS)} for a hole in it."
            )
    tumors, holes, unclear = ([one for one in outlines if one.group in groups] for groups in known)
    if not tumors:
        for some in left_out:
            log_left_out(some)
        what = "holes only" if holes else "no tumor"
        raise InputError(f"{path}: outlines {what}. Fix: outline a tumor in group {', '.join(TUMOR_GROUPS)}.")
    if unclear:
        left_out.append(LeftOut(path, "outline", "in no group", tuple(one.name for one in unclear)))
    return Lesions(tumors, holes, unclear, tuple(left_out))


@dataclass(frozen=True)
class Reference:
    """Row of testing/reference.csv for a test slide.

    Attributes:
        label: "tumor" or "normal".
        size: Size of the largest metastasis, in lower case ("macro", "micro", "itc"); empty if not stated.
    """

    label: str
    size: str = ""


def read_reference(path: Path) -> dict[str, Reference]:
    """Content of testing/reference.csv by test slide: {"test_001": Reference("tumor", "macro"), ...}.

    The csv has two or four columns, with or without a header. Names have upper or lower case, with or without `.tif`.

    Raises:
        InputError: The file is missing, a row has another format, or two rows name one slide; names file and row.
    """
    text = read_bytes(path).decode("utf-8-sig", errors="replace")
    references: dict[str, Reference] = {}
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise InputError(f"{path}: not a csv ({error})") from None
    for number, row in enumerate(rows, start=1):
        cells = [cell.strip() for cell in row]
        name = _REFERENCE_ID.fullmatch(cells[0]) if cells else None
        if not any(cells) or (number == 1 and name is None and len(cells) in (2, 4)):
            continue
        label = cells[1].lower() if len(cells) in (2, 4) else ""
        if name is None or label not in (TUMOR, NORMAL) or not all(map(is_plain, cells)):
            raise InputError(
                f"{path}, row {number}: {short(','.join(row))} is not a row of two or four columns. "
                "Fix: write it like test_001,Tumor,IDC,Macro or test_003,Normal."
            )
        slide_id = f"test_{int(name[1]):03d}"
        if slide_id in references:
            raise InputError(
                f"{path}, row {number}: {slide_id} is in an earlier row. Fix: remove one of the rows."
            )
        size = cells[3].lower() if len(cells) == 4 else ""
        references[slide_id] = Reference(label, "" if size == "none" else size)
    if not references:
        raise InputError(f"{path}: no row with a test slide. Fix: write rows like test_001,Tumor,IDC,Macro.")
    return references


def slides_by_id(folder: Path, kind: str) -> dict[str, Path]:
    """Slides named <kind>_<number>.tif by their lower-case id, in the order of their numbers."""
    return _by_id(folder.glob("*"), (kind,), "tif")


def annotations_by_id(part: Path) -> dict[str, Path]:
    """Annotation files of `training` or `testing` by slide id, from the folder or its zip."""
    if not has_tree(part, ANNOTATIONS):
        return {}
    tree = find_tree(part, ANNOTATIONS)
    archive, _ = split_archive(tree)
    if archive is None:
        return _by_id(tree.glob("*"), (NORMAL, TUMOR, "test"), "xml")
    with zipfile.ZipFile(archive) as opened:
        paths = [archive / name for name in opened.namelist()]
    return _by_id((path for path in paths if path.parent == tree), (NORMAL, TUMOR, "test"), "xml")


def _by_id(paths: Iterable[Path], kinds: Sequence[str], suffix: str) -> dict[str, Path]:
    """Files named <kind>_<number>.<suffix> by their lower-case id, in the order of their numbers."""
    files: dict[tuple[str, int], Path] = {}
    for path in sorted(paths):
        match = _NAME.fullmatch(path.name)
        if match is None or match[1].lower() not in kinds or match[3].lower() != suffix:
            continue
        key = match[1].lower(), int(match[2])
        if key in files:
            what = "slide" if suffix == "tif" else "annotation"
            raise InputError(
                f"{path}: a second file for {what} {key[0]}_{key[1]:03d}, beside {files[key].name}. Fix: remove one."
            )
        files[key] = path
    return {f"{kind}_{number:03d}": files[kind, number] for kind, number in sorted(files)}
