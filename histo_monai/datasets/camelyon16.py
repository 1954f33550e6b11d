"""Camelyon16: the official tree, read as published (Ehteshami Bejnordi et al. 2017)."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from histo_monai.datasets.files import find_tree, has_tree, read_bytes, split_archive
from histo_monai.datasets.label_survey import NORMAL, TUMOR, AnnotatedSlide, LabelPlacement, Lesions
from histo_monai.datasets.labeled import LabeledDataset, labeled_table
from histo_monai.datasets.labeled_slides import draw_labeled_patches, refuse_bad_slides
from histo_monai.datasets.splits import split_slides
from histo_monai.datasets.tables import corpus_table
from histo_monai.randomness import generator
from histo_monai.slides.annotations import parse_asap_xml

TUMOR_GROUPS = ("Tumor", "_0", "_1")
HOLE_GROUPS = ("_2", "Exclusion")
"""Groups of the annotations: normal tissue inside a lesion."""

KNOWN_DIRT = {
    "normal_086": "it is tumor_111 under its old name; the release removed it",
    "test_049": "it is a duplicate; the release removed it",
    "test_114": "its lesions are not all outlined",
}
"""Slides that give no labeled patches, and why."""

ANNOTATIONS = "lesion_annotations"
_NAME = re.compile(r"(normal|tumor|test)_(\d+)\.(tif|xml)", re.IGNORECASE)
_REFERENCE_ID = re.compile(r"test_(\d+)(\.tif)?", re.IGNORECASE)
_SECTION = "labels.camelyon16"


def pretraining_slides(root: Path, num_normal: int, num_tumor: int) -> pd.DataFrame:
    """The first `num_normal` and `num_tumor` training slides by number; the paper takes 35 and 25.

    The other training slides are kept for fine-tuning, and test slides are never among these. Names may be written in
    upper or lower case; ids are lower case.

    Args:
        root: holds `training/normal/normal_001.tif` ... and `training/tumor/tumor_001.tif` ...
        num_normal: how many normal slides.
        num_tumor: how many tumour slides.

    Returns:
        See `tables.CORPUS_COLUMNS`.

    Raises:
        ValueError: a folder is missing, or holds fewer slides than asked for, or two files of one id.
    """
    paths = _first_slides(root, NORMAL, num_normal) | _first_slides(root, TUMOR, num_tumor)
    return corpus_table([{"slide_id": slide_id, "path": path} for slide_id, path in paths.items()])


def _first_slides(root: Path, kind: str, wanted: int) -> dict[str, Path]:
    """The first training slides of a kind by number."""
    folder = root / "training" / kind
    found = _slides(folder, kind)
    if len(found) < wanted:
        raise ValueError(
            f"{folder}: {len(found)} slides named {kind}_<number>.tif, "
            f"but corpora.camelyon16.num_{kind} asks for {wanted}"
        )
    return dict(list(found.items())[:wanted])


def labeled_patches(
    root: Path,
    *,
    num_reserved_normal: int,
    num_reserved_tumor: int,
    patch_px: int,
    mpp: float,
    min_tumor_fraction: float,
    wanted: Mapping[str, Mapping[str, int]],
    tissue_mpp: float,
    min_tissue_fraction: float,
    validation_fraction: float,
    seed: int,
    skip_bad_slides: bool,
    processes: int,
) -> LabeledDataset:
    """Patches with and without tumour, drawn from the slides that are not pretrained on.

    A tumour patch has at least `min_tumor_fraction` of its field inside the outlines and outside their holes; a normal
    patch has no tumour at all, and lies on a normal slide, or on a tumour slide outside the outlines or in a hole. The
    field lies inside the slide, its center is tissue, and at least `min_tissue_fraction` of it. Training slides are
    split into train and validation slide by slide, normal and tumour slides apart, so that both are on both sides. Each
    slide counts as a patient of its own: the release has no patient ids. Slides of `KNOWN_DIRT` are left out.

    Args:
        root: holds `training/normal`, `training/tumor`, `training/lesion_annotations` (or its zip), and, where test
            patches are wanted, `testing/images`, `testing/reference.csv` and `testing/lesion_annotations` (or its zip).
        num_reserved_normal: the first normal slides, which `pretraining_slides` takes.
        num_reserved_tumor: the first tumour slides, likewise.
        patch_px: side of a patch.
        mpp: its resolution, µm/px.
        min_tumor_fraction: see above, 0..1.
        wanted: how many of "tumor" and "normal" for "train", "validation" and "test".
        tissue_mpp: resolution of the tissue mask, µm/px.
        min_tissue_fraction: see above, 0..1.
        validation_fraction: of the training slides.
        seed: of the split and of the centers.
        skip_bad_slides: go on without slides that cannot be used, or that lack their annotation or their row in
            reference.csv; each is named in the warnings.
        processes: slides surveyed at the same time.

    Raises:
        ValueError: a folder or file is missing, slides and annotations do not pair up, or slides cannot be used, and
            `skip_bad_slides` is not set; too few slides are left to split; there is no room for as many patches as
            asked for.
    """
    first = {NORMAL: num_reserved_normal, TUMOR: num_reserved_tumor}
    reserved = {slide_id for kind, num in first.items() for slide_id in _first_slides(root, kind, num)}
    found = _Found()
    slides = _split(root, _training_slides(root, reserved, found), validation_fraction, seed)
    if any(wanted["test"].values()):
        slides += _test_slides(root, found)
    refuse_bad_slides(found.problems, skip_bad_slides)
    rows, bad = draw_labeled_patches(
        slides,
        wanted,
        placement=LabelPlacement(patch_px, mpp, min_tumor_fraction, tissue_mpp, min_tissue_fraction),
        read_lesions=read_lesions,
        section=_SECTION,
        seed=seed,
        skip_bad_slides=skip_bad_slides,
        processes=processes,
    )
    left_out = [f"left out: {problem}" for problem in (*found.problems, *bad)]
    return LabeledDataset(labeled_table(rows), (*found.notes, *left_out))


def read_lesions(path: Path) -> Lesions:
    """The outlines of an annotation file, sorted into tumour and holes by their group.

    Raises:
        ValueError: see `slides.annotations.read_asap_xml`; or a group is none of Camelyon16's, or there is no tumour.
    """
    outlines = parse_asap_xml(read_bytes(path), path).outlines
    for one in outlines:
        if one.group not in TUMOR_GROUPS + HOLE_GROUPS:
            raise ValueError(
                f"{path}, annotation {one.name!r}: group {one.group!r} is unknown; "
                f"tumour is {', '.join(TUMOR_GROUPS)}, a hole in it {', '.join(HOLE_GROUPS)}"
            )
    tumors, holes = ([one for one in outlines if one.group in kind] for kind in (TUMOR_GROUPS, HOLE_GROUPS))
    if not tumors:
        raise ValueError(
            f"{path}: outlines holes only; expected a tumour, in group {', '.join(TUMOR_GROUPS)}"
        )
    return Lesions(tumors, holes)


def read_reference(path: Path) -> dict[str, str]:
    """What testing/reference.csv says of each test slide: {"test_001": "tumor", ...}.

    Two columns or four, with or without a header, names in upper or lower case, with or without `.tif`.

    Raises:
        ValueError: the file is missing, a row is not what it should be, or a slide comes twice; names file and row.
    """
    text = read_bytes(path).decode("utf-8-sig", errors="replace")
    found: dict[str, str] = {}
    for number, row in enumerate(csv.reader(text.splitlines()), start=1):
        cells = [cell.strip() for cell in row]
        name = _REFERENCE_ID.fullmatch(cells[0]) if cells else None
        if not any(cells) or (number == 1 and name is None and len(cells) in (2, 4)):
            continue
        label = cells[1].lower() if len(cells) in (2, 4) else ""
        if name is None or label not in (TUMOR, NORMAL):
            raise ValueError(
                f"{path}, row {number}: {','.join(row)!r}; expected two or four columns, "
                "as in test_001,Tumor,IDC,Macro or test_003,Normal"
            )
        slide_id = f"test_{int(name[1]):03d}"
        if slide_id in found:
            raise ValueError(f"{path}, row {number}: {slide_id} stands in an earlier row already; keep one")
        found[slide_id] = label
    if not found:
        raise ValueError(f"{path}: no row with a test slide; expected rows like test_001,Tumor,IDC,Macro")
    return found


@dataclass
class _Found:
    """What was found on the way, one line each: `notes` to report, `problems` that stop the run or are left out."""

    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _training_slides(root: Path, reserved: set[str], found: _Found) -> list[AnnotatedSlide]:
    """Training slides that are not reserved, still without a split."""
    part = root / "training"
    paths = {kind: _slides(part / kind, kind) for kind in (NORMAL, TUMOR)}
    labels = {slide_id: kind for kind, some in paths.items() for slide_id in some}
    return _pair(part, paths[NORMAL] | paths[TUMOR], labels, "", reserved, found)


def _test_slides(root: Path, found: _Found) -> list[AnnotatedSlide]:
    part = root / "testing"
    images, reference = part / "images", part / "reference.csv"
    paths, labels = _slides(images, "test"), read_reference(reference)
    if not paths:
        raise ValueError(
            f"{images}: no slide named test_<number>.tif; put the test slides there, "
            f"or set {_SECTION}.test.num_tumor and num_normal to 0"
        )
    for slide_id in sorted(paths.keys() - labels.keys() - KNOWN_DIRT.keys()):
        found.problems.append(f"{paths[slide_id]}: {reference} has no row for it")
    for slide_id in sorted(labels.keys() - paths.keys() - KNOWN_DIRT.keys()):
        found.problems.append(f"{reference}: {slide_id} has no slide in {images}")
    return _pair(part, paths, labels, "test", set(), found)


def _pair(
    part: Path,
    paths: Mapping[str, Path],
    labels: Mapping[str, str],
    split: str,
    reserved: set[str],
    found: _Found,
) -> list[AnnotatedSlide]:
    """Slides that have a label, each with its annotation where it has tumour."""
    outlined = _annotations(part)
    for slide_id, xml in outlined.items():
        if slide_id not in paths and slide_id not in KNOWN_DIRT:
            found.problems.append(f"{xml}: there is no slide {slide_id} that it belongs to")
    slides = []
    for slide_id, path in paths.items():
        if slide_id in reserved or slide_id not in labels:
            continue
        if slide_id in KNOWN_DIRT:
            found.notes.append(f"left out: {path}: {KNOWN_DIRT[slide_id]}")
        elif labels[slide_id] == NORMAL and slide_id in outlined:
            found.problems.append(f"{outlined[slide_id]}: outlines lesions on {slide_id}, a normal slide")
        elif labels[slide_id] == TUMOR and slide_id not in outlined:
            found.problems.append(f"{path}: no annotation {slide_id}.xml in {part / ANNOTATIONS}")
        else:
            slides.append(AnnotatedSlide(slide_id, path, split, outlined.get(slide_id)))
    return slides


def _split(
    root: Path, slides: Sequence[AnnotatedSlide], validation_fraction: float, seed: int
) -> list[AnnotatedSlide]:
    """Train and validation, drawn for normal and for tumour slides apart."""
    split_by_id: dict[str, str] = {}
    for kind in (NORMAL, TUMOR):
        ids = [s.slide_id for s in slides if (s.annotation is None) == (kind == NORMAL)]
        if len(ids) < 2:
            raise ValueError(
                f"{root / 'training' / kind}: {len(ids)} slides are left for labeled patches after those that are "
                f"pretrained on; one to train and one to validate are needed: add slides, "
                f"or lower corpora.camelyon16.num_{kind}"
            )
        table = pd.DataFrame({"slide_id": ids, "patient_id": ""})
        drawn = split_slides(table, validation_fraction, generator(seed, "labels", "split", kind))
        split_by_id |= dict(zip(ids, drawn, strict=True))
    return [replace(slide, split=split_by_id[slide.slide_id]) for slide in slides]


def _slides(folder: Path, kind: str) -> dict[str, Path]:
    return _by_id(folder.glob("*"), (kind,), "tif")


def _annotations(part: Path) -> dict[str, Path]:
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
    found: dict[tuple[str, int], Path] = {}
    for path in sorted(paths):
        match = _NAME.fullmatch(path.name)
        if match is None or match[1].lower() not in kinds or match[3].lower() != suffix:
            continue
        key = match[1].lower(), int(match[2])
        if key in found:
            what = "slide" if suffix == "tif" else "annotation"
            raise ValueError(
                f"{path}: a second file for {what} {key[0]}_{key[1]:03d}, beside {found[key].name}; keep one"
            )
        found[key] = path
    return {f"{kind}_{number:03d}": found[kind, number] for kind, number in sorted(found)}
