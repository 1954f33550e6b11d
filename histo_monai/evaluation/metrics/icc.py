"""Intraclass correlation, the agreement of raters on common rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from histo_monai.evaluation.metrics import checks
from histo_monai.evaluation.metrics.estimate import Estimate

_NOTHING = 1e-12  # Rounding of 1 + (k - 1) ICC, which is 0 for rows that do not differ.

Form = Literal["ICC1", "ICC2", "ICC3", "ICC1k", "ICC2k", "ICC3k"]


def intraclass_correlation(ratings: ArrayLike, form: Form = "ICC2", confidence: float = 0.95) -> Estimate:
    """Intraclass correlation with its F-based interval.

    * ICC1, ICC(1,1): one-way random; each row has its own raters.
    * ICC2, ICC(2,1): two-way random, absolute agreement, single rater.
    * ICC3, ICC(3,1): two-way mixed, consistency, single rater: a constant offset between raters costs nothing.
    * ICC1k, ICC2k, ICC3k: of the mean of k raters.

    Shrout & Fleiss 1979. Interval of ICC2: Satterthwaite's degrees of freedom as in McGraw & Wong 1996 (and the
    erratum, Psychological Methods 4, 390). Interval of ICC2k: Spearman-Brown of ICC2's.

    The interval assumes independent rows. For several patches per patient it is too narrow; use
    `grouped_bootstrap(lambda r: intraclass_correlation(r).value, (ratings,), patients, seed=0)`.

    Value and limits are 1 where all raters agree on every row, and NaN where all ratings are one number or there is one
    row. Averaged forms are NaN where the rows do not differ.

    Args:
        ratings: Shape (n, k): n rows, k raters, k at least 2; any unit.

    Raises:
        ValueError: the form is unknown, a rating is NaN, or there is no row or one rater.
    """
    if form not in get_args(Form):
        raise ValueError(f"form is {form!r}: expected one of {', '.join(get_args(Form))}")
    table = checks.table("ratings", ratings)
    n, k = table.shape
    if n < 1 or k < 2:
        raise ValueError(f"ratings have {n} rows and {k} raters: expected at least one and two")
    if n == 1 or table.min() == table.max():
        return Estimate(np.nan, np.nan, np.nan, n)
    if (table == table[:, :1]).all():
        return Estimate(1.0, 1.0, 1.0, n)
    squares = _mean_squares(table)
    tail = (1 - confidence) / 2
    value, low, high = _two_way_random(squares, tail) if form[3] == "2" else _from_f(squares, form[3], tail)
    if form.endswith("k"):
        value, low, high = (_averaged(single, k) for single in (value, low, high))
    return Estimate(value, low, high, n)


@dataclass(frozen=True)
class _MeanSquares:
    """Mean squares of rows, raters, error and within rows (two-way analysis of variance without replication)."""

    n: int
    k: int
    rows: float
    raters: float
    error: float
    within: float


def _mean_squares(table: NDArray[np.float64]) -> _MeanSquares:
    n, k = table.shape
    centered = table - table.mean()
    row_effect = centered.mean(axis=1)
    rater_effect = centered.mean(axis=0)
    residual = centered - row_effect[:, None] - rater_effect
    within = float(np.sum((centered - row_effect[:, None]) ** 2))
    return _MeanSquares(
        n=n,
        k=k,
        rows=float(k * np.sum(row_effect**2) / (n - 1)),
        raters=float(n * np.sum(rater_effect**2) / (k - 1)),
        error=float(np.sum(residual**2) / ((n - 1) * (k - 1))),
        within=within / (n * (k - 1)),
    )


def _from_f(squares: _MeanSquares, design: str, tail: float) -> tuple[float, float, float]:
    """ICC1 and ICC3 from one F ratio, without division by the error, which may be zero."""
    n, k = squares.n, squares.k
    noise, noise_df = (squares.within, n * (k - 1)) if design == "1" else (squares.error, (n - 1) * (k - 1))
    shrink = float(stats.f.isf(tail, n - 1, noise_df))
    grow = float(stats.f.isf(tail, noise_df, n - 1))

    def single(rows: float, noise: float) -> float:
        return _ratio(rows - noise, rows + (k - 1) * noise)

    return (
        single(squares.rows, noise),
        single(squares.rows, shrink * noise),
        single(grow * squares.rows, noise),
    )


def _two_way_random(squares: _MeanSquares, tail: float) -> tuple[float, float, float]:
    """ICC2; the raters' variance counts as error, so the denominator's degrees of freedom are approximate."""
    n, k = squares.n, squares.k
    rows, raters, error = squares.rows, squares.raters, squares.error
    value = _ratio(rows - error, rows + (k - 1) * error + k * (raters - error) / n)
    # McGraw & Wong's a and b, both times n (1 - value), which cancels in the degrees of freedom and may be zero.
    by_raters = k * value * raters
    by_error = (n * (1 - value) + k * value * (n - 1)) * error
    freedom = _ratio((by_raters + by_error) ** 2, by_raters**2 / (k - 1) + by_error**2 / ((n - 1) * (k - 1)))
    shrink = float(stats.f.isf(tail, n - 1, freedom))
    grow = float(stats.f.isf(tail, freedom, n - 1))
    noise = k * raters + (k * n - k - n) * error
    low = _ratio(n * (rows - shrink * error), shrink * noise + n * rows)
    high = _ratio(n * (grow * rows - error), noise + n * grow * rows)
    return value, low, high


def _averaged(single: float, k: int) -> float:
    """ICC of the mean of k raters (Spearman-Brown)."""
    denominator = 1 + (k - 1) * single
    return k * single / denominator if denominator > _NOTHING else float("nan")


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")
