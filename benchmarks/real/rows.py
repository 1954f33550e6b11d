"""Figures as rows of a CSV and of tables in Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MINUS = " - "
_NAMES = {"balanced_accuracy": "balanced accuracy", "auc": "AUC", "icc": "ICC(2,1)"}


class Figure(NamedTuple):
    """A row of the CSV, with the names of its columns; `model` is a name, or two names with `MINUS` between them.

    Attributes:
        budget: number of labels, or "all".
        low: end of the 95 % interval; NaN without an interval, as `high`.
    """

    task: str
    model: str
    budget: str
    metric: str
    value: float
    low: float
    high: float
    num_patients: int
    num_subsets: int


def write_csv(path: Path, figures: Sequence[Figure]) -> None:
    """One row a figure; an interval that is not there is empty."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Figure._fields)
        for figure in figures:
            writer.writerow(["" if cell != cell else cell for cell in figure])


def read_csv(path: Path) -> list[Figure]:
    """Figures that `write_csv` wrote."""
    with path.open(newline="") as file:
        return [
            Figure(
                row["task"],
                row["model"],
                row["budget"],
                row["metric"],
                float(row["value"]),
                float(row["low"] or "nan"),
                float(row["high"] or "nan"),
                int(row["num_patients"]),
                int(row["num_subsets"]),
            )
            for row in csv.DictReader(file)
        ]


def table_rows(figures: Sequence[Figure], budgets: Sequence[str]) -> list[str]:
    """Rows in Markdown of one task and metric: metric, model, and value with interval for each budget."""
    rows = []
    for model in dict.fromkeys(figure.model for figure in figures):
        cells = {figure.budget: _cell(figure) for figure in figures if figure.model == model}
        values = " | ".join(cells.get(budget, "") for budget in budgets)
        rows.append(f"| {_NAMES[figures[0].metric]} | {model.replace(MINUS, ' − ')} | {values} |")
    return rows


def _cell(figure: Figure) -> str:
    sign = "+" if MINUS in figure.model else ""
    value = f"{figure.value:{sign}.3f}"
    return (
        value if figure.low != figure.low else f"{value} ({figure.low:{sign}.3f} to {figure.high:{sign}.3f})"
    )
