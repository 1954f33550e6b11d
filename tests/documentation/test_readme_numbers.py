"""Numbers of README's table of real tissue are those of docs/real.csv, rounded once."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

ROWS = (
    ("glas-classes", "imagenet-64-selected-color-field", "balanced_accuracy"),
    ("glas-classes", "atlas-rsp-moco-1-selected-color-field", "balanced_accuracy"),
    ("glas-classes", "imagenet-64-means", "balanced_accuracy"),
    ("glas-score", "imagenet-64-selected-color-field", "icc"),
    ("glas-score", "atlas-rsp-moco-1-selected-color-field", "icc"),
    ("consep", "imagenet-64-selected-color-field", "icc"),
    ("consep", "atlas-rsp-moco-1-selected-color-field", "icc"),
    ("consep", "color", "icc"),
)
"""Task, model and metric of each row."""
BUDGETS = ("30", "60", "120")


def test_the_table_of_real_tissue_is_the_rounded_csv(root: Path) -> None:
    readme = (root / "README.md").read_text(encoding="utf-8")
    lines = [line for line in readme.splitlines() if re.match(r"\|.*\| .*\.\d\d.* \(", line)]
    keys = ["task", "model", "budget", "metric"]
    figures = pd.read_csv(root / "docs/real.csv", dtype={"budget": str}).set_index(keys)
    for line, (task, model, metric) in zip(lines, ROWS, strict=True):
        cells = line.strip("|").replace("*", "").split("|")[1:]
        for budget, cell in zip(BUDGETS, cells, strict=True):
            row = figures.loc[(task, model, budget, metric), ["value", "low", "high"]]
            assert cell.strip() == "{:.2f} ({:.2f} to {:.2f})".format(*row).replace("0.", "."), line
