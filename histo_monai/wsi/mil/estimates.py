"""How often slides are taken for what they are, with intervals by patient; whether attention lies where lesions are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from histo_monai.data.tables.slide_classes import SlideClasses
from histo_monai.evaluation.metrics import Estimate, auc, classification_estimates
from histo_monai.slides.annotations import Region
from histo_monai.wsi.diagnosis.diagnose import cell_auc
from histo_monai.wsi.heatmaps.heatmap import Heatmap

Estimates = dict[str, dict[str, Estimate]]
"""Name of an arm -> name of a metric -> value and interval."""

IN_OUTLINES = "attention_in_outlines"


def slide_estimates(slides: SlideClasses, *, seed: int) -> Estimates:
    """Arm -> metric -> estimate, as `classification_estimates` has them; of two classes `slide_auc` beside them.

    The latter has DeLong's interval by patient. Scores of a fold come from a network of their own: where slides were
    cross-fitted, networks that differ in level cost AUC, which is the price of all labels having taught.
    """
    labels, several = slides.labels, len(set(slides.rows["label"])) > 1
    estimates: Estimates = {}
    for arm, shares in slides.predictions.items():
        estimates[arm] = classification_estimates(labels, shares, slides.groups, seed=seed)
        if len(slides.classes) == 2 and several:
            estimates[arm]["slide_auc"] = auc(labels == 1, shares[:, 1], groups=slides.groups)
    return estimates


def attention_in_outlines(
    maps: Mapping[str, Heatmap], column: str, truth: Mapping[str, Sequence[Region]]
) -> list[float]:
    """For each slide with a lesion: how often a cell inside an outline has more weight than one outside (AUC).

    Args:
        maps: by slide.
        truth: outlines by slide, all of them.

    Returns:
        One AUC for each slide that has cells of both kinds; 0.5 says that attention lies anywhere.
    """
    areas = [cell_auc({name: heatmap}, {name: column}, truth) for name, heatmap in maps.items()]
    return [area for area in areas if np.isfinite(area)]
