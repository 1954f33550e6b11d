from __future__ import annotations

import html
import json
import re

import pytest

from histo_monai.reports.site.blocks import (
    Cell,
    Chart,
    Code,
    Facts,
    Lines,
    Picture,
    Pictures,
    Section,
    Table,
    Viewer,
    missing,
    number,
    render,
)

EVIL = "<script>alert('&\"')</script>"


def _page(*blocks: object) -> str:
    return render(EVIL, EVIL, [Section("a", EVIL, blocks)], ["assets/a.js"])  # type: ignore[arg-type]  # of each kind


@pytest.mark.parametrize(
    "block",
    [
        Lines([EVIL], "warning"),
        Table(EVIL, [EVIL], [[Cell(EVIL, None, True, EVIL)]], EVIL, folded=True),
        Facts(EVIL, {EVIL: EVIL}),
        Chart(EVIL, {"title": EVIL}, EVIL),
        Pictures(EVIL, [Picture("a.png", EVIL, EVIL)], EVIL),
        Code(EVIL, EVIL),
        Viewer([{"slide_id": EVIL, "title": EVIL, "about": EVIL, "script": "a.js"}], [EVIL], [EVIL, "b"], 0),
        missing(EVIL, EVIL),
    ],
)
def test_names_of_slides_and_classes_are_text_and_nothing_else(block: object) -> None:
    page = _page(block)
    assert EVIL not in page
    assert page.count("<script") == 3  # two of data, one of the library
    assert page.count("alert(") >= 1


def test_data_come_back_as_they_were() -> None:
    page = _page(
        Chart("a", {"x": EVIL}, ""), Viewer([{"slide_id": EVIL, "title": "", "about": ""}], [], [], 0)
    )
    found = re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', page)
    data = {name: json.loads(text) for name, text in found}
    assert data == {"chart-data": [{"x": EVIL}], "slide-data": [{"slide_id": EVIL, "title": "", "about": ""}]}


def test_a_number_that_json_does_not_know_is_an_error_and_no_broken_page() -> None:
    with pytest.raises(ValueError, match="JSON"):
        _page(Chart("a", {"x": float("nan")}, ""))


def test_what_stands_in_marks_is_code() -> None:
    page = _page(Lines(["run `a <b>`, then `c`", "one ` mark"]))
    assert "run <code>a &lt;b&gt;</code>, then <code>c</code>" in page
    assert "one ` mark" in page


def test_numbers_are_sorted_by_their_value() -> None:
    assert number(0.5, 0.25, 0.75) == Cell("0.500 (0.25 to 0.75)", 0.5)
    assert number(-0.0001).text == "0.000"
    assert number(float("nan")) == Cell("—")
    assert 'data-value="0.5"' in _page(Table("a", ["b"], [[number(0.5)]]))


def test_everything_the_page_asks_for_lies_beside_it() -> None:
    page = html.unescape(_page(Pictures("", [Picture("pictures/a.png", "a")])))
    asked = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert set(asked) == {"data:,", "assets/report.css", "pictures/a.png", "assets/a.js"}
