"""Intervals over independent datasets, as cells of the tables of `few_labels.py`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student_t


def numbers_in_words(numbers: Sequence[int]) -> str:
    """ "15 to 18" for these in a row, "10, 12" for others."""
    if len(numbers) > 2 and list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def difference_cells(
    of_each: pd.Series, dataset_seeds: Sequence[int], margin: float | None
) -> tuple[str, str]:
    """Mean with its interval, and where that lies, as cells of a table; both empty for fewer than two seeds.

    Args:
        of_each: a difference, by dataset seed.
        dataset_seeds: seeds of the column.
        margin: of non-inferiority; None where there is none.
    """
    values = of_each[of_each.index.isin(dataset_seeds)].to_numpy()
    if len(values) < 2:
        return "", ""
    mean, low, high = interval(values)
    verdicts = ["above 0"] * (low > 0) + ["below 0"] * (high < 0)
    if margin is not None and low > -margin:
        verdicts.append(f"within {margin:g}")
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})", ", ".join(verdicts)


def gap_closed(table: pd.DataFrame) -> str:
    """Fraction of the gap from a start to all labels that a student closes, with its interval, as a cell of a table.

    Args:
        table: columns start, student and all labels; a row for each dataset with all three values.
    """
    if len(table) < 2:
        return ""
    start, student, all_labels = table.to_numpy(np.float64).T
    fraction, low, high = ratio_of_means(student - start, all_labels - start)
    bounds = "no bounds" if np.isnan(low) else f"{low:.2f} to {high:.2f}"
    return f"{fraction:.2f} ({bounds}), {len(table)} seeds" if fraction == fraction else "no gap"


def ratio_of_means(
    numerator: NDArray[np.float64], denominator: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Ratio of the means of paired values, and its 95 % interval after Fieller 1954 with Student's t.

    Returns:
        All NaN where the mean of the denominator is not above 0; the ends NaN where its interval holds 0.
    """
    num = len(numerator)
    top, bottom = float(numerator.mean()), float(denominator.mean())
    if bottom <= 0:
        return np.nan, np.nan, np.nan
    (top_var, both), (_, bottom_var) = np.cov(numerator, denominator) / num
    t2 = float(student_t.ppf(0.975, num - 1)) ** 2
    a, b, c = bottom**2 - t2 * bottom_var, top * bottom - t2 * both, top**2 - t2 * top_var
    if a <= 0:
        return top / bottom, np.nan, np.nan
    reach = max(b * b - a * c, 0.0) ** 0.5
    return top / bottom, (b - reach) / a, (b + reach) / a


def interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean of independent values, and the 95 % interval of Student's t; at least two."""
    mean, spread = float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))
    reach = float(student_t.ppf(0.975, len(values) - 1)) * spread
    return mean, mean - reach, mean + reach
