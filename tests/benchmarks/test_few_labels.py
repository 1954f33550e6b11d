"""`benchmarks/few_labels.py`: means over dataset seeds and label subsets, and differences of what was run together."""

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


def test_a_difference_is_of_the_subsets_that_both_were_run_with(program: ModuleType) -> None:
    """The student's second label subset is far better, and the baseline with equal steps was not run with it."""
    student = {(10, 0): 0.60, (10, 1): 0.90, (11, 0): 0.70, (11, 1): 0.98}
    control = {(10, 0): 0.55, (11, 0): 0.68}
    rows = [
        ("kather", dataset_seed, subset, "accuracy", name, value)
        for name, found in (("student", student), ("random, as many steps", control))
        for (dataset_seed, subset), value in found.items()
    ]
    tables = program.report(pd.DataFrame(rows, columns=program.VALUES))
    assert "| student | 0.750 | 0.840 | 0.795 |" in tables
    assert "| random, as many steps | 0.550 | 0.680 | 0.615 |" in tables
    reach = 12.706 * np.std([0.05, 0.02], ddof=1) / np.sqrt(2)  # Student's t, 97.5 %, one degree of freedom
    line = next(line for line in tables.splitlines() if line.startswith("| student - random"))
    expected = f"+0.035 ({0.035 - reach:+.3f} to {0.035 + reach:+.3f})"
    assert line == f"| student - random, as many steps | {expected} |  |  |"


def test_a_row_without_all_dataset_seeds_has_no_mean(program: ModuleType) -> None:
    rows = [("kather", dataset_seed, 0, "accuracy", "student", 0.8) for dataset_seed in (10, 11, 12)]
    rows += [("kather", dataset_seed, 0, "accuracy", "color", 0.5) for dataset_seed in (10, 11)]
    tables = program.report(pd.DataFrame(rows, columns=program.VALUES))
    assert "| color | 0.500 | 0.500 |  |  |" in tables
    assert "| student - color | +0.300 (+0.300 to +0.300) | above 0 |" in tables


def _values(program: ModuleType, dataset: str, of_models: dict[str, dict[int, float]]) -> pd.DataFrame:
    rows = [
        (dataset, dataset_seed, 0, "accuracy", model, value)
        for model, of_seeds in of_models.items()
        for dataset_seed, value in of_seeds.items()
    ]
    return pd.DataFrame(rows, columns=program.VALUES)


def _cells(program: ModuleType, values: pd.DataFrame, start: str) -> list[str]:
    line = next(line for line in program.report(values).splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")[1:]]


def test_fresh_dataset_seeds_have_columns_apart_from_those_looked_at_before(program: ModuleType) -> None:
    dataset_seeds = {13: 0.9, 14: 0.8, 15: 0.61, 16: 0.62, 17: 0.63}
    values = _values(
        program, "kather", {"student": dataset_seeds, "color": dict.fromkeys(dataset_seeds, 0.6)}
    )
    assert "| difference | fresh, 15 to 17 | | looked at before, 13, 14 | |" in program.report(values)
    fresh, verdict, before, _, _ = _cells(program, values, "| student - color")
    assert verdict == ""  # 0.02 with a standard error of 0.0058 and two degrees of freedom: -0.005 to 0.045
    assert fresh.startswith("+0.020 (-0.005 to +0.045")
    assert before.startswith("+0.250")
    real = values.assign(dataset="lung")
    assert "fresh" not in program.report(real)  # the same patches with every seed


def test_a_model_below_all_labels_is_called_that_though_it_is_within_the_margin(program: ModuleType) -> None:
    of_all = {15: 0.81, 16: 0.811, 17: 0.812}
    models = {"fine-tuned": {15: 0.79, 16: 0.79, 17: 0.79}, "student": dict.fromkeys(of_all, 0.8)}
    values = _values(program, "kather", models | {"all labels, fine-tuned": of_all})
    _, verdict, closed = _cells(program, values, "| student - all labels, fine-tuned")
    assert verdict == "below 0, within 0.02"
    assert closed.startswith("0.48 (0.4")  # 0.010 of 0.021
    assert closed.endswith(", 3 seeds")


def test_a_gap_that_is_none_has_no_fraction(program: ModuleType) -> None:
    models = {"fine-tuned": {15: 0.8, 16: 0.81}, "student": {15: 0.8, 16: 0.8}}
    values = _values(program, "kather", models | {"all labels, fine-tuned": {15: 0.79, 16: 0.8}})
    assert _cells(program, values, "| student - all labels, fine-tuned")[-1] == "no gap"


def test_fiellers_interval_covers_the_ratio_as_often_as_it_says(program: ModuleType) -> None:
    """Five datasets, 2,000 times: gains of 0.01, gaps of 0.05, that go together."""
    intervals = importlib.import_module("intervals")
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        shared = random.normal(size=5)
        gap = 0.05 + 0.01 * shared
        gain = 0.01 + 0.005 * shared + 0.01 * random.normal(size=5)
        ratio, low, high = intervals.ratio_of_means(gain, gap)
        assert ratio == pytest.approx(gain.mean() / gap.mean())
        covered += low < 0.2 < high
    assert 0.935 < covered / 2000 < 0.965


PAGE_NAMES = {
    "simulated Camelyon16": "camelyon16",
    "simulated Kather": "kather",
    "simulated BreastPathQ": "breastpathq",
    "Camelyon16, other laboratory": "camelyon16_shifted",
    "real lung": "lung",
    "real breast": "idc",
}
MEASURES = {"accuracy": "accuracy", "AUC": "macro AUC", "ICC(2,1)": "ICC"}


def _tables(program: ModuleType, root: Path) -> dict[str, dict[str, list[str]]]:
    """Of each dataset and metric, the cells that the command prints: name of the row -> cells."""
    sections = program.report(pd.read_csv(root / "docs/few_labels.csv")).split("## ")[1:]
    lines = {title: text.splitlines() for title, _, text in (part.partition("\n") for part in sections)}
    return {
        title: {
            cells[0]: cells[1:]
            for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in of_title)
        }
        for title, of_title in lines.items()
    }


def test_the_page_has_means_and_differences_of_the_values_beside_it(program: ModuleType, root: Path) -> None:
    tables, page = _tables(program, root), (root / "docs/few_labels.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    of_values = [row for row in rows if row[0] in PAGE_NAMES and row[1] in MEASURES]
    assert len([row for row in of_values if len(row) == 8]) == len(tables)
    assert len(of_values) == len(tables) + len(PAGE_NAMES)
    for name, measure, *cells in of_values:
        table = tables[f"{PAGE_NAMES[name]}, {MEASURES[measure]}"]
        of_fresh, *before = table["student - fine-tuned"][::2]
        is_real = name.startswith("real")
        if len(cells) == 6:
            means = [table[row][-1] for row in ("color", "frozen, linear", "fine-tuned", "student")]
            both = ["", of_fresh] if is_real else [of_fresh, before[0] if len(before) == 2 else ""]
            assert cells == [*means, *both], (name, measure)
            continue
        firsts = ("student - color", "student and color, stacked - color", "student - random, as many steps")
        of_all = table.get("student - all labels, fine-tuned", [""] * 3)[0 if is_real else 2]
        assert cells == [*(table.get(row, [""])[0] for row in firsts), of_all], name
