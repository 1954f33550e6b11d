"""Preflight check of the index: problems of later stages, reported in the first minute of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from histo_monai.data.tables.folds import assign_folds, slides_to_fold, why_no_diagnosis
from histo_monai.data.tables.label_folds import deal_folds
from histo_monai.data.tables.manifests import first_five
from histo_monai.data.tables.splits import labeled_rows, with_label_ranks
from histo_monai.data.tables.tasks import sole_groups, split_rows, training_mpp
from histo_monai.slides import choose_level
from histo_monai.slides.tiles.blocks import whole_stride
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

NO_MAPS = "or map no slides (slide_level.pretraining_methods: [])"


@dataclass(frozen=True)
class MapsAhead:
    """Settings of the heat-maps and the slide-level diagnosis.

    Attributes:
        section: Section of params for messages, such as `heatmap.own`.
        positive_class: Class whose probability is mapped, and slide label to detect; None: tumor.
        stride_um: Side of a cell, µm; None: the side of a patch.
        num_folds: Folds of the training slides.
    """

    section: str
    positive_class: str | None
    stride_um: float | None
    num_folds: int

    @property
    def label(self) -> str:
        """The slide label to detect."""
        return self.positive_class or "tumor"


@dataclass(frozen=True)
class Ahead:
    """Settings of the stages after the index.

    Attributes:
        patch_px: Side of the networks' patches.
        alpha: Fraction of the training labels that training uses.
        seeds: Seeds of the random label subsets and folds.
        maps: Map settings; None without maps.
        teaches: Whether semi-supervised training runs.
        num_unlabeled: Number of patches without a label.
        ignore_stains: Pretraining methods that learn to ignore stains.
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
    """One line per problem that a later stage would have, with its fix; empty if there is none.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits and ranks.
        whole_slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS` with splits.
        finest: Level-0 µm/px of each whole slide, from its file or slides.csv.
    """
    lines = _labels_left(table, ahead)
    if ahead.maps is None or whole_slides.empty or lines:
        return lines
    lines += _positive(table, ahead.maps)
    lines += _resolutions(table, whole_slides, finest, ahead.patch_px, ahead.maps)
    return lines or _folds(table, whole_slides, ahead, ahead.maps)


def without_field(table: pd.DataFrame, field: int) -> list[str]:
    """An error line for patches that are images, where `features.field` asks for the field around; else none."""
    num = int(table["y"].isna().sum())
    if field == 1 or not num:
        return []
    return [
        f"features.field: {field}, but {num} patches are images, which show no field around them. Fix: set "
        "features.field: 1, or state slide_id, y and x of each patch"
    ]


def preflight_warnings(table: pd.DataFrame, whole_slides: pd.DataFrame, ahead: Ahead) -> list[str]:
    """One line per doubtful setting that does not stop a run; arguments are those of `problems_ahead`."""
    lines = []
    num = int((table["split"] == "train").sum())
    if ahead.alpha < 1:
        lines.append(
            f"alpha {ahead.alpha:g}: the labels of {1 - ahead.alpha:.0%} of the {num} training patches are not used. "
            "Fix: set alpha: 1 to use all."
        )
    elif ahead.teaches and not ahead.num_unlabeled:
        lines.append(
            "semi-supervised training has no unlabeled patch: all labels are used, and no other patches are sampled. "
            "Fix: set labels.<dataset>.unlabeled; the labeled squares of slides must state µm/px"
        )
    lines += _cross_validation(table, ahead)
    if ahead.ignore_stains and table["score"].notna().any():
        lines.append(
            f"labels are scores, and {', '.join(ahead.ignore_stains)} learns to ignore stain, on which scores depend. "
            "Fix: compare with pretraining_methods: [random, rsp], which was better on simulated slides"
        )
    if ahead.maps is not None and (whole_slides["label"] != "").any():
        classes = sorted(set(table["label"]) - {""})
        why = why_no_diagnosis(whole_slides, ahead.maps.label, classes)
        fix = f"set {ahead.maps.section}.positive_class to the slide label to detect, or label further slides"
        lines += [f"{why}. Fix: {fix}"] if why else []
    return lines


def _cross_validation(table: pd.DataFrame, ahead: Ahead) -> list[str]:
    """A line if validation patches are absent and some class has labels of a single patient."""
    if (table["split"] == "validation").any() or _labels_left(table, ahead):
        return []
    for seed in ahead.seeds:
        for label, group in sole_groups(labeled_rows(with_label_ranks(table, seed), ahead.alpha)).items():
            labels = f"all labels of class {label!r}" if label else "all labels"
            why = f"{labels} are of {group}, and cross-validation needs two patients of each class"
            if (table["split"] == "test").any():
                fix = "label patches of another patient, or correct a misspelled class"
                return [f"cross-validation cannot run: {why}. Fix: {fix}"]
            return [
                f"no result can be measured: no patch has the split test, and {why}. Fix: label patches of another "
                "patient, or mark test patients in the column split"
            ]
    return []


def _labels_left(table: pd.DataFrame, ahead: Ahead) -> list[str]:
    for seed in ahead.seeds:
        try:
            labeled_rows(with_label_ranks(table, seed), ahead.alpha)
        except InputError as error:
            return [str(error)]
    return []


def _positive(table: pd.DataFrame, maps: MapsAhead) -> list[str]:
    classes = sorted(table["label"].unique())
    if table["score"].notna().any() or maps.positive_class in (None, *classes):
        return []
    return [
        f"{maps.section}.positive_class is {maps.positive_class!r}, but the classes are {', '.join(classes)}. "
        f"Fix: set it to one of them, or to null for maps of all, {NO_MAPS}"
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
            f"slides are mapped at the resolution of the training patches, but {what}. Fix: fill the column mpp of "
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
    """A line if some slides lack a requested resolution; else no line.

    Args:
        mpp: Requested µm/px.
        purpose: Use of the slides, for the message.
        instead: Alternative fix, for the message.
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
        f"{len(too_coarse)} of {len(whole_slides)} slides cannot be read at {mpp:g} µm/px for {purpose}: "
        f"{first_five(too_coarse)}. Fix: remove them from slides.csv, {instead}"
    ]


def _folds(table: pd.DataFrame, whole_slides: pd.DataFrame, ahead: Ahead, maps: MapsAhead) -> list[str]:
    """Why training slides cannot be diagnosed by models of other folds: their labels must fill two folds."""
    slides = slides_to_fold(whole_slides, table, maps.label)
    if slides.empty:
        return []
    for seed in ahead.seeds:
        try:  # Slide classifiers are cross-validated, too.
            assign_folds(slides, 2, generator(seed, "folds"))
        except InputError as error:
            return [f"{str(error).removesuffix('.')}, {NO_MAPS}"]
        ranked = with_label_ranks(table, seed)
        train, labeled = split_rows(ranked, "train"), labeled_rows(ranked, ahead.alpha)
        folds = deal_folds(train, labeled, maps.num_folds, generator(seed, "label folds"))
        if folds.why_none:
            return [
                "training slides are diagnosed by models trained without them, but "
                f"{folds.why_none}. Fix: label patches of more patients, raise alpha, {NO_MAPS}"
            ]
    return []
