"""Pages that repeat what the code knows say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from documentation import commands_page, hooks, params_page
from histo_monai.evaluation.metrics import classification_estimates, score_estimates
from histo_monai.pipeline.commands import init
from histo_monai.pipeline.project.files import SOURCE_ONLY
from histo_monai.utils.settings.rules import MicronsPerPixel, Range
from tests.documentation.pages import menu, research_pages
from tests.folders import NewFolder

PAGE = params_page.PAGE.read_text(encoding="utf-8")


def _keys(tree: object, way: str = "") -> list[str]:
    if not isinstance(tree, dict) or not tree:
        return [way]
    return [dotted for key, value in tree.items() for dotted in _keys(value, f"{way}.{key}".lstrip("."))]


@pytest.mark.parametrize("name", ["params.yaml", "params/paper.yaml"])
def test_every_key_of_params_stands_once_with_unit_range_meaning_and_source(name: str, root: Path) -> None:
    keys = _keys(yaml.safe_load((root / name).read_text()))
    rows = params_page.rows(PAGE)
    assert len(keys) > 150
    for key in keys:
        of_key = [row for row in rows if params_page.pattern(row[0]).fullmatch(key)]
        is_null = key == "finetune.recipe"  # the keys below are none
        assert len(of_key) == (not is_null), key
        assert all(len(row) == len(params_page.COLUMNS) and all(row) for row in of_key), key


def test_no_row_of_params_is_of_a_key_that_is_gone(root: Path) -> None:
    keys = _keys(yaml.safe_load((root / "params.yaml").read_text()))
    for row in params_page.rows(PAGE):
        assert any(params_page.pattern(row[0]).fullmatch(key) for key in keys), row[0]


def test_ranges_and_values_of_params_are_those_of_the_code_and_of_the_files() -> None:
    assert params_page.filled(PAGE) == PAGE, "run `make docs`"
    rows = {row[0]: row for row in params_page.rows(PAGE)}
    assert rows["`alpha`"][2:5] == ["> 0, ≤ 1", "0.1", "0.1"]
    assert rows["`mu`"][2:5] == ["whole, ≥ 1", "3", "7"]
    assert rows["`corpora.<dataset>.mpps`"][2] == "3, ascending: 0.05..64"
    assert rows["`labels.own.regions.mpp`"][2] == params_page.allowed(MicronsPerPixel)


@pytest.mark.parametrize(
    ("rule", "kind", "words"),
    [
        (Range(0.0, 1.0), float, "0..1"),
        (Range(0.0, 1.0, exclusive_low=True), float, "> 0, ≤ 1"),
        (Range(2), int, "whole, ≥ 2"),
        (Range(0.0, exclusive_low=True), float, "> 0"),
    ],
)
def test_a_range_is_stated_in_words(rule: Range, kind: type, words: str) -> None:
    assert params_page._range(rule, kind) == words


def test_the_page_of_commands_is_the_help_of_the_parser() -> None:
    assert commands_page.PAGE.read_text(encoding="utf-8") == commands_page.page(), "run `make docs`"


def test_every_page_stands_in_the_menu_once(root: Path) -> None:
    paths = [
        path for part in menu(root) for pages in part.values() for page in pages for path in page.values()
    ]
    of_docs = [path for path in paths if (root / "docs" / path).is_file()]
    assert sorted(of_docs) == sorted({path.name for path in (root / "docs").glob("*.md")} - {"README.md"})
    assert {"CONTRIBUTING.md", "CHANGELOG.md", "api/slides.md"} <= set(paths)


def test_a_list_that_follows_a_line_begins_after_a_blank_one() -> None:
    page = "text:\n- one\n  more\n- two\n\n```\na\n- no\n```\n    code\n1. first"
    assert hooks.with_blank_lines(page) == page.replace("text:\n-", "text:\n\n-").replace("\n1.", "\n\n1.")


def test_the_papers_numbers_are_those_that_compare_puts_beside_ours(root: Path) -> None:
    printed = pd.read_csv(root / "histo_monai/reports/paper.csv").query("table.str.startswith('table_')")
    metrics = ("icc_a", "icc_b", "slide_auc", "patch_accuracy", "mean_ovr_accuracy", "weighted_f1")
    names = {"random": "random", "VAE": "vae", "MoCo": "moco", "RSP": "rsp"}
    rows = re.findall(
        r"(?m)^\| (random|VAE|MoCo|RSP)( \+ CR)? \| (.+) \|$", (root / "docs/paper.md").read_text()
    )
    assert len(rows) == 8
    for name, taught, cells in rows:
        of_row = printed[
            (printed.method == names[name]) & (printed.stage == ("consistency" if taught else "finetune"))
        ]
        for metric, cell in zip(metrics, cells.split(" | "), strict=True):
            values = of_row[of_row.metric == metric].set_index("alpha").value
            assert cell == f"{values[0.1]:.3f}, {values[1.0]:.3f}"


def test_every_metric_of_patches_is_explained(root: Path) -> None:
    labels, probabilities = np.array([0, 1, 0, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.3, 0.7]])
    of_classes = classification_estimates(labels, probabilities, None, seed=0, num_replicates=100)
    of_scores = score_estimates(labels, probabilities[:, 1], None, seed=0, num_replicates=100)
    page = (root / "docs/numbers.md").read_text(encoding="utf-8")
    named = {name for row in re.findall(r"(?m)^\| (`.+?) \|", page) for name in re.findall(r"`(\w+)`", row)}
    assert named == {*of_classes, *of_scores}


@pytest.fixture(scope="module")
def project(module_folder: NewFolder) -> Path:
    """A project of a user, as `init` makes it."""
    folder = module_folder("init") / "project"
    init.run(str(folder))
    return folder


def test_docs_that_go_into_every_project_are_small_and_without_measurements(
    project: Path, root: Path
) -> None:
    copied = {path.relative_to(project / "docs") for path in (project / "docs").rglob("*") if path.is_file()}
    files = {path.relative_to(root / "docs") for path in (root / "docs").rglob("*") if path.is_file()}
    assert files - copied == {Path(name) for name in SOURCE_ONLY}
    assert sum((project / "docs" / path).stat().st_size for path in copied) < 2 * 2**20
    pages = {path.name for path in research_pages(root)}
    assert {name for name in SOURCE_ONLY if name.endswith(".md")} == pages


def test_links_of_docs_lead_somewhere_in_a_users_project_too(project: Path) -> None:
    links = [
        (path, link)
        for path in (project / "docs").glob("*.md")
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    ]
    assert len(links) > 100
    assert not [(path.name, link) for path, link in links if not (path.parent / link).exists()]
    menu = (project / "docs" / hooks.MENU).read_text(encoding="utf-8")
    assert "- Real tissue, `real.md` of the source:" in menu


def test_the_map_of_questions_names_paths_that_exist(root: Path) -> None:
    rows = re.findall(r"^\| Where .*\? \| (.+) \|$", (root / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert len(rows) >= 20
    paths = [path for row in rows for path in re.findall(r"`([^`]+)`", row)]
    stage = paths.index("pipeline/stages/<stage>.py")
    paths[stage] = "pipeline/stages/finetune.py"
    assert [path for path in paths if not (root / "histo_monai" / path).exists()] == []
