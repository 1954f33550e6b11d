"""Values with intervals, and paired tests, of several models with several runs on common rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from histo_monai.evaluation.comparison.macro_delong import influence_spreads, macro_auc_influence
from histo_monai.evaluation.comparison.multiplicity import holm
from histo_monai.evaluation.comparison.paired import (
    Spread,
    by_encoder,
    effective_groups,
    mcnemar_p,
    replicate_variance,
    seed_mean,
    spread_mean,
)
from histo_monai.evaluation.comparison.replicates import metric_replicates
from histo_monai.evaluation.metrics.bootstrap import Resampling
from histo_monai.evaluation.metrics.estimate import Estimate
from histo_monai.evaluation.metrics.icc import intraclass_correlation

BETTER, WORSE, ALIKE, UNTESTED = "better", "worse", "not distinguishable", "untested"
VERDICTS = (BETTER, WORSE, ALIKE, UNTESTED)
"""Verdicts on the first model against the second. "untested": no variance is known (one patient)."""
LEVEL = 0.05

Pair = tuple[str, str]
"""Names of two models."""
ALL = "all pairs"

_FROM_DECISIONS = ("accuracy", "mean_one_versus_rest_accuracy")
"""Metrics that are linear in the number of right rows."""


@dataclass(frozen=True)
class ModelValue:
    """A metric of a model.

    Attributes:
        estimate: mean over runs with its 95 % interval; n groups, or rows where the interval is over rows.
        seed_sd: standard deviation over encoders, or over seeds of one encoder; NaN for one run.
    """

    model: str
    metric: str
    estimate: Estimate
    seed_sd: float


@dataclass(frozen=True)
class PairedTest:
    """A metric of one model against another on common rows and seeds.

    Attributes:
        difference: first minus second, mean over seeds, with its 95 % interval (not adjusted); n groups.
        p: two-tailed; NaN without a test.
        p_holm: adjusted for all pairs of its family and metric.
        test: "bootstrap", "DeLong" or "McNemar".
        verdict: of `VERDICTS`, by the adjusted p at 0.05.
        family: name of the pairs of the adjustment.
    """

    metric: str
    first: str
    second: str
    difference: Estimate
    p: float
    p_holm: float
    test: str
    verdict: str
    family: str


@dataclass(frozen=True)
class Comparison:
    """Comparison of models: `values` by metric and model, `tests` by metric, family and pair."""

    values: list[ModelValue]
    tests: list[PairedTest]


@dataclass(frozen=True)
class _Seeds:
    """One metric of one model over its encoders or seeds (`by_encoder`).

    Attributes:
        values: Shape (S,).
        replicates: Shape (B,), means over seeds.
        influence: Shape (N,), mean over seeds; of macro AUC only.
        right: Shape (N,), bool, of the only seed; of metrics of decisions only.
    """

    values: NDArray[np.float64]
    replicates: NDArray[np.float64]
    influence: NDArray[np.float64] | None = None
    right: NDArray[np.bool_] | None = None


def compare_models(
    references: Mapping[str, ArrayLike],
    predictions: Mapping[str, Sequence[ArrayLike]],
    groups: ArrayLike | None,
    *,
    seed: int,
    num_replicates: int = 2000,
    families: Mapping[str, Sequence[Pair]] | None = None,
    encoders: Sequence[int] | None = None,
) -> Comparison:
    """Every metric of every model with its interval, and paired tests of all pairs or of families of pairs.

    All models have one resampling of the groups, and equal seeds are paired. For runs of several encoders, means of
    each encoder's runs replace the seeds (`by_encoder`), so that intervals and tests include variation between
    pretrainings. Tests are t tests of the mean difference over seeds (`spread_mean`). Its variance over groups is the
    bootstrap's; for macro AUC, DeLong's and Obuchowski's (`influence_spreads`). For one seed and independent rows,
    accuracy has McNemar's exact p and the t interval. Holm's adjustment is over the pairs of one metric and one family.

    Intervals of one model: for one seed as in `classification_estimates` and `score_estimates` (percentiles of the
    bootstrap; ICC by its F distribution, which assumes independent rows). For several seeds: the t interval over groups
    and seeds, clipped to the metric's range.

    Args:
        references: suffix of the metrics' names -> shape (N,): {"": classes} or {"": scores}, or several raters
            {"_a": scores, "_b": scores}.
        predictions: model name -> for each seed, shape (N, K), probabilities, or (N,), scores.
        groups: Shape (N,), patient or slide of each row; None: rows are independent.
        families: name -> pairs of models, each family with its own adjustment; None: all pairs are one family, `ALL`.
        encoders: pretraining seed of each seed's run; None: one encoder.

    Raises:
        ValueError: models differ in the number of seeds, there is not one encoder for each, or rows do not fit
            `metric_replicates`.
    """
    if families is None:
        families = {ALL: list(combinations(predictions, 2))}
    if len({len(seeds) for seeds in predictions.values()}) != 1:
        numbers = ", ".join(f"{name} {len(seeds)}" for name, seeds in predictions.items())
        raise ValueError(f"models have different numbers of seeds: {numbers}")
    num_rows = len(np.asarray(next(iter(references.values()))))
    resampling = Resampling(num_rows, groups, seed=seed, num_replicates=num_replicates)
    values: list[ModelValue] = []
    tests: list[PairedTest] = []
    for suffix, reference in references.items():
        by_model = {
            name: _over_seeds(reference, seeds, encoders or [0] * len(seeds), resampling)
            for name, seeds in predictions.items()
        }
        for metric in next(iter(by_model.values())):
            models = {name: metrics[metric] for name, metrics in by_model.items()}
            values += [
                ModelValue(
                    name, metric + suffix, *_value(metric, reference, predictions[name], of_seeds, resampling)
                )
                for name, of_seeds in models.items()
            ]
            for family, pairs in families.items():
                tests += _tests(metric + suffix, reference, models, resampling, family, pairs)
    return Comparison(values, tests)


def _over_seeds(
    reference: ArrayLike, seeds: Sequence[ArrayLike], encoders: Sequence[int], resampling: Resampling
) -> dict[str, _Seeds]:
    runs = [metric_replicates(reference, predictions, resampling) for predictions in seeds]
    by_metric = {
        metric: _Seeds(
            by_encoder(np.array([replicates[metric][0] for replicates in runs]), encoders),
            by_encoder(np.array([replicates[metric][1] for replicates in runs]), encoders).mean(axis=0),
        )
        for metric in runs[0]
    }
    if "macro_auc" in by_metric:
        areas = [macro_auc_influence(reference, predictions) for predictions in seeds]
        influence = by_encoder(np.array([area.influence for area in areas]), encoders).mean(axis=0)
        by_metric["macro_auc"] = _Seeds(
            by_metric["macro_auc"].values, by_metric["macro_auc"].replicates, influence
        )
    if len(seeds) == 1 and resampling.num_groups == resampling.num_rows:
        right = np.asarray(seeds[0]).argmax(axis=-1) == np.asarray(reference)
        for metric in _FROM_DECISIONS:
            if metric in by_metric:
                by_metric[metric] = _Seeds(
                    by_metric[metric].values, by_metric[metric].replicates, right=right
                )
    return by_metric


def _value(
    metric: str, reference: ArrayLike, predictions: Sequence[ArrayLike], seeds: _Seeds, resampling: Resampling
) -> tuple[Estimate, float]:
    """Mean over seeds with its interval, and the standard deviation over seeds."""
    if len(predictions) == 1 and metric == "icc":
        ratings = np.column_stack([np.asarray(reference), np.asarray(predictions[0])])
        return intraclass_correlation(ratings), float("nan")
    if len(predictions) == 1:
        return resampling.estimate(float(seeds.values[0]), seeds.replicates), float("nan")
    return estimate_over_seeds(metric, seeds.values, seeds.replicates, resampling)


def estimate_over_seeds(
    metric: str, values: NDArray[np.float64], replicates: NDArray[np.float64], resampling: Resampling
) -> tuple[Estimate, float]:
    """Mean over seeds with its t interval over groups and seeds (`seed_mean`), clipped to the metric's range.

    Args:
        metric: name in `metric_replicates`.
        values: Shape (S,), of each seed.
        replicates: Shape (B,), means over the seeds.

    Returns:
        The estimate, n groups; and the standard deviation over seeds, NaN for one.
    """
    num_groups = effective_groups(resampling.group_of_row)
    mean = seed_mean(values, replicate_variance(replicates, num_groups), num_groups)
    low, high = np.clip([mean.low, mean.high], -1.0 if metric == "icc" else 0.0, 1.0)  # NaN stays NaN.
    return Estimate(mean.value, float(low), float(high), resampling.num_groups), mean.seed_sd


def _tests(
    metric: str,
    reference: ArrayLike,
    models: Mapping[str, _Seeds],
    resampling: Resampling,
    family: str,
    pairs: Sequence[Pair],
) -> list[PairedTest]:
    """Tests of the pairs of one family for one metric."""
    made = [_difference(reference, models[first], models[second], resampling) for first, second in pairs]
    adjusted = holm([p for _, p, _ in made])
    return [
        PairedTest(
            metric, *pair, difference, p, float(p_holm), test, verdict(difference.value, p_holm), family
        )
        for pair, (difference, p, test), p_holm in zip(pairs, made, adjusted, strict=True)
    ]


def _difference(
    reference: ArrayLike, first: _Seeds, second: _Seeds, resampling: Resampling
) -> tuple[Estimate, float, str]:
    """First minus second with its interval, p, and the name of the test."""
    if first.influence is not None and second.influence is not None:
        influence = first.influence - second.influence
        test, spreads = "DeLong", influence_spreads(reference, influence, resampling.group_of_row)
    else:
        num_groups = effective_groups(resampling.group_of_row)
        variance = replicate_variance(first.replicates - second.replicates, num_groups)
        test, spreads = "bootstrap", [Spread(variance, num_groups - 1)]
    mean = spread_mean(first.values - second.values, spreads)
    p = mean.p
    if first.right is not None and second.right is not None:
        test, p = "McNemar", mcnemar_p(first.right, second.right)
    return Estimate(mean.value, mean.low, mean.high, resampling.num_groups), p, test


def verdict(difference: float, p_holm: float) -> str:
    """Verdict from an adjusted p and the sign of the difference."""
    if np.isnan(p_holm):
        return UNTESTED
    if p_holm > LEVEL or difference == 0:
        return ALIKE
    return BETTER if difference > 0 else WORSE
