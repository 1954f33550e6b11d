from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from histo_monai.reports.forest import forest
from histo_monai.reports.tables import SplitTable, comparison_report, in_words, number
from tests.reports.whole import assert_nothing_is_cut_off

MODELS = ["random-finetune", "rsp-finetune", "random-paper", "rsp-paper", "color"]
PAIRS = [(first, second) for i, first in enumerate(MODELS) for second in MODELS[i + 1 :]]
VALUES = {"accuracy": [0.70, 0.76, 0.71, 0.78, 0.6], "macro_auc": [0.8, 0.85, 0.8, 0.84, np.nan]}


def split_table(better_than_random=(), paper=np.nan, metrics=("accuracy", "macro_auc"), split="test"):
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
    return SplitTable(split, "8 slides, 300 patches, seed 0", pd.DataFrame(rows), pd.DataFrame(tests))


def lines_of(report, start):
    return [line for line in report.splitlines() if line.startswith(start)]


def test_fine_tuned_rows_stand_above_those_with_consistency_and_the_best_is_bold():
    report = comparison_report("title", [split_table()], ["one seed"])
    rows = [line.split("|")[1].strip() for line in lines_of(report, "| ")][1:6]
    assert rows == ["random fine-tuned", "RSP fine-tuned", "random + CR", "RSP + CR", "color alone"]
    assert "| RSP + CR | **0.780 (0.74 to 0.83)** | 0.840 (0.80 to 0.89) |" in report
    assert "| RSP fine-tuned | 0.760 (0.72 to 0.81) | **0.850 (0.81 to 0.90)** |" in report
    assert "| color alone | 0.600 (0.56 to 0.65) | — |" in report
    assert report.startswith("# title\n\n- one seed\n")


def test_the_page_states_which_method_is_better_than_the_supervised_baseline():
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
    students = next(part for head, part in parts.items() if "Gain of semi-supervised training" in head)
    assert "| RSP + CR | not distinguishable, +0.020 (+0.01 to +0.04), p 0.60 |" in students
    assert "RSP fine-tuned |" not in students
    between = next(part for head, part in parts.items() if head.startswith("Between"))
    assert "RSP + CR against random + CR" in between


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    table = split_table()
    near = table.tests.assign(difference=-0.0004, low=-0.004, high=0.0)
    report = comparison_report("title", [replace(table, tests=near)], [])
    assert "+0.000 (+0.00 to +0.00)" in report
    assert "-0.00" not in report


def test_the_title_of_a_report_without_test_patches_states_it():
    report = comparison_report("title", [split_table(split="validation")], [])
    assert report.startswith("# title, validation only: no test patches\n")


def with_values(table, color, metric="accuracy"):
    of_color = (table.table["model"] == "color") & (table.table["metric"] == metric)
    return replace(table, table=table.table.assign(value=table.table["value"].where(~of_color, color)))


@pytest.mark.parametrize(
    ("color", "numbers"),
    [(0.9, "0.90 against 0.78"), (0.7804, "0.7804 against 0.7800"), (0.784, "0.784 against 0.780")],
)
def test_where_color_is_ahead_the_page_states_it_first(color, numbers):
    report = comparison_report("title", [with_values(split_table(), color)], ["one seed"])
    sentence = f"**Color alone is better than every network: accuracy {numbers}.**"
    assert report.startswith(f"# title\n\n{sentence}\n\n- one seed\n")


def test_where_color_is_not_ahead_the_page_states_nothing():
    other_metric = with_values(split_table(), 0.99, "macro_auc")
    for tables in (
        [split_table()],
        [with_values(split_table(), 0.78)],
        [with_values(split_table(), np.nan)],
        [other_metric],
        [split_table(), with_values(split_table(split="validation"), 0.9)],
    ):
        assert "better than every network" not in comparison_report("title", tables, [])
    slides = split_table(split="test slides")
    without = replace(slides, table=slides.table[slides.table["model"] != "color"])
    assert "better than every network" in comparison_report(
        "title", [without, with_values(split_table(), 0.9)], []
    )


def with_baselines():
    """The table of `split_table`, and two baselines of RSP: one ahead of every network, one not."""
    table = split_table()
    rows, tests = [], []
    for metric in table.metrics:
        for baseline, value in (("rsp-linear", 0.95), ("rsp-paper+color", 0.5)):
            rows.append({"model": baseline, "metric": metric, "value": value, "low": value, "high": value})
            for other in ("rsp-paper", "color"):
                test = {"metric": metric, "first": baseline, "second": other, "difference": 0.1, "low": 0.0}
                tests.append(test | {"high": 0.2, "p_holm": 0.04, "verdict": "better"})
    return replace(
        table,
        table=pd.concat([table.table, pd.DataFrame(rows)], ignore_index=True),
        tests=pd.concat([table.tests, pd.DataFrame(tests)], ignore_index=True),
    )


def test_baselines_have_rows_and_a_section_and_are_no_networks():
    report = comparison_report("title", [with_baselines()], [])
    assert "Color alone is better" not in report
    assert "| RSP frozen, linear | **0.950 (0.95 to 0.95)** |" in report
    tables, about = report.split("Differences are paired")
    assert about.count("Fast baselines train no network") == 1
    assert "train no network" not in comparison_report("title", [split_table()], [])
    parts = {part.splitlines()[0]: part for part in tables.split("### ")}
    baselines = parts.pop("Fast baselines")
    assert (
        "| RSP frozen, linear against RSP + CR | **better**, +0.100 (+0.00 to +0.20), p 0.040 |" in baselines
    )
    assert "| RSP + CR + color against color alone |" in baselines
    rest = "".join(part for head, part in parts.items() if not head.startswith("# title"))
    assert "linear" not in rest
    assert "CR + color" not in rest


def test_the_picture_shows_baselines_too():
    plain, more = forest("title", [split_table()]), forest("title", [with_baselines()])
    assert_nothing_is_cut_off(more)
    assert more.shape[0] > plain.shape[0]
    table = with_baselines()
    long = "pretrained-mean_teacher+color"
    wide = forest("title", [replace(table, table=table.table.replace("rsp-paper+color", long))])
    assert_nothing_is_cut_off(wide)
    assert wide.shape[1] > more.shape[1]


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
