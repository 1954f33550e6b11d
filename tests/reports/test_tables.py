import numpy as np
import pandas as pd
import pytest

from histo_monai.reports.forest import forest
from histo_monai.reports.tables import SplitTable, comparison_report, in_words, number
from tests.reports.whole import assert_nothing_is_cut_off

MODELS = ["random-finetune", "rsp-finetune", "random-paper", "rsp-paper", "color_histogram"]
PAIRS = [(first, second) for i, first in enumerate(MODELS) for second in MODELS[i + 1 :]]
VALUES = {"accuracy": [0.70, 0.76, 0.71, 0.78, 0.6], "macro_auc": [0.8, 0.85, 0.8, 0.84, np.nan]}


def split_table(better_than_random=(), paper=np.nan, metrics=("accuracy", "macro_auc")):
    rows = [
        {"model": model, "metric": metric, "value": value, "low": value - 0.04, "high": value + 0.05}
        | {"paper_value": paper, "paper_low": np.nan, "paper_high": np.nan}
        for metric in metrics
        for model, value in zip(MODELS, VALUES[metric], strict=True)
    ]
    tests = []
    for metric in metrics:
        of = dict(zip(MODELS, VALUES[metric], strict=True))
        for first, second in PAIRS:
            apart = first == "random-finetune" and second in better_than_random
            verdict = "worse" if apart else "not distinguishable"
            row = {"metric": metric, "first": first, "second": second, "difference": of[first] - of[second]}
            ends = {"low": of[first] - of[second] - 0.02, "high": of[first] - of[second] + 0.01}
            tests.append(row | ends | {"p_holm": 0.0123 if apart else 0.6, "verdict": verdict})
    return SplitTable("test", "8 slides, 300 patches, seed 0", pd.DataFrame(rows), pd.DataFrame(tests))


def lines_of(report, start):
    return [line for line in report.splitlines() if line.startswith(start)]


def test_fine_tuned_rows_stand_above_those_with_consistency_and_the_best_is_bold():
    report = comparison_report("title", [split_table()], ["one seed"])
    rows = [line.split("|")[1].strip() for line in lines_of(report, "| ")][1:6]
    assert rows == ["random fine-tuned", "RSP fine-tuned", "random + CR", "RSP + CR", "color histogram"]
    assert "| RSP + CR | **0.780 (0.74 to 0.83)** | 0.840 (0.80 to 0.89) |" in report
    assert "| RSP fine-tuned | 0.760 (0.72 to 0.81) | **0.850 (0.81 to 0.90)** |" in report
    assert "| color histogram | 0.600 (0.56 to 0.65) | — |" in report
    assert report.startswith("# title\n\n- one seed\n")


def test_which_method_is_better_than_the_supervised_baseline_is_said_in_words():
    report = comparison_report("title", [split_table(["rsp-paper", "rsp-finetune"])], [])
    sentence = next(line for line in lines_of(report, "- **accuracy**"))
    assert sentence == "- **accuracy** — better: RSP fine-tuned, RSP + CR; not distinguishable: random + CR."
    # The test was of random against RSP: the difference is turned round, its interval with it.
    assert "| RSP + CR | **better**, +0.080 (+0.07 to +0.10), p 0.012 |" in report


def test_every_network_is_set_against_color_and_every_student_against_its_own_teacher():
    report = comparison_report("title", [split_table()], [])
    parts = {part.splitlines()[0]: part for part in report.split("### ")}
    against_color = next(part for head, part in parts.items() if "color alone" in head)
    assert all(f"| {in_words(model)} |" in against_color for model in MODELS[:-1])
    students = next(part for head, part in parts.items() if "semi-supervised training adds" in head)
    assert "| RSP + CR | not distinguishable, +0.020 (+0.01 to +0.04), p 0.60 |" in students
    assert "RSP fine-tuned |" not in students
    between = next(part for head, part in parts.items() if head.startswith("Between"))
    assert "RSP + CR against random + CR" in between


def test_the_papers_number_stands_beside_ours_where_it_has_one():
    beside = comparison_report("title", [split_table(paper=0.701)], [])
    assert "| accuracy | accuracy, paper |" in beside
    assert "| RSP + CR | **0.780 (0.74 to 0.83)** | 0.701 |" in beside
    assert "paper" not in comparison_report("title", [split_table()], [])


def test_one_versus_rest_accuracy_of_two_classes_is_not_shown_twice():
    table = split_table(metrics=("accuracy",))
    twice = table.table.assign(metric="mean_one_versus_rest_accuracy")
    both = SplitTable("test", "", pd.concat([table.table, twice]), table.tests)
    assert both.metrics == ["accuracy"]
    other = SplitTable("test", "", pd.concat([table.table, twice.assign(value=0.9)]), table.tests)
    assert len(other.metrics) == 2


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.7777, 0.7, 0.85), "0.778 (0.70 to 0.85)"),
        ((0.5, np.nan, np.nan), "0.500"),
        ((np.nan, 0.1, 0.2), "—"),
    ],
)
def test_unknown_ends_and_values_are_not_made_up(numbers, text):
    assert number(*numbers) == text


@pytest.mark.parametrize("paper", [np.nan, 0.7])
def test_the_picture_is_drawn_whole(paper):
    picture = forest("simulated kather: alpha 0.1", [split_table(paper=paper), split_table(paper=paper)])
    assert_nothing_is_cut_off(picture)
    assert picture.shape[0] > 300
    assert picture.shape[1] > 600
