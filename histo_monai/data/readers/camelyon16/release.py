"""Files of the official tree of Camelyon16: slides and annotations by id, what they say, and what is known of them."""

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
"""Slides that give no labeled patches, and why."""

NOT_EXHAUSTIVE = ("test_114",)
"""Of these, those that have a label all the same: they are diagnosed, and their lesions are not counted."""

ANNOTATIONS = "lesion_annotations"
_NO_GROUPS = (NO_GROUP, "")
_NAME = re.compile(r"(normal|tumor|test)_([0-9]{1,9})\.(tif|xml)", re.IGNORECASE)
_REFERENCE_ID = re.compile(r"test_([0-9]{1,9})(\.tif)?", re.IGNORECASE)


def read_lesions(path: Path) -> Lesions:
    """The outlines of an annotation file, sorted into tumor and holes by their group.

    What is in no group is neither (loaders of the release count with such outlines): no tumor, and no normal patch
    touches it.

    Raises:
        InputError: see `slides.annotations.read_asap_xml`; or a group is none of Camelyon16's, or there is no tumor.
    """
    left_out: list[LeftOut] = []
    outlines = parse_asap_xml(read_annotation(path), path, left_out.append).outlines
    known = (TUMOR_GROUPS, HOLE_GROUPS, _NO_GROUPS)
    for one in outlines:
        if not any(one.group in groups for groups in known):
            raise InputError(
                f"{path}, annotation {short(one.name)}: group {short(one.group)} is unknown; "
                f"tumor is {', '.join(TUMOR_GROUPS)}, a hole in it {', '.join(HOLE_GROUPS)}"
            )
    tumors, holes, unclear = ([one for one in outlines if one.group in groups] for groups in known)
    if not tumors:
        for some in left_out:
            log_left_out(some)
        what = "holes only" if holes else "no tumor"
        raise InputError(f"{path}: outlines {what}; expected a tumor, in group {', '.join(TUMOR_GROUPS)}")
    if unclear:
        left_out.append(LeftOut(path, "outline", "in no group", tuple(one.name for one in unclear)))
    return Lesions(tumors, holes, unclear, tuple(left_out))


@dataclass(frozen=True)
class Reference:
    """What testing/reference.csv says of a test slide.

    Attributes:
        label: tumor or normal.
        size: of the largest metastasis, in lower case ("macro", "micro", "itc"); empty where none is stated.
    """

    label: str
    size: str = ""


def read_reference(path: Path) -> dict[str, Reference]:
    """What testing/reference.csv says of each test slide: {"test_001": Reference("tumor", "macro"), ...}.

    Two columns or four, with or without a header, names in upper or lower case, with or without `.tif`.

    Raises:
        InputError: the file is missing, a row is not what it should be, or a slide comes twice; names file and row.
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
                f"{path}, row {number}: {short(','.join(row))}; expected two or four columns, "
                "as in test_001,Tumor,IDC,Macro or test_003,Normal"
            )
        slide_id = f"test_{int(name[1]):03d}"
        if slide_id in references:
            raise InputError(f"{path}, row {number}: {slide_id} stands in an earlier row already; keep one")
        size = cells[3].lower() if len(cells) == 4 else ""
        references[slide_id] = Reference(label, "" if size == "none" else size)
    if not references:
        raise InputError(f"{path}: no row with a test slide; expected rows like test_001,Tumor,IDC,Macro")
    return references


def slides_by_id(folder: Path, kind: str) -> dict[str, Path]:
    """Slides named <kind>_<number>.tif by their lower-case id, in the order of their numbers."""
    return _by_id(folder.glob("*"), (kind,), "tif")


def annotations_by_id(part: Path) -> dict[str, Path]:
    """Annotation files of the training or the testing part, from the folder or its zip."""
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
                f"{path}: a second file for {what} {key[0]}_{key[1]:03d}, beside {files[key].name}; keep one"
            )
        files[key] = path
    return {f"{kind}_{number:03d}": files[kind, number] for kind, number in sorted(files)}
