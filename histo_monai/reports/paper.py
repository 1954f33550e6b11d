"""Published numbers of Srinidhi 2022, for comparison with equal experiments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import pandas as pd

from histo_monai.utils.files.csv_values import parse_csv

_METRICS = {
    ("breastpathq", "test", "icc_a"): "icc_a",
    ("breastpathq", "test", "icc_b"): "icc_b",
    ("camelyon16", "validation", "accuracy"): "patch_accuracy",
    ("camelyon16", "test", "slide_auc"): "slide_auc",
    ("kather", "test", "mean_one_versus_rest_accuracy"): "mean_ovr_accuracy",
    ("kather", "test", "weighted_f1"): "weighted_f1",
}
"""(dataset, split, metric) -> published metric; patch accuracy on Camelyon16 is of validation patches."""

_MPPS = {"breastpathq": (0.5, 1.0, 2.0), "camelyon16": (0.25, 0.5, 1.0)}
_CORPUS = {"breastpathq": "breastpathq", "camelyon16": "camelyon16", "kather": "camelyon16"}
_PATCH_PX = 256
_STAGES = {"finetune": "finetune", "paper": "consistency"}
"""Training with labels -> published name."""

_MU = _N_AUG = 7.0


@dataclass(frozen=True)
class PaperNumber:
    """Published number; low and high are NaN without a 95 % interval."""

    value: float
    low: float
    high: float


@functools.cache
def paper_numbers() -> pd.DataFrame:
    """Result tables of Srinidhi 2022.

    Srinidhi, Kim, Chen & Martel, "Self-supervised driven consistency training for annotation efficient histopathology
    image analysis", Medical Image Analysis 75, 2022: BreastPathQ, Camelyon16, Kather, and ablations of mu and n_aug.

    Columns: table, dataset, method, stage (finetune, consistency), alpha, mu, n_aug (ablations only; else missing: 7
    and 7), metric, value, ci_low, ci_high.
    """
    content = resources.files("histo_monai.reports").joinpath("paper.csv").read_bytes()
    return parse_csv(content, na_values=[""])


def is_papers_experiment(
    *,
    source: str,
    dataset: str,
    corpus: str,
    mpps: Sequence[float],
    patch_px: int,
    encoder: str,
    has_weights: bool,
) -> bool:
    """Whether data, µm/px, patch size, pretraining dataset and encoder equal Srinidhi 2022."""
    return (
        source == "raw"
        and _CORPUS.get(dataset) == corpus
        and tuple(mpps) == _MPPS[corpus]
        and patch_px == _PATCH_PX
        and (encoder, has_weights) == ("resnet18", False)
    )


def paper_number(
    dataset: str,
    split: str,
    metric: str,
    *,
    method: str,
    training: str,
    alpha: float,
    mu: float = _MU,
    n_aug: float = _N_AUG,
) -> PaperNumber | None:
    """Published number of a model; None if there is none.

    Args:
        dataset: breastpathq, camelyon16 or kather.
        split: validation or test.
        metric: name in this project.
        method: random, vae, moco or rsp.
        training: finetune, or a semi-supervised method; "paper" is the published one.
        alpha: fraction of the labels.
        mu: unlabeled images per labeled image, of the consistency training.
        n_aug: operations of the strong view, of the consistency training.
    """
    table = paper_numbers()
    printed = table[
        (table["dataset"] == dataset)
        & (table["metric"] == _METRICS.get((dataset, split, metric), ""))
        & (table["method"] == method)
        & (table["stage"] == _STAGES.get(training, ""))
        & ((table["alpha"] - alpha).abs() < 1e-9)
    ]
    if training == "paper":
        printed = printed[(printed["mu"].fillna(_MU) == mu) & (printed["n_aug"].fillna(_N_AUG) == n_aug)]
    if printed.empty:
        return None
    # Main tables come first; ablations repeat some of their numbers.
    first = printed.iloc[0]
    return PaperNumber(*(float(first[name]) for name in ("value", "ci_low", "ci_high")))
