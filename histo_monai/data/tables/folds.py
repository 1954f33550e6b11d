"""Folds of slides for out-of-fold maps: each training slide is mapped by a model that did not train on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.utils.errors import InputError


def assign_folds(slides: pd.DataFrame, num_folds: int, generator: np.random.Generator) -> pd.Series:
    """Fold number of each slide, 0 to num_folds - 1; labels are spread evenly, and a patient is in one fold.

    Patients (else slides) are shuffled within each label and assigned to folds in turn. A patient with several labels
    counts under the last one in alphabetical order (tumor, if present).

    Args:
        slides: Columns `slide_id`, `patient_id`, `label`.
        num_folds: At least 2.
        generator: Random generator; the order of the rows has no effect.

    Raises:
        InputError: A label has fewer than two patients or slides, so one fold would have none for training.
    """
    group = patient_or_slide(slides)
    label_of_group = slides.groupby(group)["label"].max().sort_index()
    fold_of_group: dict[str, int] = {}
    dealt = 0
    for label, groups in label_of_group.groupby(label_of_group):
        if len(groups) < 2:
            raise InputError(
                f"only {len(groups)} training slide or patient has the label {label!r}, but out-of-fold maps need two. "
                "Fix: add one."
            )
        for name in generator.permutation(groups.index.to_numpy(dtype=object)):
            fold_of_group[name] = dealt % num_folds
            dealt += 1
    return group.map(fold_of_group).astype(int)


def slides_to_fold(slides: pd.DataFrame, patches: pd.DataFrame, positive: str) -> pd.DataFrame:
    """Labeled slides with training patches, which need out-of-fold maps; index from 0, empty without a diagnosis.

    Args:
        slides: `columns.WHOLE_SLIDE_COLUMNS`.
        patches: `columns.PATCH_COLUMNS`.
    """
    if why_no_diagnosis(slides, positive, sorted(set(patches["label"]) - {""})):
        return slides.iloc[:0]
    labeled = slides[(slides["split"] == "train") & (slides["label"] != "")]
    trained_on = set(patches.loc[patches["split"] == "train", "slide_id"]) - {""}
    return labeled[labeled["slide_id"].isin(trained_on)].reset_index(drop=True)


def training_diagnoses(
    slides: pd.DataFrame, patches: pd.DataFrame, positive: str, classes: Sequence[str] | None
) -> pd.Series:
    """Whether each training slide with a label and patches is positive; index `slide_id`.

    Args:
        slides: `columns.WHOLE_SLIDE_COLUMNS`; labels of other splits are not read.
        patches: Training patches without a label in the budget, `columns.PATCH_COLUMNS`.
        positive: Label of positive slides, and a class of the patches.
        classes: Classes of the patches; None for scores.

    Raises:
        InputError: The classes are not `positive` and one other, or the slides are not of both kinds.
    """
    if classes is None or len(classes) != 2 or positive not in classes:
        raise InputError(
            f"diagnoses: expected two classes of patches, one of them {positive!r}, got "
            f"{', '.join(classes) if classes else 'scores'}. Fix: set heatmap.own.positive_class to a class, or "
            "semisupervised_methods: [supervised]"
        )
    is_known = (slides["split"] == "train") & (slides["label"] != "")
    known = slides[is_known & slides["slide_id"].isin(patches["slide_id"])].set_index("slide_id")
    is_positive = known["label"] == positive
    if not is_positive.any() or is_positive.all():
        raise InputError(
            f"diagnoses: {is_positive.sum()} training slides with unlabeled patches are {positive!r} and "
            f"{(~is_positive).sum()} have another label. Fix: label slides of both kinds, and set "
            "labels.<dataset>.unlabeled above 0"
        )
    return is_positive


_FEWEST_OF_A_KIND = 2
"""Training slides of the positive label, and of others."""


def why_no_diagnosis(slides: pd.DataFrame, positive: str, classes: Sequence[str]) -> str:
    """Reason in one line if slides cannot be diagnosed; else empty.

    Args:
        slides: `columns.WHOLE_SLIDE_COLUMNS`.
        positive: Label of positive slides.
        classes: Classes of the patches; empty for scores.
    """
    if not (slides["label"] != "").any():
        return "no diagnosis of slides: no slide has a label"
    if classes and positive not in classes:
        return (
            f"no diagnosis of slides: the classes of patches are {', '.join(classes)}, without {positive!r}"
        )
    for part, rows in (("training", slides["split"] != "test"), ("test", slides["split"] == "test")):
        labels = slides.loc[rows & (slides["label"] != ""), "label"]
        if not (labels == positive).any() or (labels == positive).all():
            return (
                f"no diagnosis of slides: the labels of {part} slides do not include both {positive!r} and others "
                f"({len(labels)} of {rows.sum()} have a label)"
            )
        num = int((labels == positive).sum())
        if part == "training" and min(num, len(labels) - num) < _FEWEST_OF_A_KIND:
            return (
                f"no diagnosis of slides: the labels of training slides are {num} of {positive!r} and "
                f"{len(labels) - num} of others, but the classifier needs {_FEWEST_OF_A_KIND} of each"
            )
    return ""
