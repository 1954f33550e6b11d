"""What users write comes out of every language as text: each parser gives it back, and runs nothing of it."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure
from matplotlib.text import Text
from monai.bundle import ConfigParser

from histo_monai.data.tables.columns import CENTER_COLUMNS, PATCH_COLUMNS
from histo_monai.reports import figures
from histo_monai.reports.check.page import Checked, check_page
from histo_monai.reports.drawing import drawn, new_figure
from histo_monai.reports.maps.overlay import Canvas
from histo_monai.reports.maps.slide_maps import MapStyle
from histo_monai.reports.site import charts
from histo_monai.reports.site.blocks import Cell, Chart, Code, Facts, Lines, Section, Table, Viewer, render
from histo_monai.reports.site.viewer import SlideEntry
from histo_monai.slides.annotations import Region, read_geojson, write_geojson
from histo_monai.slides.tiles.grid import Grid
from histo_monai.training.events import Hyperparameters, write_end
from histo_monai.training.pictures.predictions import answers
from histo_monai.utils import escapes
from histo_monai.utils.process.logs import log_to_stderr
from histo_monai.wsi.heatmaps.heatmap import Heatmap, column_of, read_heatmap, write_heatmap
from tests.event_files import scalars
from tests.hostile.texts import TEXTS, UNPRINTABLE

ALL = TEXTS | UNPRINTABLE
each = pytest.mark.parametrize("text", ALL.values(), ids=ALL.keys())
each_class = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


@pytest.fixture(autouse=True)
def _nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "owned").exists()


@each
def test_monais_parser_gives_back_what_stands_in_the_file(text: str) -> None:
    content = {"a": escapes.monai(text), "b": escapes.monai([{"c": (text, 1, None)}])}
    content = json.loads(json.dumps(content))
    parser = ConfigParser(json.loads(json.dumps(content)))
    parser.parse()
    assert parser.get_parsed_content("") == content
    if not set("$@%#") & set(text):
        assert content["a"] == text


@each
def test_a_printable_text_is_one_line_that_a_terminal_shows(text: str) -> None:
    shown = escapes.printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert (shown == text) == text.isprintable()


@each
def test_a_log_line_stays_one_line(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    log_to_stderr()
    logging.getLogger("histo_monai.x").warning("label %s", text)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"WARNING histo_monai.x: label {escapes.printable(text)}"]


@each
def test_matplotlib_draws_letters_and_no_formula(text: str) -> None:
    figure = new_figure(4, 3)
    axis = figure.subplots()
    axis.set_title(text)
    axis.set_xticks([0, 1], ["a", escapes.printable(text)[:40]])
    axis.plot([0, 1], label=text)
    axis.legend()
    drawn(figure)
    artists = figure.findobj(Text)
    assert all(not artist.get_parse_math() for artist in artists)
    assert axis.title.get_text().replace("\n", "") == "".join(map(escapes.printable, text.split("\n")))


@each_class
def test_all_pictures_of_classes_are_drawn(text: str) -> None:
    patches = np.zeros((2, 3, 8, 8), np.uint8)
    assert answers(patches, np.eye(2), [0, 1], [text, "b"]).dtype == np.uint8
    short = text[:30]
    assert figures.confusion([0, 1], {short: [0, 1]}, [short, "b"]).dtype == np.uint8
    canvas = Canvas(40, 60)
    canvas.write(20, 30, text, 8)
    assert canvas.drawn().shape == (40, 60, 3)


def test_a_dollar_is_drawn_as_a_dollar_and_not_as_math() -> None:
    def picture(words: str, *, as_letters: bool) -> np.ndarray:
        figure = Figure(figsize=(3, 1))
        figure.text(0.1, 0.5, words, parse_math=not as_letters)
        return drawn(figure)

    both = (picture("$a$ and $b$", as_letters=one) for one in (True, False))
    assert np.array_equal(*both)


def test_words_of_files_are_names_in_their_folder_and_no_two_are_one(tmp_path: Path) -> None:
    words = escapes.file_words([*ALL.values(), "A", "a", "a!"])
    assert len({word.casefold() for word in words.values()}) == len(ALL) + 3
    for word in words.values():
        path = tmp_path / f"s.{word}.tif"
        path.touch()
        assert path.parent == tmp_path
        assert path.resolve().parent == tmp_path.resolve()
    assert len(list(tmp_path.iterdir())) == len(words)
    assert escapes.file_words(["fat", "tumor"]) == {"fat": "fat", "tumor": "tumor"}
    names = MapStyle(("fat", "a/b"), 8.0, 0.5, 0.2, 1.0, 1.0).files("s")
    assert names == ["s.fat.tif", "s.a_b.tif", "s.geojson", "s.png"]


@each
def test_markdown_has_no_markup_of_a_user(text: str) -> None:
    markdown = pytest.importorskip("markdown")  # of mkdocs, which builds the site
    shown = escapes.markdown(text)
    assert "\n" not in shown
    tags = _Page.of(markdown.markdown(f"x {shown} y", extensions=["tables"]))
    assert set(tags.tags) <= {"p"}
    table = f"| a | b |\n|---|---|\n| {shown} | 1 |"
    found = _Page.of(markdown.markdown(table, extensions=["tables"]))
    assert found.tags.count("td") == 2
    assert not {"a", "img", "script", "strong", "code"} & set(found.tags)


class _Page(HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[tuple[str, str]] = []

    @classmethod
    def of(cls, html: str) -> _Page:
        page = cls()
        page.feed(html)
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append((self.tags[-1] if self.tags else "", data))


def _sections(text: str) -> list[Section]:
    rows = [{"name": text, "value": 0.5, "low": 0.4, "high": 0.6, "kind": text}]
    blocks: list[Any] = [
        *(Lines([text]), Facts(text, {text: text}), Code(text, text)),
        Table(text, [text], [[Cell(text, slide=text)], [Cell(text, long=True)]], note=text),
        Chart(text, charts.intervals(rows, text, kinds=[text]), text),
        Chart(text, charts.confusion(np.eye(2, dtype=int), [text, "b"]), text),
        Chart(text, charts.curves([{"epoch": 1, "value": 1.0, "name": text}], text, 1), text),
        Viewer([SlideEntry(text, text, text, "slides/1.js").as_dict()], ["student"], [text, "b"], 50),
    ]
    return [Section("one", text, blocks)]


@pytest.mark.parametrize("text", [t for t in ALL.values() if "\ud800" not in t])
def test_a_page_has_the_same_elements_whatever_the_texts(text: str) -> None:
    plain = _Page.of(render("t", "s", _sections("plain"), []))
    page = _Page.of(render(text, text, _sections(text), []))
    assert [
        tag for tag in page.tags if tag != "code"
    ] == plain.tags  # what stands in `marks` is shown as code
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
    assert any(
        text.replace("\r", "\n") in data.replace("\r", "\n") for tag, data in page.texts if tag == "h1"
    )
    (data, slides) = [data for tag, data in page.texts if tag == "script" and data.strip()]
    assert json.loads(slides)[0]["slide_id"] == text
    assert json.loads(data)[1]["data"]["values"][0]["true"] == text


@each
def test_charts_hold_texts_as_data_and_in_no_expression_or_field(text: str) -> None:
    rows = [{"name": text, "value": 0.5, "low": 0.4, "high": 0.6, "kind": text}]
    steps = [{"x": 0.1, "y": 0.2, "name": text}]
    bins = [{"name": text, "confidence": 0.6, "accuracy": 0.5, "patches": 3}]
    specs = [
        charts.intervals(rows, text, zero=True, kinds=[text]),
        charts.curves([{"epoch": 1, "value": 1.0, "name": text}], text, 1),
        charts.steps(steps, text, text, diagonal=True),
        charts.reliability(bins),
        charts.confusion(np.eye(2, dtype=int), [text, "b"]),
        charts.scatter([0.1, 0.2], [0.1, 0.3], text),
    ]
    for spec in specs:
        assert json.loads(escapes.in_script(spec)) == spec
        assert text not in list(_evaluated(spec))


def _evaluated(spec: Any) -> Iterator[str]:
    """Texts that Vega-Lite reads as an expression, or as a path into a row."""
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key in ("field", "test", "filter", "expr", "signal", "labelExpr", "calculate", "as", "format"):
                yield from [value] if isinstance(value, str) else []
            if key != "values":
                yield from _evaluated(value)
    elif isinstance(spec, list):
        for one in spec:
            yield from _evaluated(one)


@pytest.mark.parametrize("text", [t for t in ALL.values() if "\ud800" not in t])
def test_the_page_of_check_has_the_same_elements_whatever_the_texts(text: str) -> None:
    def page(one: str) -> _Page:
        slides = pd.DataFrame(
            [
                {
                    "slide_id": one,
                    "split": "train",
                    "patient_id": one,
                    "label": one,
                    "mpp": 0.5,
                    "excluded": 0.1,
                }
            ]
        )
        patches = pd.DataFrame(columns=list(PATCH_COLUMNS))
        patches.loc[0] = dict.fromkeys(PATCH_COLUMNS, "") | {
            "slide_id": one, "patient_id": one, "label": one, "split": "train",
        }  # fmt: skip
        centers = pd.DataFrame(columns=list(CENTER_COLUMNS))
        checked = Checked([one], [one], slides, {one: "slides/0.jpg"}, centers, patches, {one: "#112233"})
        return _Page.of(check_page(checked))

    assert page(text).tags == page("plain").tags


@each_class
def test_geojson_csv_json_and_yaml_give_texts_back(text: str, tmp_path: Path) -> None:
    square = np.array([[0.0, 0.0], [0.0, 9.0], [9.0, 9.0], [9.0, 0.0]])
    write_geojson(tmp_path / "a.geojson", [Region(square, label=text, name=text)])
    (region,), _ = read_geojson(tmp_path / "a.geojson")
    assert (region.label, region.name) == (text, text)
    values = {column_of("model", name): np.array([0.25], np.float32) for name in (text, "b")}
    heatmap = Heatmap(Grid(8.0, 1.0, (16, 16)), np.array([[0, 1]]), np.ones(1, np.float32), values)
    write_heatmap(tmp_path / "a.csv", heatmap)
    assert list(read_heatmap(tmp_path / "a.csv").values) == list(values)
    header = next(csv.reader(io.StringIO((tmp_path / "a.csv").read_text(), newline="")))
    assert header[-2:] == list(values)
    assert yaml.safe_load(yaml.safe_dump({"license": text})) == {"license": text}


@each_class
def test_tensorboard_reads_texts_and_tags_as_they_are(text: str, tmp_path: Path) -> None:
    about = Hyperparameters("finetune", text, text, encoder=0, patch_px=32, student=text)
    write_end(tmp_path / "events", about, {"validation_accuracy": 0.5})
    assert set(scalars(tmp_path / "events")) == {"final/validation_accuracy"}
