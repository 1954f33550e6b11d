"""Numbers of labels needed and saved, with intervals that may be open."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class LabelsNeeded:
    """Number of labels that a learning curve needs for a score, with a 95 % interval; all three may be open.

    Attributes:
        value: number of labels; 0: "fewer than `fewest`", inf: "more than `most`", NaN: unknown.
        low: lower limit, with 0, inf and NaN as `value`.
        high: upper limit, with 0, inf and NaN as `value`.
        extrapolated: whether the value lies beyond the largest size measured, on a fitted inverse power law.
        reason: basis of the value, or reason of an open value, in one sentence.
        fewest: the smallest number that is stated.
        most: the largest number that is stated.
    """

    value: float
    low: float
    high: float
    extrapolated: bool
    reason: str
    fewest: float
    most: float

    def __str__(self) -> str:
        if np.isnan(self.value):
            return f"unknown: {self.reason}"
        value, low, high = (self._stated(number) for number in (self.value, self.low, self.high))
        if self.low == self.high == self.value and not 0 < self.value < np.inf:
            return value
        return f"{value} ({low} to {high})"

    def _stated(self, number: float) -> str:
        if number <= 0:
            return f"fewer than {self.fewest:,.0f}"
        return f"more than {self.most:,.0f}" if np.isinf(number) else f"{number:,.0f}"


@dataclass(frozen=True)
class LabelsSaved:
    """Labels that the baseline needs for a method's score, relative to the method's labels.

    Attributes:
        needed: labels that the baseline needs.
        num_labels: labels that the method used.
    """

    needed: LabelsNeeded
    num_labels: float

    @property
    def ratio(self) -> float:
        """Labels of the baseline per label of the method; 0, inf and NaN as in `LabelsNeeded`."""
        return self.needed.value / self.num_labels

    @property
    def low(self) -> float:
        """Lower limit of the ratio's interval."""
        return self.needed.low / self.num_labels

    @property
    def high(self) -> float:
        """Upper limit of the ratio's interval."""
        return self.needed.high / self.num_labels

    @property
    def fewest(self) -> float:
        """The smallest ratio that is stated; 0 is below it."""
        return self.needed.fewest / self.num_labels

    @property
    def most(self) -> float:
        """The largest ratio that is stated; inf is above it."""
        return self.needed.most / self.num_labels

    def as_dict(self) -> dict[str, float | bool | str]:
        """Row of `labels_saved.csv`."""
        names = ("value", "low", "high", "fewest", "most")
        needed = {f"needed_{name}": getattr(self.needed, name) for name in names}
        ratios = {f"ratio_{name}": getattr(self, name) for name in names[1:]}
        text = {"extrapolated": self.needed.extrapolated, "reason": self.needed.reason, "text": str(self)}
        return {"num_labels": self.num_labels} | needed | {"ratio": self.ratio} | ratios | text

    def __str__(self) -> str:
        if np.isnan(self.ratio):
            return str(self.needed)
        value, low, high = (self._stated(number) for number in (self.ratio, self.low, self.high))
        if self.low == self.high == self.ratio and not 0 < self.ratio < np.inf:
            return f"{value} times as many"
        return f"{value} ({low} to {high}) times as many"

    def _stated(self, number: float) -> str:
        if number <= 0:
            return f"less than {self.fewest:.3g}"
        return f"more than {self.most:.3g}" if np.isinf(number) else f"{number:.3g}"
