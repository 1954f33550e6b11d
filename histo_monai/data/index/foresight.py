"""What the stages to come will ask of the index, asked now: a run that must fail fails in its first minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from histo_monai.data.tables.folds import assign_folds, slides_to_fold, why_no_diagnosis
from histo_monai.data.tables.label_folds import deal_folds
from histo_monai.data.tables.manifests import first_five
from histo_monai.data.tables.splits import drawn_by, labeled_rows
from histo_monai.data.tables.tasks import sole_groups, split_rows, training_mpp
from histo_monai.slides import choose_level
from histo_monai.slides.tiles.blocks import whole_stride
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

NO_MAPS = "or map no slides (slide_level.pretraining_methods: [])"


@dataclass(frozen=True)
class MapsAhead:
    """How slides will be mapped and diagnosed.

    Attributes:
        section: of params, for messages, as `heatmap.own`.
        positive: class whose probability is mapped, and label of the slides that are told from others; None: tumor.
        stride_um: side of a cell, µm; None for that of a patch.
        num_folds: of the slides that are trained on.
    """

    section: str
    positive_class: str | None
    stride_um: float | None
    num_folds: int

    @property
    def label(self) -> str:
        """That a slide is diagnosed for."""
        return self.positive_class or "tumor"


@dataclass(frozen=True)
class Ahead:
    """What will be run on the index.

    Attributes:
        patch_px: side of the patches that networks see.
        alpha: fraction of the training labels that is used.
        seeds: of the draws of the labels and of the folds.
        maps: None where no slides will be mapped.
        teaches: whether a student learns from patches without labels.
        num_unlabeled: patches that nobody has labeled.
        ignore_stains: methods of pretraining that learn to.
    """

    patch_px: int
    alpha: float
    seeds: tuple[int, ...]
    maps: MapsAhead | None
    teaches: bool
    num_unlabeled: int
    ignore_stains: tuple[str, ...]


def problems_ahead(
    table: pd.DataFrame, whole_slides: pd.DataFrame, finest: Sequence[float], ahead: Ahead
) -> list[str]:
    """Why a later stage would fail, a line each, with what to change; none where all will find what they need.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits and ranks.
        whole_slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS` with splits.
        finest: µm/px of level 0 of each of the whole slides, as their files or slides.csv tell.
    """
    lines = _labels_left(table, ahead)
    if ahead.maps is None or whole_slides.empty or lines:
        return lines
    lines += _positive(table, ahead.maps)
    lines += _resolutions(table, whole_slides, finest, ahead.patch_px, ahead.maps)
    return lines or _folds(table, whole_slides, ahead, ahead.maps)


def remarks_ahead(table: pd.DataFrame, whole_slides: pd.DataFrame, ahead: Ahead) -> list[str]:
    """What will run, and may not be what was meant: a line each; arguments as those of `problems_ahead`."""
    lines = []
    num = int((table["split"] == "train").sum())
    if ahead.alpha < 1:
        lines.append(
            f"alpha {ahead.alpha:g}: the labels of {1 - ahead.alpha:.0%} of the {num} training patches are set aside, "
            "as if nobody had given them; alpha: 1 uses all"
        )
    elif ahead.teaches and not ahead.num_unlabeled:
        lines.append(
            "students have no patch without a label to learn from: all labels are used, and no other patches are drawn "
            "(labels.<dataset>.unlabeled, where labeled squares of slides tell the resolution)"
        )
    lines += _cross_validation(table, ahead)
    if ahead.ignore_stains and table["score"].notna().any():
        lines.append(
            f"labels are scores, and {', '.join(ahead.ignore_stains)} learns to look past the stains that scores are "
            "of: pretraining_methods: [random, rsp] did better in trials"
        )
    if ahead.maps is not None and (whole_slides["label"] != "").any():
        classes = sorted(set(table["label"]) - {""})
        why = why_no_diagnosis(whole_slides, ahead.maps.label, classes)
        lines += (
            [f"{why}; it is {ahead.maps.section}.positive_class that is told from the others"] if why else []
        )
    return lines


def _cross_validation(table: pd.DataFrame, ahead: Ahead) -> list[str]:
    """A line, where no validation patch is kept apart, and folds cannot have every class without a patient."""
    if (table["split"] == "validation").any() or _labels_left(table, ahead):
        return []
    for seed in ahead.seeds:
        for label, group in sole_groups(labeled_rows(drawn_by(table, seed), ahead.alpha)).items():
            labels = f"all labels of class {label!r}" if label else "all labels"
            why = f"{labels} are of {group}, and cross-validation needs two patients of each class"
            if (table["split"] == "test").any():
                return [f"cross-validation chooses nothing: {why}. Fix: label patches of another patient"]
            return [
                f"nothing can be measured: no patch has the split test, {why}. Fix: label patches of another patient, "
                "or name patients to test on in the column split"
            ]
    return []


def _labels_left(table: pd.DataFrame, ahead: Ahead) -> list[str]:
    for seed in ahead.seeds:
        try:
            labeled_rows(drawn_by(table, seed), ahead.alpha)
        except InputError as error:
            return [str(error)]
    return []


def _positive(table: pd.DataFrame, maps: MapsAhead) -> list[str]:
    classes = sorted(table["label"].unique())
    if table["score"].notna().any() or maps.positive_class in (None, *classes):
        return []
    return [
        f"{maps.section}.positive_class is {maps.positive_class!r}, but the classes are {', '.join(classes)}: set it "
        f"to one of "
        f"them, or to null for maps of all, {NO_MAPS}"
    ]


def _resolutions(
    table: pd.DataFrame, whole_slides: pd.DataFrame, finest: Sequence[float], patch_px: int, maps: MapsAhead
) -> list[str]:
    mpp = training_mpp(table, patch_px)
    if mpp is None:
        train = table[table["split"] == "train"]
        bare = int(train["mpp"].isna().sum())
        what = (
            f"{bare} of {len(train)} training patches have no µm/px"
            if bare
            else f"training patches are of several resolutions at {patch_px} px"
        )
        return [
            f"slides are mapped at the resolution of the training patches, but {what}: fill the column mpp of "
            f"patches.csv in every row, {NO_MAPS}"
        ]
    lines = []
    if maps.stride_um is not None:
        try:
            whole_stride(maps.stride_um, mpp)
        except InputError as error:
            lines.append(f"{maps.section}: {error}; or to null, the side of a patch ({patch_px * mpp:g} µm)")
    return lines + slides_too_coarse(
        whole_slides, finest, mpp, "maps (µm/px of the training patches)", NO_MAPS
    )


def slides_too_coarse(
    whole_slides: pd.DataFrame, finest: Sequence[float], mpp: float, purpose: str, instead: str
) -> list[str]:
    """A line, where slides do not have the resolution that is asked of them.

    Args:
        mpp: that is asked for, µm/px.
        purpose: what for, in words.
        instead: what else can be done.
    """
    too_coarse = []
    for slide_id, of_slide in zip(whole_slides["slide_id"], finest, strict=True):
        try:
            choose_level((float(of_slide),), mpp)
        except InputError as error:
            too_coarse.append(f"{slide_id}: {error}")
    if not too_coarse:
        return []
    return [
        f"{len(too_coarse)} of {len(whole_slides)} slides cannot be seen at {mpp:g} µm/px for {purpose}: "
        f"{first_five(too_coarse)}; leave them out of slides.csv, {instead}"
    ]


def _folds(table: pd.DataFrame, whole_slides: pd.DataFrame, ahead: Ahead, maps: MapsAhead) -> list[str]:
    """Slides that are trained on are diagnosed by models without their fold: the labels must be in two folds."""
    slides = slides_to_fold(whole_slides, table, maps.label)
    if slides.empty:
        return []
    for seed in ahead.seeds:
        try:  # classifiers of slides are cross-validated, too
            assign_folds(slides, 2, generator(seed, "folds"))
        except InputError as error:
            return [f"{error}, {NO_MAPS}"]
        drawn = drawn_by(table, seed)
        train, labeled = split_rows(drawn, "train"), labeled_rows(drawn, ahead.alpha)
        folds = deal_folds(train, labeled, maps.num_folds, generator(seed, "label folds"))
        if folds.why_none:
            return [
                "training slides are diagnosed by models that have not learned from them, but "
                f"{folds.why_none}: label patches of more patients, raise alpha, {NO_MAPS}"
            ]
    return []
