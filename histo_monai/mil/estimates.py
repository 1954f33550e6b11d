"""How often slides are taken for what they are, with intervals by patient; whether attention lies where lesions are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from histo_monai.mapping.heatmap import Heatmap
from histo_monai.metrics import Estimate, auc, classification_estimates
from histo_monai.slides.annotations import Region, rasterize_regions
from histo_monai.tables.slide_classes import SlideClasses

IN_OUTLINES = "attention_in_outlines"


def slide_estimates(slides: SlideClasses, *, seed: int) -> dict[str, dict[str, Estimate]]:
    """Arm -> metric -> estimate, as `classification_estimates` has them; of two classes `slide_auc` beside them.

    The latter has DeLong's interval. Scores of a fold come from a network of their own: where slides were
    cross-fitted, networks that differ in level cost AUC, which is the price of all labels having taught.

    Args:
        slides: labeled ones.
        seed: of the bootstrap.
    """
    labels, several = slides.labels, len(set(slides.rows["label"])) > 1
    estimates = {}
    for arm, shares in slides.predictions.items():
        estimates[arm] = classification_estimates(labels, shares, slides.groups, seed=seed)
        if len(slides.classes) == 2 and several:
            estimates[arm]["slide_auc"] = auc(labels == 1, shares[:, 1])
    return estimates


def attention_in_outlines(
    maps: Mapping[str, Heatmap], column: str, truth: Mapping[str, Sequence[Region]]
) -> list[float]:
    """For each slide with a lesion: how often a cell inside an outline has more weight than one outside (AUC).

    Args:
        maps: by slide.
        column: of the weights.
        truth: outlines by slide, all of them.

    Returns:
        One AUC for each slide that has cells of both kinds; 0.5 says that attention lies anywhere.
    """
    found = []
    for slide_id, heatmap in maps.items():
        grid = heatmap.grid
        mask = rasterize_regions(truth[slide_id], downsample=grid.downsample, shape=grid.shape)
        inside: NDArray[np.bool_] = mask[tuple(heatmap.cells.T)]
        if inside.any() and not inside.all():
            found.append(auc(inside, heatmap.values[column]).value)
    return found
