from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from histo_monai.reports.site.blocks import Chart, Lines, Pictures
from histo_monai.reports.site.training import of_start, training_section

CURVES = {
    "epoch": [1, 2],
    "lr": [0.1, 0.05],
    "train_loss": [1.0, 0.5],
    "train_used": [0.25, 0.5],
    "validation_loss": [0.9, 0.6],
}


def _of_student(**columns: list[float]) -> tuple[dict[str, Any], list[str]]:
    """Points of each chart by its title, and what is said to be missing."""
    section = training_section(pd.DataFrame(CURVES | columns), None, "a run", "", [])
    charts = {
        block.title: block.spec["data"]["values"] for block in section.blocks if isinstance(block, Chart)
    }
    lines = [
        line
        for block in section.blocks
        if isinstance(block, Lines) and block.look == "missing"
        for line in block.lines
    ]
    return charts, lines


def test_pseudo_labels_have_a_chart_with_used_ones_beside_all() -> None:
    charts, lines = _of_student(
        train_pseudo_label_accuracy=[0.5, 0.625], train_used_pseudo_label_accuracy=[np.nan, 0.75]
    )
    assert charts["Student: pseudo labels"] == [
        {"epoch": 1, "name": "all pseudo labels", "value": 0.5},
        {"epoch": 2, "name": "all pseudo labels", "value": 0.625},
        {"epoch": 2, "name": "pseudo labels that are used", "value": 0.75},
    ]
    assert {row["name"] for row in charts["Student: fractions"]} == {"train: fraction of pseudo labels used"}
    assert lines == []


def test_pseudo_labels_of_scores_have_a_chart_of_their_error() -> None:
    charts, lines = _of_student(train_pseudo_label_absolute_error=[0.25, 0.125])
    assert [row["value"] for row in charts["Student: pseudo labels"]] == [0.25, 0.125]
    assert lines == []


@pytest.mark.parametrize("columns", [{}, {"train_pseudo_label_accuracy": [np.nan, np.nan]}])
def test_the_page_states_where_the_accuracy_of_pseudo_labels_is_unknown(
    columns: dict[str, list[float]],
) -> None:
    charts, lines = _of_student(**columns)
    assert set(charts) == {"Student: losses", "Student: fractions"}
    assert [line.startswith("The accuracy of pseudo labels is unknown: the method") for line in lines] == [
        True
    ]


def test_the_page_of_a_student_without_steps_states_it_and_shows_how_the_student_was_chosen() -> None:
    section = training_section(
        pd.DataFrame({"epoch": [], "lr": [], "validation_loss": []}), None, "a run", "pairs.png", ["kept"]
    )
    lines = [line for block in section.blocks if isinstance(block, Lines) for line in block.lines]
    assert lines == [
        "a run",
        "kept",
        "The student has no training step: its weights are the fine-tuned model's.",
    ]
    assert [block.title for block in section.blocks if isinstance(block, Pictures)] == [
        "Views of unlabeled patches"
    ]


def test_the_weight_of_the_fine_tuned_model_in_a_student_is_reported() -> None:
    assert of_start(0.0) == []
    assert of_start(0.25)[0].startswith("Weight of the fine-tuned model in the student: 25 %")
    assert of_start(1.0)[0].endswith("so the student equals the fine-tuned model.")
