"""Slide features -> diagnoses, metrics, and the permutation control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.evaluation.metrics import Estimate, auc
from histo_monai.slides.annotations import Region, rasterize_regions
from histo_monai.wsi.diagnosis.classifier import Kernel, SlideClassifier, permutation_auc
from histo_monai.wsi.heatmaps.heatmap import Heatmap

SIZES = ("macro", "micro")
"""Sizes of the largest metastasis: macro above 2 mm, micro above 0.2 mm up to 2 mm."""

MAX_PROBABILITY = "max_probability"
"""Feature that is a score without a classifier."""
SCORE_IN_TRAINING = "score_by_seen"


@dataclass(frozen=True)
class Learning:
    """Settings of `SlideClassifier.fit`."""

    kernel: Kernel
    C: Sequence[float]
    gamma: Sequence[float]
    folds: int
    seed: int


def diagnose(
    features: pd.DataFrame,
    features_in_training: pd.DataFrame | None,
    is_tumor: NDArray[np.bool_],
    split: pd.Series,
    learning: Learning,
    groups: NDArray[np.object_],
) -> tuple[SlideClassifier, pd.DataFrame]:
    """Classifier trained on the slides outside the test split, and scores of all slides.

    Args:
        features: one row per slide, from maps of models not trained on the slide.
        features_in_training: same rows, from maps of models trained on the slide where available; None without such
            maps.
        is_tumor: (n,).
        split: of each slide; "test" slides are not used in training.
        groups: (n,), patient of each slide, or the slide itself.

    Returns:
        The classifier; and per slide `score`, `max_probability` (maximum of the map), and with
        `features_in_training` also `score_by_seen`, the score of a classifier trained on them.

    Raises:
        InputError: as in `SlideClassifier.fit`.
    """
    teaches = (split != "test").to_numpy()
    settings = asdict(learning) | {"groups": groups[teaches]}
    right = SlideClassifier.fit(features[teaches], is_tumor[teaches], **settings)
    scores = {"score": right.scores(features)}
    if features_in_training is not None:
        wrong = SlideClassifier.fit(features_in_training[teaches], is_tumor[teaches], **settings)
        scores[SCORE_IN_TRAINING] = wrong.scores(features)
    scores[MAX_PROBABILITY] = features[MAX_PROBABILITY].to_numpy()
    return right, pd.DataFrame(scores, index=features.index)


def shuffled_control(
    features: pd.DataFrame,
    is_tumor: NDArray[np.bool_],
    split: pd.Series,
    learning: Learning,
    groups: NDArray[np.object_],
    num: int,
) -> Estimate:
    """Test AUC of classifiers trained on shuffled labels: mean and central 95 %.

    Labels move between patients (`groups`, of all slides). The interval is no uncertainty of an AUC; it shows the
    result of the method without information.
    """
    test = (split == "test").to_numpy()
    aucs = permutation_auc(
        features[~test],
        is_tumor[~test],
        features[test],
        is_tumor[test],
        num=num,
        groups=groups[~test],
        **asdict(learning),
    )
    low, high = np.quantile(aucs, [0.025, 0.975])
    return Estimate(float(aucs.mean()), float(low), float(high), num)


def slide_estimates(
    is_tumor: NDArray[np.bool_], sizes: pd.Series, scores: pd.DataFrame, groups: NDArray[np.object_]
) -> dict[str, Estimate]:
    """AUCs of test slides with DeLong intervals by patient; AUCs by size compare with all normal slides.

    Args:
        is_tumor: (n,).
        sizes: of the largest metastasis, as in `SIZES`.
        scores: columns of `diagnose`.
        groups: (n,), patient of each slide, or the slide itself.

    Returns:
        `slide_auc` and `slide_auc_max_probability`; `slide_auc_macro`, `slide_auc_micro`, `slide_auc_by_seen` if such
        slides or maps exist.
    """
    estimates = {"slide_auc": auc(is_tumor, scores["score"], groups=groups)}
    for size in SIZES:
        compared = ~is_tumor | (sizes == size).to_numpy()
        if is_tumor[compared].any():
            estimates[f"slide_auc_{size}"] = auc(
                is_tumor[compared], scores["score"][compared], groups=groups[compared]
            )
    if SCORE_IN_TRAINING in scores:
        estimates["slide_auc_by_seen"] = auc(is_tumor, scores[SCORE_IN_TRAINING], groups=groups)
    highest = auc(is_tumor, scores[MAX_PROBABILITY], groups=groups)
    estimates[f"slide_auc_{MAX_PROBABILITY}"] = highest
    return estimates


def cell_auc(
    maps: Mapping[str, Heatmap], models: Mapping[str, str], truth: Mapping[str, Sequence[Region]]
) -> float:
    """AUC of cells inside against outside the outlines, pooled over slides; NaN if all cells are of one kind.

    Args:
        maps: by slide.
        models: map column by slide.
        truth: outlines by slide; empty for normal slides.
    """
    labels, values = [], []
    for slide_id, heatmap in maps.items():
        grid = heatmap.grid
        mask = rasterize_regions(truth[slide_id], downsample=grid.downsample, shape=grid.shape)
        labels.append(mask[tuple(heatmap.cells.T)])
        values.append(heatmap.values[models[slide_id]])
    inside = np.concatenate(labels)
    if inside.all() or not inside.any():
        return float("nan")
    return auc(inside, np.concatenate(values)).value
