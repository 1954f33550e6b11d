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


def why_no_diagnosis(slides: pd.DataFrame, positive: str, classes: Sequence[str]) -> str:
    """Reason in one line if slides cannot be diagnosed; else empty.

    Args:
        slides: `columns.WHOLE_SLIDE_COLUMNS`.
        positive: Label of positive slides.
        classes: Classes of the patches; empty for scores.
    """
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
    return ""
