"""Slides with bounds: SCN whose XML is odd, and origins of coordinates that are none or contradict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from histo_monai.slides.annotations import read_annotations
from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.project import OWN, write_text
from tests.slides.drawn_scn import write_scn

SCN, ORIGIN = "SCN", "origins"
CORNER_YX, CANVAS_YX = (40, 60), (300, 400)
RING = [[0, 0], [50, 0], [50, 50], [0, 50], [0, 0]]
TO_XML = ("convert", "a.geojson", "b.xml", "--slide", "a.scn")


def _scn(change: Callable[[str], str] = str) -> None:
    pixels = np.full((128, 192, 3), (200, 120, 170), np.uint8)
    write_scn(Path("a.scn"), pixels, CORNER_YX, CANVAS_YX, mpp=1.0, factors=(1, 2), change_xml=change)


def _geojson(**members: Any) -> None:
    feature = {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [RING]},
        "properties": {"classification": {"name": "Tumor"}},
    }
    content = {"type": "FeatureCollection", "features": [feature], **members}
    write_text("a.geojson", json.dumps(content))


def _both(change: Callable[[str], str]) -> None:
    _scn(change)
    _geojson()


def _begins_at(corner_yx: tuple[int, int], path: str = "b.xml") -> None:
    regions, _ = read_annotations(Path(path))
    assert regions[0].exterior_yx.min(axis=0).tolist() == list(corner_yx)


def _is_shifted_as_stated() -> None:
    """Whatever OpenSlide makes of the XML: the outline lies at the bounds that it states, as in QuPath."""
    import openslide

    with openslide.OpenSlide("a.scn") as slide:
        stated = [int(slide.properties.get(f"openslide.bounds-{axis}", 0)) for axis in "yx"]
    _begins_at((stated[0], stated[1]))


def _swap(old: str, new: str) -> Callable[[str], str]:
    def change(xml: str) -> str:
        assert re.search(old, xml), (old, xml)
        return re.sub(old, new, xml)

    return change


_NUMBERS = {
    "negative": "-40000", "zero": "0", "beyond the canvas": "900000", "of 10 digits": "4000000000",
    "of 19 digits": "9223372036854775807", "of 20 digits": "18446744073709551616", "a fraction": "40000.5",
    "in words": "forty", "hexadecimal": "0x9c40", "empty": "", "infinite": "inf", "nan": "nan", "with a sign": "+40000",
    "with blanks": " 40000 ", "with a comma": "40,000",
}  # fmt: skip
_PLACES = {
    "offset": r'offsetY="\d+"', "view": r'<view sizeX="\d+"', "canvas": r'<collection name="slide" sizeX="\d+"',
    "width of a page": r'<dimension sizeX="\d+"', "page": r'ifd="0"',
}  # fmt: skip

TREES: dict[str, Callable[[str], str]] = {
    "no offset": _swap(r' offsetX="\d+"', ""),
    "no view": _swap(r"<view [^>]*/>", ""),
    "two views": _swap(r"(<view [^>]*/>)", r"\1\1"),
    "no dimension": _swap(r"<dimension [^>]*/>", ""),
    "no collection": _swap(r"</?collection[^>]*>", ""),
    "two collections": _swap(r"(<collection.*</collection>)", r"\1\1"),
    "no image": _swap(r"<image .*</image>", ""),
    "the image twice": _swap(r"(<image .*</image>)", r"\1\1"),
    "two images at other places": lambda xml: _twice(xml, "900"),
    "two images of other objectives": lambda xml: _twice(xml, "60000", "<objective>40</objective>"),
    "no light": _swap(r"<illuminationSource>.*</illuminationSource>", ""),
    "fluorescence": _swap("brightfield", "fluorescence"),
    "no objective": _swap(r"<objectiveSettings>.*</objectiveSettings>", ""),
    "all pages of another plane": _swap(r'r="', 'z="3" r="'),
    "a page that is not there": _swap(r'ifd="1"', 'ifd="77"'),
    "a page twice": _swap(r'ifd="1"', 'ifd="0"'),
    "another namespace": _swap("scn/2010/10/01", "scn/2099/01/01"),
    "no namespace": _swap(r' xmlns="[^"]*"', ""),
    "half of the XML": lambda xml: xml[: len(xml) // 2],
    "a document type": _swap(r"(<scn )", r'<!DOCTYPE scn [<!ENTITY a "40000">]>\1'),
    "an entity as a number": lambda xml: re.sub(
        r'offsetY="\d+"', 'offsetY="&a;"', xml.replace("<scn ", '<!DOCTYPE scn [<!ENTITY a "40000">]><scn ')
    ),
    "a thousand dimensions": _swap(r"(<dimension [^>]*/>)", r"\1" * 500),
    "50,000 tags in one another": _swap("(<image )", "<a>" * 50_000 + r"\1"),
    "a view as large as the canvas": _swap(
        r"<view [^>]*/>", '<view sizeX="400000" sizeY="300000" offsetX="0" offsetY="0"/>'
    ),
    "a view of another aspect": _swap(r'(<view [^>]*sizeY)="\d+"', r'\1="12000"'),
    "a text of control characters": _swap("drawn", "&#27;[2J"),
}


def _twice(xml: str, offset: str, objective: str = "<objective>20</objective>") -> str:
    (image,) = re.findall(r"<image .*?</image>", xml)
    other = re.sub(r'offsetX="\d+"', f'offsetX="{offset}"', image)
    return xml.replace(image, image + re.sub(r"<objective>\d+</objective>", objective, other))


_STATEMENTS: dict[str, Any] = {
    "text": "bounds", "a number": 7, "a list": ["bounds"], "an empty object": {},
    "another origin": {"origin": "corner"},
    "an origin in capitals": {"origin": "BOUNDS"}, "no text": {"origin": 1}, "null": {"origin": None},
    "an escape sequence": {"origin": "\x1b[2J"}, "a text of 100,000 characters": {"origin": "b" * 100_000},
    "bounds of another slide": {"origin": "bounds", "bounds_xy": [1, 2]},
    "x and y exchanged": {"origin": "bounds", "bounds_xy": [40, 60]},
    "one number": {"origin": "bounds", "bounds_xy": [60]}, "three": {"origin": "bounds", "bounds_xy": [60, 40, 0]},
    "a fraction": {"origin": "bounds", "bounds_xy": [60.5, 40]},
    "texts": {"origin": "bounds", "bounds_xy": ["60", "40"]},
    "huge numbers": {"origin": "bounds", "bounds_xy": [1e300, 40]}, "an object": {"origin": "bounds", "bounds_xy": {}},
    "true": {"origin": "bounds", "bounds_xy": [True, False]},
}  # fmt: skip

_GOOD: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[int, int]]] = {
    "none": ({}, (), CORNER_YX),
    "bounds": ({"histo_monai": {"origin": "bounds"}}, (), CORNER_YX),
    "bounds and their corner": ({"histo_monai": {"origin": "bounds", "bounds_xy": [60, 40]}}, (), CORNER_YX),
    "canvas": ({"histo_monai": {"origin": "canvas"}}, (), (0, 0)),
    "canvas by the call": ({}, ("--origin", "canvas"), (0, 0)),
    "bounds by both": ({"histo_monai": {"origin": "bounds"}}, ("--origin", "bounds"), CORNER_YX),
    "null": ({"histo_monai": None}, (), CORNER_YX),
    "members of other programs": ({"origin": [9, 9], "bounds_xy": 3, "crs": {}}, (), CORNER_YX),
}

_CALLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "an origin that is none": (("--slide", "a.scn", "--origin", "corner"), ("--origin",)),
    "an empty origin": (("--slide", "a.scn", "--origin", ""), ("--origin",)),
    "an origin without the slide": (("--origin", "canvas"), ("--slide",)),
    "a slide that is not there": (("--slide", "none.scn"), ("none.scn",)),
    "a slide that is text": (("--slide", "a.geojson"), ("a.geojson",)),
    "a slide that is a folder": (("--slide", "."), ()),
}


def _good_inputs() -> None:
    _scn()
    _geojson()


def _cell(name: str, column: str, value: str) -> Callable[[], None]:
    """The first row of a table of the project has a value in a new column."""

    def change() -> None:
        path = OWN / name
        lines = path.read_text().splitlines()
        lines = [f"{line},{column if i == 0 else value if i == 1 else ''}" for i, line in enumerate(lines)]
        write_text(path, "\n".join(lines) + "\n")

    return change


def _scns() -> Iterator[Case]:
    for place, pattern in _PLACES.items():
        for kind, number in _NUMBERS.items():
            text = re.sub(r"\\d\+", number, pattern.replace('ifd="0"', f'ifd="{number}"'))
            yield Case(
                SCN, f"{place} {kind}", TO_XML, partial(_both, _swap(pattern, text)), ("a.scn",), EITHER,
                check=_is_shifted_as_stated, leaves=("b.xml",),
            )  # fmt: skip
    for name, change in TREES.items():
        yield Case(
            SCN, name, TO_XML, partial(_both, change), ("a.scn",), EITHER, check=_is_shifted_as_stated,
            leaves=("b.xml",),
        )  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    yield from _scns()
    for name, stated in _STATEMENTS.items():

        def prepare(stated: Any = stated) -> None:
            _scn()
            _geojson(histo_monai=stated)

        yield Case(ORIGIN, f"stated: {name}", TO_XML, prepare, ("a.geojson",), REFUSED)
    for name, (members, more, corner_yx) in _GOOD.items():

        def prepare_good(members: dict[str, Any] = members) -> None:
            _scn()
            _geojson(**members)

        yield Case(
            ORIGIN, f"read: {name}", (*TO_XML, *more), prepare_good, (), ACCEPTED,
            check=partial(_begins_at, corner_yx), leaves=("b.xml",),
        )  # fmt: skip
    for name, (more, mentions) in _CALLS.items():
        yield Case(ORIGIN, f"called: {name}", (*TO_XML[:3], *more), _good_inputs, mentions, REFUSED)
    for value in ("Bounds", "canvas;bounds", "0", "QuPath", "\x1b[2J", "b" * 3000):
        for table, column in (("slides.csv", "annotation_origin"), ("patches.csv", "origin")):
            yield Case(
                ORIGIN, f"{table}: {value[:20]!r}", ("index",), _cell(table, column, value),
                (table, "row 2"), REFUSED,
            )  # fmt: skip
