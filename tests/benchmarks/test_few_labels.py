"""`benchmarks/few_labels.py`: means over cohorts and draws, and differences of what was run together."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def program(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benchmarks/few_labels.py`, as a module."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    return importlib.import_module("few_labels")


def test_a_difference_is_of_the_draws_that_both_were_run_with(program: ModuleType) -> None:
    """The student's second draw is far better, and the control arm was not run with it."""
    student = {(10, 0): 0.60, (10, 1): 0.90, (11, 0): 0.70, (11, 1): 0.98}
    control = {(10, 0): 0.55, (11, 0): 0.68}
    rows = [
        ("kather", cohort, draw, "accuracy", name, value)
        for name, found in (("student", student), ("random, as many steps", control))
        for (cohort, draw), value in found.items()
    ]
    tables = program.report(pd.DataFrame(rows, columns=program.VALUES))
    assert "| student | 0.750 | 0.840 | 0.795 |" in tables
    assert "| random, as many steps | 0.550 | 0.680 | 0.615 |" in tables
    reach = 12.706 * np.std([0.05, 0.02], ddof=1) / np.sqrt(2)  # Student's t, 97.5 %, one degree of freedom
    line = next(line for line in tables.splitlines() if line.startswith("| student - random"))
    assert (
        line
        == f"| student - random, as many steps | +0.035 ({0.035 - reach:+.3f} to {0.035 + reach:+.3f}) |  |"
    )


def test_a_row_without_all_cohorts_has_no_mean(program: ModuleType) -> None:
    rows = [("kather", cohort, 0, "accuracy", "student", 0.8) for cohort in (10, 11, 12)]
    rows += [("kather", cohort, 0, "accuracy", "color", 0.5) for cohort in (10, 11)]
    tables = program.report(pd.DataFrame(rows, columns=program.VALUES))
    assert "| color | 0.500 | 0.500 |  |  |" in tables
    assert "| student - color | +0.300 (+0.300 to +0.300) | above 0 |" in tables
