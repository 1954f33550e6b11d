"""Camelyon16: the official tree, read as published (Ehteshami Bejnordi et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from histo_monai.data.readers.camelyon16.release import (
    ANNOTATIONS,
    KNOWN_DIRT,
    NOT_EXHAUSTIVE,
    Reference,
    annotations_by_id,
    read_lesions,
    read_reference,
    slides_by_id,
)
from histo_monai.data.readers.shared.lesion_centers import NORMAL, TUMOR, AnnotatedSlide, LabelPlacement
from histo_monai.data.readers.shared.lesion_patches import draw_labeled_patches, refuse_bad_slides
from histo_monai.data.tables.columns import corpus_table, whole_slide_table
from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.data.tables.splits import split_slides
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

_SECTION = "labels.camelyon16"


def pretraining_slides(root: Path, num_normal: int, num_tumor: int) -> pd.DataFrame:
    """The first `num_normal` and `num_tumor` training slides by number; the paper takes 35 and 25.

    The other training slides are kept for fine-tuning, and test slides are never among these. Names may be written in
    upper or lower case; ids are lower case.

    Args:
        root: holds `training/normal/normal_001.tif` ... and `training/tumor/tumor_001.tif` ...

    Returns:
        See `data.tables.columns.CORPUS_COLUMNS`.

    Raises:
        InputError: a folder is missing, or holds fewer slides than asked for, or two files of one id.
    """
    paths = _first_slides(root, NORMAL, num_normal) | _first_slides(root, TUMOR, num_tumor)
    return corpus_table([{"slide_id": slide_id, "path": path} for slide_id, path in paths.items()])


def _first_slides(root: Path, kind: str, wanted: int) -> dict[str, Path]:
    """The first training slides of a kind by number."""
    folder = root / "training" / kind
    slides = slides_by_id(folder, kind)
    if len(slides) < wanted:
        raise InputError(
            f"{folder}: {len(slides)} slides named {kind}_<number>.tif, "
            f"but corpora.camelyon16.num_{kind} asks for {wanted}"
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
) -> LabeledDataset:
    """Patches with and without tumor, drawn from the slides that are not pretrained on.

    A tumor patch has at least `min_tumor_fraction` of its field inside the outlines and outside their holes; a normal
    patch has no tumor at all, and lies on a normal slide, or on a tumor slide outside the outlines or in a hole. The
    field lies inside the slide, its center is tissue, and at least `min_tissue_fraction` of it. Training slides are
    split into train and validation slide by slide, normal and tumor slides apart, so that both are on both sides; or
    all are train. Each slide counts as a patient of its own: the release has no patient ids. Slides of `KNOWN_DIRT` are
    left out.

    Args:
        root: holds `training/normal`, `training/tumor`, `training/lesion_annotations` (or its zip), and, where test
            patches are wanted, `testing/images`, `testing/reference.csv` and `testing/lesion_annotations` (or its zip).
        num_reserved_normal: the first normal slides, which `pretraining_slides` takes.
        num_reserved_tumor: the first tumor slides, likewise.
        mpp: its resolution, µm/px.
        min_tumor_fraction: see above, 0..1.
        wanted: how many of "tumor" and "normal" for "train", "test", and "validation" if slides are drawn for it.
        tissue_mpp: resolution of the tissue mask, µm/px.
        min_tissue_fraction: see above, 0..1.
        validation_fraction: of the training slides; None: validation gets no slide.
        seed: of the split and of the centers.
        skip_bad_slides: go on without slides that cannot be used, or that lack their annotation or their row in
            reference.csv; each is named in the warnings.
        processes: slides surveyed at the same time.

    Raises:
        InputError: a folder or file is missing, slides and annotations do not pair up, or slides cannot be used, and
            `skip_bad_slides` is not set; too few slides are left to split; there is no room for as many patches as
            asked for.
    """
    first = {NORMAL: num_reserved_normal, TUMOR: num_reserved_tumor}
    reserved = {slide_id for kind, num in first.items() for slide_id in _first_slides(root, kind, num)}
    findings = _Findings()
    slides = _split(root, _training_slides(root, reserved, findings), validation_fraction, seed)
    if any(wanted["test"].values()):
        slides += _test_slides(root, findings)
    refuse_bad_slides(findings.problems, skip_bad_slides)
    rows, notes, bad = draw_labeled_patches(
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
) -> tuple[pd.DataFrame, list[str]]:
    """The slides to diagnose: training slides that are not pretrained on, split as for the patches, and test slides.

    test_114 is among them (its label is known), though not `exhaustive`: its lesions do not count, and it may lack its
    annotation.

    Returns:
        `data.tables.columns.WHOLE_SLIDE_COLUMNS`, and what a reader of the results must know, one line each.

    Raises:
        InputError: see `labeled_patches`.
    """
    first = {NORMAL: num_reserved_normal, TUMOR: num_reserved_tumor}
    reserved = {slide_id for kind, num in first.items() for slide_id in _first_slides(root, kind, num)}
    findings = _Findings(keep=NOT_EXHAUSTIVE)
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
            "exhaustive": slide.slide_id not in NOT_EXHAUSTIVE,
        }
        for slide, reference in ((slide, references.get(slide.slide_id)) for slide in slides)
    ]
    return whole_slide_table(rows), [
        *findings.notes,
        *(f"left out: {problem}" for problem in findings.problems),
    ]


@dataclass
class _Findings:
    """What was found on the way, one line each: `notes` to report, `problems` that stop the run or are left out.

    `keep` names slides of `KNOWN_DIRT` that are taken all the same.
    """

    keep: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def _training_slides(root: Path, reserved: set[str], findings: _Findings) -> list[AnnotatedSlide]:
    """Training slides that are not reserved, still without a split."""
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
            f"{images}: no slide named test_<number>.tif; put the test slides there, "
            f"or set {_SECTION}.test.num_tumor and num_normal to 0"
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
    """Slides that have a label, each with its annotation where it has tumor."""
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
            slides.append(AnnotatedSlide(slide_id, path, split, outlined.get(slide_id)))
    return slides


def _split(
    root: Path, slides: Sequence[AnnotatedSlide], validation_fraction: float | None, seed: int
) -> list[AnnotatedSlide]:
    """Train and validation, drawn for normal and for tumor slides apart; all train without a `validation_fraction`."""
    least, needed = (
        (1, "one to train is") if validation_fraction is None else (2, "one to train and one to validate are")
    )
    split_by_id: dict[str, str] = {}
    for kind in (NORMAL, TUMOR):
        ids = [s.slide_id for s in slides if (s.annotation is None) == (kind == NORMAL)]
        if len(ids) < least:
            raise InputError(
                f"{root / 'training' / kind}: {len(ids)} slides are left for labeled patches after those that are "
                f"pretrained on; {needed} needed: add slides, or lower corpora.camelyon16.num_{kind}"
            )
        if validation_fraction is None:
            split_by_id |= dict.fromkeys(ids, "train")
            continue
        table = pd.DataFrame({"slide_id": ids, "patient_id": ""})
        drawn = split_slides(table, validation_fraction, generator(seed, "labels", "split", kind))
        split_by_id |= dict(zip(ids, drawn, strict=True))
    return [replace(slide, split=split_by_id[slide.slide_id]) for slide in slides]
