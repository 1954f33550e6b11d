"""Features of slides -> their diagnosis, how good it is, and what it would be without the truth."""

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
"""Of the largest metastasis: over 2 mm; over 0.2 and up to 2 mm."""

MAX_PROBABILITY = "max_probability"
"""The one feature that needs no classifier."""
BY_SEEN = "score_by_seen"


@dataclass(frozen=True)
class Learning:
    """How the classifier of slides learns; see `SlideClassifier.fit`."""

    kernel: Kernel
    C: Sequence[float]
    gamma: Sequence[float]
    folds: int
    seed: int


def diagnose(
    features: pd.DataFrame,
    seen: pd.DataFrame | None,
    is_tumor: NDArray[np.bool_],
    split: pd.Series,
    learning: Learning,
    groups: NDArray[np.object_],
) -> tuple[SlideClassifier, pd.DataFrame]:
    """Teach a classifier by the slides that are not of the test, and score all slides.

    Args:
        features: a row per slide: of maps by models that have not trained on the slide.
        seen: the same, but where a model was trained on a slide, of its own map of it; None where there are none.
        is_tumor: Shape (n,).
        split: of each slide; "test" slides teach nothing.
        groups: Shape (n,), patient of each slide, or the slide itself; a patient's slides share a fold.

    Returns:
        The classifier; and for every slide its `score`, the highest value on the map (`max_probability`), and, with
        `seen` maps, what a classifier taught by them says (`score_by_seen`), which is what the folds spare us.

    Raises:
        InputError: see `SlideClassifier.fit`.
    """
    teaches = (split != "test").to_numpy()
    settings = asdict(learning) | {"groups": groups[teaches]}
    right = SlideClassifier.fit(features[teaches], is_tumor[teaches], **settings)
    scores = {"score": right.scores(features)}
    if seen is not None:
        wrong = SlideClassifier.fit(seen[teaches], is_tumor[teaches], **settings)
        scores[BY_SEEN] = wrong.scores(features)
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
    """AUC on the test slides of classifiers taught by shuffled labels: the mean, and the middle 95 % of them.

    Labels move between patients; `groups` are those of all slides. The control has no bearing on the uncertainty of an
    AUC; it shows what the same machinery finds where there is nothing.
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
    """AUCs of test slides with DeLong's intervals by patient; those of a size are against all normal slides.

    Args:
        is_tumor: Shape (n,).
        sizes: of the largest metastasis, see `SIZES`.
        scores: columns of `diagnose`.
        groups: Shape (n,), patient of each slide, or the slide itself.

    Returns:
        `slide_auc`, `slide_auc_macro` and `slide_auc_micro` where there are such slides, `slide_auc_by_seen` where
        there are such maps, `slide_auc_max_probability`.
    """
    estimates = {"slide_auc": auc(is_tumor, scores["score"], groups=groups)}
    for size in SIZES:
        kept = ~is_tumor | (sizes == size).to_numpy()
        if is_tumor[kept].any():
            estimates[f"slide_auc_{size}"] = auc(is_tumor[kept], scores["score"][kept], groups=groups[kept])
    if BY_SEEN in scores:
        estimates["slide_auc_by_seen"] = auc(is_tumor, scores[BY_SEEN], groups=groups)
    highest = auc(is_tumor, scores[MAX_PROBABILITY], groups=groups)
    estimates[f"slide_auc_{MAX_PROBABILITY}"] = highest
    return estimates


def cell_auc(
    maps: Mapping[str, Heatmap], models: Mapping[str, str], truth: Mapping[str, Sequence[Region]]
) -> float:
    """How well maps tell cells inside the outlines from cells outside, over all cells of all slides together.

    Args:
        maps: by slide.
        models: name of the column to look at, by slide.
        truth: outlines by slide; none where the slide is normal.

    Returns:
        AUC; NaN where all cells are of one kind.
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
