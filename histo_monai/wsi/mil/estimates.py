"""Metrics of slide predictions with intervals by patient; agreement of attention with lesions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from histo_monai.data.tables.slide_classes import SlideClasses
from histo_monai.evaluation.metrics import Estimate, auc, classification_estimates
from histo_monai.slides.annotations import Region
from histo_monai.wsi.diagnosis.diagnose import cell_auc
from histo_monai.wsi.heatmaps.heatmap import Heatmap

Estimates = dict[str, dict[str, Estimate]]
"""Model or baseline -> metric -> value and interval."""

IN_OUTLINES = "attention_in_outlines"


def slide_estimates(slides: SlideClasses, *, seed: int) -> Estimates:
    """Metrics per model and baseline (`classification_estimates`), with `slide_auc` for two classes.

    `slide_auc` has DeLong's interval by patient. Cross-fitted scores of different folds come from different networks;
    differences in their level lower the AUC.
    """
    labels, several = slides.labels, len(set(slides.rows["label"])) > 1
    estimates: Estimates = {}
    for model, probabilities in slides.predictions.items():
        estimates[model] = classification_estimates(labels, probabilities, slides.groups, seed=seed)
        if len(slides.classes) == 2 and several:
            estimates[model]["slide_auc"] = auc(labels == 1, probabilities[:, 1], groups=slides.groups)
    return estimates


def attention_in_outlines(
    maps: Mapping[str, Heatmap], column: str, truth: Mapping[str, Sequence[Region]]
) -> list[float]:
    """AUC of attention inside against outside the outlines, per slide with both kinds of cells; 0.5 is chance.

    Args:
        maps: by slide.
        truth: all outlines by slide.
    """
    areas = [cell_auc({name: heatmap}, {name: column}, truth) for name, heatmap in maps.items()]
    return [area for area in areas if np.isfinite(area)]
