"""The page that the command `curves` writes beside its tables, in a real browser, from disk."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from histo_monai.pipeline.cli import main
from tests.browsers import watched
from tests.folders import NewFolder
from tests.sweeps import MadeUp, list_experiments, sweep

pytestmark = pytest.mark.slow

SEVERAL, ONE, WORSE = "several", "one", "worse"


def _page(folder: Path, root: Path, done: Sequence[MadeUp]) -> Path:
    """What the command leaves of these experiments."""
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["compare"]["num_replicates"] = 400
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        list_experiments(patch, *done, failed=["focal-bice"], waiting=["next-one"])
        assert main(["curves"]) == 0
    return folder / "data/curves"


@pytest.fixture(scope="module")
def pages(root: Path, module_folder: NewFolder) -> dict[str, Path]:
    """Folders of a sweep over four fractions, of one, and of a pretraining that costs labels."""
    tree = yaml.safe_load((root / "params.yaml").read_text())
    tree |= {
        "pretraining_methods": ["random", "rsp"],
        "semisupervised_methods": ["paper"],
        "training_seeds": [0, 1],
        "mu": 7,
    }
    made = {
        SEVERAL: sweep(tree, run_noise=0.01),
        ONE: [MadeUp("only", tree | {"alpha": 0.1})],
        WORSE: sweep(tree, mus=[1], gains={"random": 0.0, "rsp": -0.12}, step=-0.02),
    }
    return {name: _page(module_folder(name), root, done) for name, done in made.items()}


def _text(folder: Path) -> str:
    return (folder / "index.html").read_text(encoding="utf-8")


def _lead(folder: Path) -> list[str]:
    """Lines of the answer."""
    found = re.search(r'<ul class="lines lead">(.*?)</ul>', _text(folder), re.DOTALL)
    assert found
    return re.findall(r"<li>(.*?)</li>", found[1], re.DOTALL)


def _specs(folder: Path) -> list[Any]:
    found = re.search(r'id="chart-data">(.*?)</script>', _text(folder), re.DOTALL)
    assert found
    specs: list[Any] = json.loads(found[1])
    return specs


def test_the_answer_is_a_row_of_labels_saved_whose_interval_lies_above_one(pages: dict[str, Path]) -> None:
    saved = pd.read_csv(pages[SEVERAL] / "labels_saved.csv").query("metric == 'accuracy'")
    sure = saved[(saved["ratio_low"] > 1.01) & ~saved["extrapolated"]]
    row = saved.loc[sure[["ratio_low", "ratio_most"]].min(axis=1).idxmax()]
    name = {"finetune": "fine-tuned", "paper": "+ CR"}[row["training"]]
    assert _lead(pages[SEVERAL])[0] == (
        f"RSP {name} saves labels: with {row['num_labels']:.0f} labels ({100 * row['alpha']:g} % of all) its "
        f"accuracy is {row['value']:.3f}; random fine-tuned, the supervised baseline, needs {row['text']}."
    )


def test_every_number_of_the_tables_is_that_of_the_files(pages: dict[str, Path]) -> None:
    text = _text(pages[SEVERAL])
    points = pd.read_csv(pages[SEVERAL] / "points.csv")
    for row in points.itertuples():
        assert f">{row.value:z.3f} ({row.low:z.2f} to {row.high:z.2f})</td>" in text
    for name in ("labels_saved", "labels_needed"):
        for needed in pd.read_csv(pages[SEVERAL] / f"{name}.csv")["text"]:
            assert f">{needed}</td>" in text


def test_charts_draw_what_the_files_hold_and_each_run(pages: dict[str, Path]) -> None:
    folder = pages[SEVERAL]
    curve, ratios = _specs(folder)[:2]
    points = pd.read_csv(folder / "points.csv").query("metric == 'accuracy' and (mu.isna() or mu == 3)")
    drawn = pd.DataFrame(curve["data"]["values"])
    for name in ("num_labels", "value", "low", "high"):
        np.testing.assert_allclose(sorted(drawn[name]), sorted(points[name]), rtol=1e-4)
    runs = pd.read_csv(folder / "runs.csv").query("metric == 'accuracy' and (mu.isna() or mu == 3)")
    own = [layer["data"]["values"] for layer in curve["layer"] if "data" in layer]
    assert max(map(len, own)) >= len(runs) == 2 * len(points)  # each has two seeds
    means = runs.groupby(["method", "training", "num_labels"])["value"].mean()
    expected = points.set_index(["method", "training", "num_labels"])["value"]
    np.testing.assert_allclose(means, expected.reindex(means.index), rtol=1e-4)
    saved = pd.read_csv(folder / "labels_saved.csv").query("metric == 'accuracy'")
    shown = {row["text"]: row["ratio"] for row in ratios["data"]["values"]}
    for row in saved[np.isfinite(saved["ratio"]) & (saved["ratio"] > 0)].itertuples():
        assert shown[row.text] == pytest.approx(row.ratio, rel=1e-4)


def test_students_are_drawn_against_mu_at_each_fraction_of_the_labels(pages: dict[str, Path]) -> None:
    folder = pages[SEVERAL]
    points = pd.read_csv(folder / "points.csv").query("metric == 'accuracy'")
    charts = [spec for spec in _specs(folder) if any("mu" in row for row in spec["data"]["values"])]
    assert len(charts) == points["alpha"].nunique() == 4
    for spec, (_, same) in zip(charts, points.groupby("alpha"), strict=True):
        students, finetuned = same[same["training"] == "paper"], same[same["training"] == "finetune"]
        for name in ("mu", "value", "low", "high"):
            shown = sorted(row[name] for row in spec["data"]["values"])
            np.testing.assert_allclose(shown, sorted(students[name]), rtol=1e-4)
        base = sorted(row["value"] for row in spec["layer"][0]["data"]["values"])
        np.testing.assert_allclose(base, sorted(finetuned["value"]), rtol=1e-4)
    assert "against n_aug" not in _text(folder)  # there is but one


def test_a_law_is_drawn_to_where_an_answer_is_read_off_it(pages: dict[str, Path]) -> None:
    saved = pd.read_csv(pages[SEVERAL] / "labels_saved.csv").query("metric == 'accuracy' and extrapolated")
    assert len(saved)
    (law, *_) = _specs(pages[SEVERAL])[0]["layer"]
    dots = pd.DataFrame(law["data"]["values"]).query("name == 'random fine-tuned'")
    for row in saved.itertuples():
        read = np.interp(np.log(row.needed_value), np.log(dots["num_labels"]), dots["value"])
        assert read == pytest.approx(row.value, abs=2e-3)


def test_with_one_number_of_labels_the_page_states_that_there_is_no_curve(pages: dict[str, Path]) -> None:
    sentences = _lead(pages[ONE])
    assert sentences[0].startswith("Labels saved are unknown: random fine-tuned")
    assert "run only with 60 labels (10 % of all)" in sentences[0]
    assert "RSP + CR has the highest accuracy" in sentences[1]
    assert "Only one number of labels was run: points, no curve." in _text(pages[ONE])
    points = pd.read_csv(pages[ONE] / "points.csv").query("metric == 'accuracy'")
    drawn = [row["value"] for row in _specs(pages[ONE])[0]["data"]["values"]]
    np.testing.assert_allclose(drawn, points["value"], rtol=1e-4)


def test_a_pretraining_that_costs_labels_is_called_that(pages: dict[str, Path]) -> None:
    sentences = _lead(pages[WORSE])
    assert sentences[0].startswith("No model is shown to save labels: by accuracy")
    (line,) = (line for line in sentences if line.startswith("RSP fine-tuned: "))
    assert line.startswith("RSP fine-tuned: needs more labels than the baseline with ")
    assert "saves" not in line


def test_what_was_used_and_what_was_left_out_is_named_with_the_reason(pages: dict[str, Path]) -> None:
    text = _text(pages[SEVERAL])
    assert "8 experiments, 2 left out" in text
    for alpha in (0.1, 0.25, 0.5, 1.0):
        assert f"<td>exp-{alpha}-7</td>" in text
    assert "it failed; <code>dvc queue logs focal-bice</code> shows the reason" in text
    assert "it has not finished" in text


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1200, "light"), (2560, "dark")])
@pytest.mark.parametrize("name", [SEVERAL, ONE, WORSE])
def test_the_page_is_drawn_at_any_width_and_asks_for_nothing_off_the_disk(
    browser: Any, pages: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    with watched(browser, pages[name] / "index.html", width=width, scheme=scheme) as page:
        assert page.locator("[data-chart]").count() >= 3
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        too_wide = "[...document.querySelectorAll('.drawing')].filter((p) => p.scrollWidth > p.clientWidth + 1).length"
        assert page.evaluate(too_wide) == 0


def test_a_chart_is_saved_as_a_file(browser: Any, pages: dict[str, Path]) -> None:
    with watched(browser, pages[SEVERAL] / "index.html") as page:
        page.locator("[data-chart] summary").first.click()
        with page.expect_download() as saved:
            page.get_by_text("Save as SVG").first.click()
        assert "<svg" in Path(saved.value.path()).read_text()


def test_the_ratios_are_sorted_with_the_keyboard(browser: Any, pages: dict[str, Path]) -> None:
    with watched(browser, pages[SEVERAL] / "index.html") as page:
        table = page.locator("#numbers table").nth(1)
        table.locator("th button").nth(4).focus()
        page.keyboard.press("Enter")
        cells = table.locator("tbody tr td:nth-child(5)").all()
        column = [float(cell.get_attribute("data-value") or "nan") for cell in cells]
        assert column == sorted(column, reverse=True)
        assert len(column) == len(pd.read_csv(pages[SEVERAL] / "labels_saved.csv"))


def test_without_the_libraries_the_page_states_how_to_install_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("histo_monai.pipeline.commands.curves.found", lambda: None)
    tree = yaml.safe_load((root / "params.yaml").read_text())
    tree |= {"pretraining_methods": ["rsp"], "semisupervised_methods": ["paper"], "alpha": 0.1}
    text = _text(_page(tmp_path, root, [MadeUp("only", tree)]))
    assert "Charts are missing from this installation" in text
    assert "vega.js" not in text
    assert "the supervised baseline, was not run" in text
