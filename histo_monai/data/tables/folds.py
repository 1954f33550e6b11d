"""Folds of slides for out-of-fold maps: a slide that a model has trained on is mapped by one that has not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from histo_monai.data.tables.tasks import patient_or_slide
from histo_monai.utils.errors import InputError


def assign_folds(slides: pd.DataFrame, num_folds: int, generator: np.random.Generator) -> pd.Series:
    """Deal slides out into folds, the labels evenly, all slides of a patient into one fold.

    Patients (or slides, where no patient is known) are shuffled within each label and dealt out in turn; one with
    slides of several labels counts as the last of them in alphabetical order (tumor, where there is one).

    Args:
        slides: `slide_id`, `patient_id`, `label`.
        num_folds: at least 2.
        generator: decides; the order of the rows does not.

    Returns:
        Number of the fold of each row, 0 to num_folds - 1.

    Raises:
        InputError: a label has fewer than two patients or slides, so that its fold would leave none to learn from.
    """
    group = patient_or_slide(slides)
    label_of_group = slides.groupby(group)["label"].max().sort_index()
    fold_of_group: dict[str, int] = {}
    dealt = 0
    for label, groups in label_of_group.groupby(label_of_group):
        if len(groups) < 2:
            raise InputError(
                f"{len(groups)} training slide or patient is {label!r}: to map it by a model that has not seen it, "
                "another must be left to learn from; give two or more"
            )
        for name in generator.permutation(groups.index.to_numpy(dtype=object)):
            fold_of_group[name] = dealt % num_folds
            dealt += 1
    return group.map(fold_of_group).astype(int)


def slides_to_fold(slides: pd.DataFrame, patches: pd.DataFrame, positive: str) -> pd.DataFrame:
    """The labeled slides that patches are trained on: those whose maps a classifier of slides may not take as they are.

    Args:
        slides: `columns.WHOLE_SLIDE_COLUMNS`.
        patches: `columns.PATCH_COLUMNS`.

    Returns:
        Rows of `slides`, numbered anew; none where nothing is diagnosed.
    """
    if why_no_diagnosis(slides, positive, sorted(set(patches["label"]) - {""})):
        return slides.iloc[:0]
    labeled = slides[(slides["split"] == "train") & (slides["label"] != "")]
    trained_on = set(patches.loc[patches["split"] == "train", "slide_id"]) - {""}
    return labeled[labeled["slide_id"].isin(trained_on)].reset_index(drop=True)


def why_no_diagnosis(slides: pd.DataFrame, positive: str, classes: Sequence[str]) -> str:
    """Why slides cannot be diagnosed, in a line; empty where they can.

    Args:
        slides: `columns.WHOLE_SLIDE_COLUMNS`.
        positive: label of the slides that are to be told from the others.
        classes: of the patches, whose maps tell them; none where these have scores.
    """
    if classes and positive not in classes:
        return (
            f"no diagnosis of slides: the classes of patches are {', '.join(classes)}, and no map of these shows "
            f"{positive!r}"
        )
    for part, kept in (("training", slides["split"] != "test"), ("test", slides["split"] == "test")):
        labels = slides.loc[kept & (slides["label"] != ""), "label"]
        if not (labels == positive).any() or (labels == positive).all():
            return (
                f"no diagnosis of slides: the {part} slides are not known to be {positive!r} in part and in part not "
                f"({len(labels)} of {kept.sum()} have a label)"
            )
    return ""
