"""Tables of a family of experiments, the only input of its page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.evaluation.comparison.rows import FINETUNE, SUPERVISED, Row
from histo_monai.reports.site.sweeps.charts import Series
from histo_monai.reports.tables import METRICS, in_words

SAVES, COSTS, OPEN = "saves", "costs", "open"
"""Verdicts of a ratio's interval: above 1, below 1, or neither."""

_METHODS = ("random", "vae", "moco", "rsp", "rsp_moco", "dino")
"""Methods in color order; others follow alphabetically."""
_OF_RATERS = {f"icc_{rater.lower()}": f"ICC(2,1) with pathologist {rater}" for rater in "AB"}


@dataclass(frozen=True)
class OfMetric:
    """Data of one metric of a family, for students of one mu and n_aug.

    Attributes:
        metric: name.
        points: rows of `points.csv`.
        runs: rows of `runs.csv`.
        saved: rows of `labels_saved.csv`; empty without the supervised baseline.
        laws: rows of `power_laws.csv`.
    """

    metric: str
    points: pd.DataFrame
    runs: pd.DataFrame
    saved: pd.DataFrame
    laws: pd.DataFrame

    @property
    def name(self) -> str:
        """Name in words, inside a sentence."""
        return (METRICS | _OF_RATERS).get(self.metric, self.metric)

    @property
    def baseline(self) -> pd.DataFrame:
        """Points of the supervised baseline."""
        own = self.points["method"].eq(SUPERVISED.method) & self.points["training"].eq(SUPERVISED.training)
        return self.points[own]

    @property
    def has_ratios(self) -> bool:
        """Whether the baseline has several numbers of labels, so that ratios exist."""
        return bool(self.baseline["num_labels"].nunique() > 1)


@dataclass(frozen=True)
class FamilyTables:
    """Tables of experiments that differ only in swept params.

    Attributes:
        name: of the family.
        differences: from the first family of the dataset; empty for the first.
        setting: mu and n_aug of the students in the learning curves.
        points: rows of `points.csv`.
        runs: of `runs.csv`.
        labels_saved: of `labels_saved.csv`.
        labels_needed: of `labels_needed.csv`.
        power_laws: of `power_laws.csv`.
    """

    name: str
    differences: str
    setting: tuple[float, float]
    points: pd.DataFrame
    runs: pd.DataFrame
    labels_saved: pd.DataFrame
    labels_needed: pd.DataFrame
    power_laws: pd.DataFrame

    @property
    def metrics(self) -> list[str]:
        """Metrics, the main one first."""
        return list(dict.fromkeys(self.points["metric"]))

    @property
    def split(self) -> str:
        """Split of the measured patches."""
        return str(self.points["split"].iloc[0])

    @property
    def series(self) -> Series:
        """All models in words, in color order."""
        models = set(zip(self.points["method"], self.points["training"], strict=True))
        methods, trainings = ({model[i] for model in models} for i in range(2))
        colors = [*_METHODS, *sorted(methods - {*_METHODS})]
        first = sorted(trainings, key=lambda training: (training != FINETUNE, training))
        pairs = [
            (method, training) for method in colors for training in first if (method, training) in models
        ]
        return Series(
            [in_words(Row(*pair).id) for pair in pairs],
            list(dict.fromkeys(in_words(method) for method, _ in pairs)),
            [training_in_words(training) for training in first],
        )

    def of(self, metric: str) -> OfMetric:
        """Data of a metric."""
        parts = (
            self._of_setting(self.points),
            self._of_setting(self.runs),
            self.labels_saved,
            self.power_laws,
        )
        return OfMetric(metric, *(part[part["metric"] == metric] if len(part) else part for part in parts))

    def _of_setting(self, table: pd.DataFrame) -> pd.DataFrame:
        mu, n_aug = self.setting
        of_setting = table["mu"].eq(mu) & table["n_aug"].eq(n_aug)
        return table[table["training"].eq(FINETUNE) | of_setting]


def name_of(row: Any) -> str:
    """Model in words, from a row with `method` and `training`."""
    return in_words(Row(row.method, row.training).id)


def training_in_words(training: str) -> str:
    """ "finetune" -> "fine-tuned"; a student by the name of its method."""
    return in_words(Row("", training).id).lstrip(" +")


def looks_of(row: Any) -> dict[str, str]:
    """Columns of a model for charts: `name`, `method`, `training`, in words."""
    training = training_in_words(row.training)
    return {"name": name_of(row), "method": in_words(row.method), "training": training}


def verdict(row: Any) -> str:
    """`SAVES` if a ratio's interval is above 1, `COSTS` if below, else `OPEN`.

    Open ends mean "more than `ratio_most`" or "less than `ratio_fewest`"; other ends count as printed, with three
    digits.
    """
    if np.isnan(row.ratio):
        return OPEN
    low, high = (float(f"{end:.3g}") for end in (row.ratio_low, row.ratio_high))
    if low > 1 and (np.isfinite(low) or row.ratio_most >= 1):
        return SAVES
    if high < 1 and (high > 0 or row.ratio_fewest <= 1):
        return COSTS
    return OPEN


def surely(row: Any) -> float:
    """Lower end of a ratio's interval; 0 if unknown."""
    return 0.0 if np.isnan(row.ratio) else float(min(row.ratio_low, row.ratio_most))
