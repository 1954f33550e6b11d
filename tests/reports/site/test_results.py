from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from histo_monai.reports.site.blocks import Chart, Lines
from histo_monai.reports.site.results import Majority, results_section, story
from histo_monai.reports.tables import SplitTable


def _split(**verdicts: str) -> SplitTable:
    values = {"rsp-finetune": 0.7, "rsp-paper": 0.8, "rsp-supervised": 0.75, "color": 0.6, "rsp-linear": 0.9}
    table = pd.DataFrame(
        [
            {"model": name, "metric": "accuracy", "value": value, "low": value - 0.1, "high": value + 0.1}
            | dict.fromkeys(("paper_value", "paper_low", "paper_high"), float("nan"))
            for name, value in values.items()
        ]
    )
    names = list(values)
    tests = pd.DataFrame(
        [
            {
                "metric": "accuracy",
                "first": a,
                "second": b,
                "difference": values[a] - values[b],
                "low": values[a] - values[b] - 0.05,
                "high": values[a] - values[b] + 0.05,
                "p_holm": 0.01,
                "verdict": verdicts.get(f"{a}_{b}".replace("-", "_"), "not distinguishable"),
            }
            for i, a in enumerate(names)
            for b in names[i + 1 :]
        ]
    )
    return SplitTable("test", "8 slides", table, tests)


def test_the_best_network_is_named_first_and_each_verdict_is_that_of_the_test() -> None:
    lines = list(story(_split(rsp_finetune_rsp_paper="worse", rsp_paper_color="better")))
    assert lines[0] == "The best network is RSP + CR: accuracy 0.800 (0.70 to 0.90) on test."
    assert lines[1].startswith("RSP + CR is better than color alone, +0.200 (+0.15 to +0.25)")
    assert (
        lines[2] == "RSP + CR is better than RSP fine-tuned, +0.100 (+0.05 to +0.15), its fine-tuned model."
    )
    assert lines[3].startswith("RSP + CR is not distinguishable from RSP + supervised, +0.050")
    assert len(lines) == 4


def test_what_is_not_known_is_not_called_better() -> None:
    assert not any("better" in line for line in story(_split()))


def test_the_page_of_a_run_without_labels_states_it() -> None:
    section = results_section([], [], "", None)
    assert [block.look for block in section.blocks if isinstance(block, Lines)] == ["missing"]


@pytest.mark.parametrize("warnings", [[], ["one seed"]])
def test_what_not_to_believe_stands_beside_the_story(warnings: list[str]) -> None:
    section = results_section([_split()], warnings, "60 of 600 labels were used.", None)
    looks = [block.look for block in section.blocks if isinstance(block, Lines)]
    assert ("warning" in looks) == bool(warnings)
    values, differences = (block for block in section.blocks if isinstance(block, Chart))
    assert [row["name"] for row in values.spec["data"]["values"]][3] == "color alone"
    assert {row["value"] for row in differences.spec["data"]["values"]} >= {0.1, 0.2, 0.05}


@pytest.mark.parametrize("right", [0.6, 0.8, 0.85])
def test_where_looking_at_nothing_is_as_good_as_any_network_that_comes_first(right: float) -> None:
    (lead, *_) = results_section([_split()], [], "", Majority("normal", right, "test")).blocks
    assert isinstance(lead, Lines)
    first, last = lead.lines[0], lead.lines[-1]
    if right < 0.8:
        assert first.startswith("The best network is RSP + CR")
        assert last == "Predicting the most frequent label, normal, for every patch is correct on 0.600."
    else:
        assert first.startswith(
            "No network exceeds the accuracy of predicting the most frequent label for every patch, normal"
        )
        assert f"{right:.3f}" in first


def test_what_rounds_to_zero_has_no_minus() -> None:
    split = _split()
    split.tests.loc[:, ["difference", "low", "high"]] = -0.0001
    assert not any("-0.0" in line for line in story(split))


def test_the_most_frequent_label_of_patches_is_compared_with_networks_on_these_patches() -> None:
    slides = _split()
    slides.table["metric"] = "slide_auc"
    slides.tests["metric"] = "slide_auc"
    splits = [replace(slides, split="test slides"), replace(_split(), split="validation")]
    (lead, *_) = results_section(splits, [], "", Majority("normal", 0.78, "validation")).blocks
    assert isinstance(lead, Lines)
    assert lead.lines[-1].startswith(
        "Predicting the most frequent label"
    )  # the network's 0.8 on patches is better
    (lead, *_) = results_section(splits, [], "", Majority("normal", 0.82, "validation")).blocks
    assert isinstance(lead, Lines)
    assert lead.lines[0].startswith("No network exceeds")
    (lead, *_) = results_section(splits[:1], [], "", Majority("normal", 0.82, "validation")).blocks
    assert isinstance(lead, Lines)
    assert not any("most frequent" in line for line in lead.lines)
