"""Camelyon16 in its published folder tree (Ehteshami Bejnordi et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from histo_monai.data.readers.camelyon16.release import (
    ANNOTATIONS,
    KNOWN_DIRT,
    NOT_EXHAUSTIVE,
    PARTLY_OUTLINED,
    Reference,
    annotations_by_id,
    read_lesions,
    read_reference,
    slides_by_id,
)
from histo_monai.data.readers.shared.lesion_centers import NORMAL, TUMOR, AnnotatedSlide, LabelPlacement
from histo_monai.data.readers.shared.lesion_patches import refuse_bad_slides, sample_labeled_patches
from histo_monai.data.tables.columns import corpus_table, whole_slide_table
from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.data.tables.splits import split_slides
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

_SECTION = "labels.camelyon16"


def pretraining_slides(root: Path, num_normal: int, num_tumor: int) -> pd.DataFrame:
    """The first `num_normal` and `num_tumor` training slides by number, as `data.tables.columns.CORPUS_COLUMNS`.

    Srinidhi 2022 uses 35 and 25. The other training slides are for fine-tuning. File names may have upper or lower
    case; ids are lower case.

    Args:
        root: Contains `training/normal/normal_001.tif` ... and `training/tumor/tumor_001.tif` ...

    Raises:
        InputError: A folder is missing or has too few slides, or two files have one id.
    """
    paths = _first_slides(root, NORMAL, num_normal) | _first_slides(root, TUMOR, num_tumor)
    return corpus_table([{"slide_id": slide_id, "path": path} for slide_id, path in paths.items()])


def _first_slides(root: Path, kind: str, wanted: int) -> dict[str, Path]:
    """The first training slides of a kind by number."""
    folder = root / "training" / kind
    slides = slides_by_id(folder, kind)
    if len(slides) < wanted:
        raise InputError(
            f"{folder}: {len(slides)} slides named {kind}_<number>.tif, but corpora.camelyon16.num_{kind} asks for "
            f"{wanted}. Fix: add slides or lower the setting."
        )
    return dict(list(slides.items())[:wanted])


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
    validation_fraction: float | None,
    seed: int,
    skip_bad_slides: bool,
    processes: int,
    partly_outlined: tuple[str, ...] = PARTLY_OUTLINED,
) -> LabeledDataset:
    """Patches with and without tumor, sampled from slides that pretraining does not use.

    A tumor patch has at least `min_tumor_fraction` of its field inside outlines and outside holes. A normal patch has
    no tumor. The field lies inside the slide, its center is tissue, and so is at least `min_tissue_fraction` of it.
    Train and validation are split by slide, within normal and within tumor slides. Each slide counts as one patient,
    because the release has no patient ids. Slides of `KNOWN_DIRT` give no patch.

    Args:
        root: Contains `training/normal`, `training/tumor`, `training/lesion_annotations` (or its zip), and for test
            patches `testing/images`, `testing/reference.csv` and `testing/lesion_annotations` (or its zip).
        num_reserved_normal: Number of first normal slides, reserved for pretraining.
        num_reserved_tumor: Number of first tumor slides, reserved for pretraining.
        mpp: Resolution of a patch, µm/px.
        min_tumor_fraction: Fraction in 0..1.
        wanted: Number of "tumor" and "normal" patches in "train", "test", and "validation" if it has slides.
        tissue_mpp: Resolution of the tissue mask, µm/px.
        min_tissue_fraction: Fraction in 0..1.
        validation_fraction: Fraction of the training slides; None: no validation slide.
        seed: Seed of the split and of the centers.
        skip_bad_slides: Whether to skip unusable slides, also without annotation or row in reference.csv; the warnings
            name each.
        processes: Slides surveyed at the same time.
        partly_outlined: Slides that may hold tumor without an outline; they give no normal patch.

    Raises:
        InputError: A folder or file is missing; slides and annotations do not match or slides are unusable, without
            `skip_bad_slides`; too few slides are left to split; or the slides have too few places for patches.
    """
    first = {NORMAL: num_reserved_normal, TUMOR: num_reserved_tumor}
    reserved = {slide_id for kind, num in first.items() for slide_id in _first_slides(root, kind, num)}
    findings = _Findings(partly_outlined)
    slides = _split(root, _training_slides(root, reserved, findings), validation_fraction, seed)
    if any(wanted["test"].values()):
        slides += _test_slides(root, findings)
    refuse_bad_slides(findings.problems, skip_bad_slides)
    rows, notes, bad = sample_labeled_patches(
        slides,
        wanted,
        placement=LabelPlacement(patch_px, mpp, min_tumor_fraction, tissue_mpp, min_tissue_fraction),
        read_lesions=read_lesions,
        section=_SECTION,
        seed=seed,
        skip_bad_slides=skip_bad_slides,
        processes=processes,
    )
    left_out = [f"left out: {problem}" for problem in (*findings.problems, *bad)]
    return LabeledDataset(labeled_table(rows), (*findings.notes, *notes, *left_out))


def whole_slides(
    root: Path,
    *,
    num_reserved_normal: int,
    num_reserved_tumor: int,
    validation_fraction: float | None,
    seed: int,
    skip_bad_slides: bool,
    partly_outlined: tuple[str, ...] = PARTLY_OUTLINED,
) -> tuple[pd.DataFrame, list[str]]:
    """Slides to diagnose, `data.tables.columns.WHOLE_SLIDE_COLUMNS`, and one-line data warnings.

    They are the training slides that pretraining does not use, split as for patches, and the test slides. test_114 has
    a label but is not `exhaustive`: its lesions do not count, and its annotation may be missing. Slides of
    `partly_outlined` are not `exhaustive` either.

    Raises:
        InputError: A folder or file is missing; slides and annotations do not match, without `skip_bad_slides`; or too
            few slides are left to split.
    """
    first = {NORMAL: num_reserved_normal, TUMOR: num_reserved_tumor}
    reserved = {slide_id for kind, num in first.items() for slide_id in _first_slides(root, kind, num)}
    findings = _Findings(partly_outlined, keep=NOT_EXHAUSTIVE)
    slides = _split(root, _training_slides(root, reserved, findings), validation_fraction, seed)
    references: dict[str, Reference] = {}
    if (root / "testing").is_dir():
        slides += _test_slides(root, findings)
        references = read_reference(root / "testing" / "reference.csv")
    refuse_bad_slides(findings.problems, skip_bad_slides)
    rows = [
        {
            "slide_id": slide.slide_id,
            "path": slide.path,
            "label": reference.label if reference else NORMAL if slide.annotation is None else TUMOR,
            "size": reference.size if reference else "",
            "split": slide.split,
            "annotation": slide.annotation or "",
            "exhaustive": slide.is_exhaustive and slide.slide_id not in NOT_EXHAUSTIVE,
        }
        for slide, reference in ((slide, references.get(slide.slide_id)) for slide in slides)
    ]
    return whole_slide_table(rows), [
        *findings.notes,
        *(f"left out: {problem}" for problem in findings.problems),
    ]


@dataclass
class _Findings:
    """Findings of reading, one line each: `notes` for the report, and `problems` of slides.

    `keep` names slides of `KNOWN_DIRT` to include, `partly_outlined` slides that may hold tumor without an outline.
    """

    partly_outlined: tuple[str, ...]
    keep: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _training_slides(root: Path, reserved: set[str], findings: _Findings) -> list[AnnotatedSlide]:
    """Training slides not reserved for pretraining, not split yet."""
    part = root / "training"
    paths = {kind: slides_by_id(part / kind, kind) for kind in (NORMAL, TUMOR)}
    labels = {slide_id: kind for kind, some in paths.items() for slide_id in some}
    return _pair(part, paths[NORMAL] | paths[TUMOR], labels, "", reserved, findings)


def _test_slides(root: Path, findings: _Findings) -> list[AnnotatedSlide]:
    part = root / "testing"
    images, reference = part / "images", part / "reference.csv"
    paths, references = slides_by_id(images, "test"), read_reference(reference)
    labels = {slide_id: one.label for slide_id, one in references.items()}
    if not paths:
        raise InputError(
            f"{images}: no slide named test_<number>.tif. Fix: put the test slides there, "
            f"or set {_SECTION}.test.num_tumor and num_normal to 0."
        )
    for slide_id in sorted(paths.keys() - labels.keys() - KNOWN_DIRT.keys()):
        findings.problems.append(f"{paths[slide_id]}: {reference} has no row for it")
    for slide_id in sorted(labels.keys() - paths.keys() - KNOWN_DIRT.keys()):
        findings.problems.append(f"{reference}: {slide_id} has no slide in {images}")
    return _pair(part, paths, labels, "test", set(), findings)


def _pair(
    part: Path,
    paths: Mapping[str, Path],
    labels: Mapping[str, str],
    split: str,
    reserved: set[str],
    findings: _Findings,
) -> list[AnnotatedSlide]:
    """Labeled slides with their annotations."""
    outlined = annotations_by_id(part)
    for slide_id, xml in outlined.items():
        if slide_id not in paths and slide_id not in KNOWN_DIRT:
            findings.problems.append(f"{xml}: there is no slide {slide_id} that it belongs to")
    slides = []
    for slide_id, path in paths.items():
        if slide_id in reserved or slide_id not in labels:
            continue
        if slide_id in KNOWN_DIRT and slide_id not in findings.keep:
            findings.notes.append(f"left out: {path}: {KNOWN_DIRT[slide_id]}")
        elif labels[slide_id] == NORMAL and slide_id in outlined:
            findings.problems.append(f"{outlined[slide_id]}: outlines lesions on {slide_id}, a normal slide")
        elif labels[slide_id] == TUMOR and slide_id not in outlined and slide_id not in NOT_EXHAUSTIVE:
            findings.problems.append(f"{path}: no annotation {slide_id}.xml in {part / ANNOTATIONS}")
        else:
            is_exhaustive = slide_id not in findings.partly_outlined
            slides.append(
                AnnotatedSlide(slide_id, path, split, outlined.get(slide_id), is_exhaustive=is_exhaustive)
            )
    return slides


def _split(
    root: Path, slides: Sequence[AnnotatedSlide], validation_fraction: float | None, seed: int
) -> list[AnnotatedSlide]:
    """Slides split into train and validation within each kind; all train without a `validation_fraction`."""
    least, needed = (
        (1, "training needs one")
        if validation_fraction is None
        else (2, "training and validation need one each")
    )
    split_by_id: dict[str, str] = {}
    for kind in (NORMAL, TUMOR):
        ids = [s.slide_id for s in slides if (s.annotation is None) == (kind == NORMAL)]
        if len(ids) < least:
            raise InputError(
                f"{root / 'training' / kind}: {len(ids)} slides remain for labeled patches beside the pretraining "
                f"slides; {needed}. Fix: add slides, or lower corpora.camelyon16.num_{kind}."
            )
        if validation_fraction is None:
            split_by_id |= dict.fromkeys(ids, "train")
            continue
        table = pd.DataFrame({"slide_id": ids, "patient_id": ""})
        splits = split_slides(table, validation_fraction, generator(seed, "labels", "split", kind))
        split_by_id |= dict(zip(ids, splits, strict=True))
    return [replace(slide, split=split_by_id[slide.slide_id]) for slide in slides]
