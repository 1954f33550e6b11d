"""The page of a run, in a real browser, from disk."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page

from documentation import recordings
from histo_monai.evaluation.comparison.rows import Row
from histo_monai.pipeline.cli import main
from tests.browsers import watched
from tests.folders import NewFolder

pytestmark = pytest.mark.slow

RUN = "rsp-0-spatial_neighbors-0"
CELLS_SHOWN = """() => {
  const map = document.querySelector("canvas.map");
  const pixels = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
  return pixels.filter((value, i) => i % 4 === 3 && value).length;
}"""


@pytest.fixture(scope="module")
def project(finished: Any, module_folder: NewFolder) -> Path:
    """The finished run, with a page by this package, libraries of the browser and all."""
    folder = module_folder("report") / "project"
    shutil.copytree(finished.folder / "data", folder / "data")
    shutil.copy(finished.folder / "params.yaml", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["report"]) == 0
    return folder


@pytest.fixture
def opened(browser: Any, project: Path) -> Iterator[Page]:
    """The page, loaded and drawn; afterwards: it has asked for nothing off the disk, and complained of nothing."""
    with watched(browser, project / "data/report/index.html") as page:
        page.wait_for_function(
            "window.histoViewer.world.getItemCount() === 1 && document.querySelector('canvas.map')"
        )
        yield page


def _slides(project: Path) -> pd.DataFrame:
    return pd.read_csv(project / f"data/heatmaps/{RUN}/slides.csv", keep_default_na=False)


def test_every_chart_is_drawn_and_every_picture_is_there(opened: Page) -> None:
    charts = opened.locator("[data-chart]")
    assert charts.count() >= 10
    for i in range(charts.count()):
        assert charts.nth(i).locator("svg path").count() > 0
    assert opened.locator("#training h3", has_text="Student: pseudo labels").count() == 1
    opened.evaluate("document.querySelectorAll('img').forEach((image) => { image.loading = 'eager'; })")
    opened.wait_for_function("[...document.images].every((image) => image.complete)")
    assert opened.evaluate("[...document.images].filter((image) => !image.naturalWidth).length") == 0
    assert opened.evaluate("[...document.images].filter((image) => !image.alt).length") == 0


def test_numbers_on_the_page_are_those_of_the_comparison(opened: Page, project: Path) -> None:
    table = pd.read_csv(project / "data/comparison/table.csv").query(
        "split == 'test' and metric == 'accuracy'"
    )
    text = opened.locator("#comparison table").first.inner_text()
    for value in table["value"]:
        assert f"{value:.3f}" in text
    rows = zip(table["method"], table["training"].fillna(""), strict=True)
    best = table[[Row(*row).is_network for row in rows]]["value"].max()
    lead = opened.locator("#results .lines.lead li", has_text="The best network is")
    assert f": accuracy {best:.3f} (" in lead.inner_text()


def test_a_table_is_sorted_by_numbers_with_the_keyboard(opened: Page) -> None:
    table = opened.locator("#comparison table").first
    table.locator("th button").nth(1).focus()

    def column() -> list[float]:
        cells = table.locator("tbody tr td:nth-child(2)")
        return [float(cell.get_attribute("data-value") or "nan") for cell in cells.all()]

    opened.keyboard.press("Enter")
    assert column() == sorted(column(), reverse=True)
    assert table.locator("th").nth(1).get_attribute("aria-sort") == "descending"
    opened.keyboard.press("Enter")
    assert column() == sorted(column())


def test_a_row_of_the_table_opens_its_slide_in_the_viewer(opened: Page, project: Path) -> None:
    slide_id = _slides(project)["slide_id"].iloc[-1]
    opened.locator("#slides table a", has_text=re.compile(f"^{re.escape(slide_id)}$")).click()
    opened.wait_for_function(
        f"document.getElementById('about').textContent.startsWith({json.dumps(slide_id)})"
    )
    assert opened.locator("#slide").input_value() == slide_id
    assert opened.evaluate("document.getElementById('viewer').getBoundingClientRect().top") < 300


def test_the_map_shows_the_cells_of_the_scores_from_the_threshold_on(opened: Page, project: Path) -> None:
    slide_id = opened.locator("#slide").input_value()
    scores = pd.read_csv(project / f"data/heatmaps/{RUN}/scores/{slide_id}.csv")
    shown = {}
    for model in ("finetuned", "student"):
        opened.locator("#model").select_option(model)
        for threshold in (0, 40, 60):
            opened.locator("#threshold").fill(str(threshold))
            shown[model, threshold] = opened.evaluate(CELLS_SHOWN)
            steps = np.round(scores[model] * 254) / 254
            assert shown[model, threshold] == (steps >= threshold / 100).sum()
    assert shown["student", 0] == len(scores) > 0
    opened.locator("#opacity").fill("30")
    assert opened.evaluate("document.querySelector('canvas.map').style.opacity") == "0.3"


def test_the_viewer_is_recorded(opened: Page, project: Path) -> None:
    slides = _slides(project)
    slide_id = slides.loc[(slides["label"] == "tumor") & (slides["split"] == "test"), "slide_id"].iloc[0]
    recorded = recordings.record_viewer(opened, slide_id)
    assert opened.locator("#slide").input_value() == slide_id
    assert len(recorded.pictures) > 10
    assert 15_000 < sum(recorded.shown_ms) < 25_000


def test_the_viewer_goes_to_a_lesion_and_draws_its_outline(opened: Page, project: Path) -> None:
    slides = _slides(project)
    slide_id = slides.loc[(slides["label"] == "tumor") & (slides["split"] == "test"), "slide_id"].iloc[0]
    opened.locator("#slide").select_option(slide_id)
    opened.wait_for_function(
        f"document.getElementById('about').textContent.startsWith({json.dumps(slide_id)})"
    )
    opened.wait_for_function("document.querySelector('svg.marks polygon.outline')")
    opened.locator("#places button").first.click()
    script = next(
        path.read_text()
        for path in (project / "data/report/slides").glob("*.js")
        if path.read_text().startswith(f'histoSlide("{slide_id}"')
    )
    content = json.loads(script[script.index(",{") + 1 : script.rindex(")")])
    lesion = content["outlines"][0]
    opened.wait_for_function(
        "window.histoViewer.viewport.getZoom() > window.histoViewer.viewport.getHomeZoom()"
    )
    center = opened.evaluate(
        "(() => { const c = window.histoViewer.viewport.getCenter(); return [c.x, c.y]; })()"
    )
    np.testing.assert_allclose(np.array(center) * content["width_um"], [lesion["x"], lesion["y"]], rtol=0.02)
    opened.locator("#outlines").uncheck()
    assert opened.locator("svg.marks polygon").count() == 0
    assert (
        len(base64.b64decode(content["maps"]["student"]))
        == content["grid"]["rows"] * content["grid"]["columns"]
    )


def test_the_viewer_is_moved_by_the_keyboard(opened: Page) -> None:
    opened.locator("#osd .openseadragon-canvas").first.focus()
    zoom, x = "window.histoViewer.viewport.getZoom()", "window.histoViewer.viewport.getCenter().x"
    home, middle = opened.evaluate(zoom), opened.evaluate(x)
    opened.keyboard.press("+")
    opened.wait_for_function(f"{zoom} > {home * 1.05}")
    opened.keyboard.press("ArrowRight")
    opened.wait_for_function(f"{x} > {middle + 0.01}")
    opened.wait_for_function(  # it glides on for some frames
        f"new Promise((done) => {{ const at = {x}; setTimeout(() => done(at === {x}), 300); }})"
    )
    opened.keyboard.press("0")
    opened.wait_for_function(f"Math.abs({zoom} - {home}) < 1e-6 && Math.abs({x} - {middle}) < 1e-6")


def test_a_slide_that_is_mirrored_has_its_map_and_its_outlines_mirrored(opened: Page) -> None:
    mirrored = """(layer) => [layer, layer.parentElement]
      .map((element) => new DOMMatrix(getComputedStyle(element).transform).a).reduce((a, b) => a * b)"""
    layers = [opened.locator(f"#osd {layer}") for layer in ("canvas.map", "svg.marks")]
    assert [layer.evaluate(mirrored) for layer in layers] == [1, 1]
    opened.locator("#osd .openseadragon-canvas").first.focus()
    opened.keyboard.press("f")
    opened.wait_for_function("window.histoViewer.viewport.getFlip()")
    opened.wait_for_timeout(100)  # until it is drawn
    assert [layer.evaluate(mirrored) for layer in layers] == [-1, -1]


@pytest.mark.parametrize("width", [360, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(browser: Any, project: Path, width: int, scheme: Any) -> None:
    with watched(browser, project / "data/report/index.html", width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink, ground = (
            page.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).slice(0, 3).map(Number)")
            for name in ("color", "backgroundColor")
        )
        assert _contrast(ink, ground) > 7


def _contrast(first: list[int], second: list[int]) -> float:
    """WCAG 2.2: contrast ratio of two sRGB colors."""
    lights = []
    for color in (first, second):
        channel = np.array(color) / 255
        linear = np.where(channel <= 0.04045, channel / 12.92, ((channel + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(lights) + 0.05) / (min(lights) + 0.05)


def test_a_second_page_keeps_the_tiles_and_is_the_same(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    page = Path("data/report")
    before = {path.relative_to(page): path.read_bytes() for path in page.rglob("*") if path.is_file()}
    tiles = sorted(page.rglob("*.jpg"))
    inodes = {path: path.stat().st_ino for path in tiles if "slides" in path.parts}
    monkeypatch.setattr("histo_monai.reports.site.of_slide.write_tiles", None)
    assert main(["report"]) == 0
    after = {path.relative_to(page): path.read_bytes() for path in page.rglob("*") if path.is_file()}
    assert after == before
    assert {path: path.stat().st_ino for path in inodes} == inodes


def test_a_missing_part_is_reported(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "project"
    shutil.copytree(project, copy)
    shutil.rmtree(copy / "data/check")
    monkeypatch.chdir(copy)
    monkeypatch.setattr("histo_monai.pipeline.stages.report.found", lambda: None)
    assert main(["report"]) == 0
    page = Path("data/report/index.html").read_text()
    assert "No picture of a slide" in page
    assert "Charts and the viewer of slides are missing from this installation" in page
    assert "vega.js" not in page


def test_the_page_is_served_to_this_machine_alone(project: Path) -> None:
    command = [sys.executable, "-m", "histo_monai", "report", "--serve"]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    heard = partial(
        signal.signal, signal.SIGINT, signal.SIG_DFL
    )  # what runs in a shell's background ignores it
    with subprocess.Popen(
        command, cwd=project, stdout=subprocess.PIPE, text=True, env=environment, preexec_fn=heard
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            address = re.match(r"(http://127\.0\.0\.1:\d+/[\w-]{22}/) ", line)
            assert address, line
            with urllib.request.urlopen(address[1], timeout=10) as answer:
                assert answer.read() == (project / "data/report/index.html").read_bytes()
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == 130
        finally:
            process.kill()
