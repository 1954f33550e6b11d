from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from histo_monai.evaluation.comparison.label_counts import LabelsNeeded, LabelsSaved
from histo_monai.reports.site.sweeps.charts import Series, ratios
from histo_monai.reports.site.sweeps.family import COSTS, OPEN, SAVES, surely, verdict

FEWEST, MOST = 60.0, 600.0


def _row(num_labels: float, value: float, low: float, high: float) -> Any:
    """Of labels saved, with what the baseline needs; 0 and infinity stand open."""
    needed = LabelsNeeded(value, low, high, False, "why", FEWEST, MOST)
    return SimpleNamespace(**LabelsSaved(needed, num_labels).as_dict())


@pytest.mark.parametrize(
    ("num_labels", "needed", "expected"),
    [
        (60, (300, 150, 500), SAVES),
        (60, (300, 60.1, 500), OPEN),  # printed as 1
        (60, (300, 0, 500), OPEN),
        (60, (np.inf, 200, np.inf), SAVES),
        (600, (np.inf, np.inf, np.inf), SAVES),  # more than 600, with 600
        (300, (100, 0, 250), COSTS),
        (300, (0, 0, 0), COSTS),
        (60, (0, 0, 0), COSTS),  # fewer than 60, with 60
        (60, (np.nan, np.nan, np.nan), OPEN),
    ],
)
def test_a_saving_is_shown_where_the_whole_interval_as_it_is_printed_lies_above_one(
    num_labels: float, needed: tuple[float, float, float], expected: str
) -> None:
    assert verdict(_row(num_labels, *needed)) == expected


def test_how_sure_a_saving_is_is_the_lower_end_that_is_stated() -> None:
    assert surely(_row(60, 300, 150, 500)) == 2.5
    assert surely(_row(60, np.inf, np.inf, np.inf)) == 10.0
    assert surely(_row(60, np.nan, np.nan, np.nan)) == 0.0


def test_an_open_end_is_an_arrow_at_the_end_that_is_stated_and_has_no_dot() -> None:
    about = {"label": "60 labels, a", "method": "a", "training": "fine-tuned", "text": "more than 10"}
    ends = {"ratio": np.inf, "low": 2.0, "high": np.inf, "fewest": 1.0, "most": 10.0, "extrapolated": False}
    (drawn,) = ratios([about | ends], Series(["a"], ["a"], ["fine-tuned"]))["data"]["values"]
    assert (drawn["low"], drawn["high"]) == (2.0, 10.0)
    assert (drawn["open_low"], drawn["open_high"], drawn["known"]) == (False, True, False)
