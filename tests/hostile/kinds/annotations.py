"""Outlines of ASAP and QuPath: no XML and no JSON, bombs, and outlines that enclose nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.hostile.case import ACCEPTED, EITHER, Case
from tests.hostile.project import write_text
from tests.hostile.trees import LESION, asap

XML, GEOJSON = "ASAP XML", "GeoJSON"
OUT_XML, OUT_GEOJSON = ("convert", "a.xml", "b.geojson"), ("convert", "a.geojson", "b.xml")
GOOD = ("_0", "Tumor", LESION)
START = '<?xml version="1.0"?><ASAP_Annotations><Annotations>'
END = "</Annotations></ASAP_Annotations>"


def _one(kind: str = "Polygon", coordinates: str = "", **attributes: str) -> str:
    more = "".join(
        f' {name}="{value}"' for name, value in {"Name": "odd", "PartOfGroup": "Tumor", **attributes}.items()
    )
    return f'<Annotation Type="{kind}"{more}><Coordinates>{coordinates}</Coordinates></Annotation>'


def _points(*places: tuple[Any, Any]) -> str:
    return "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}" />' for i, (y, x) in enumerate(places))


TRIANGLE = _points((0, 0), (0, 9), (9, 9))
LAUGHS = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))

BAD_XML: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "an empty file": ("", ()),
    "text": ("outlines", ()),
    "half a file": (asap(GOOD)[:200], ()),
    "another root": ("<Aperio><Annotations/></Aperio>", ("ASAP_Annotations",)),
    "ImageScope's XML": ('<Annotations MicronsPerPixel="0.25"><Annotation/></Annotations>', ("ASAP_Annotations",)),
    "a tag that is not closed": (START + "<Annotation>" + END, ()),
    "a billion laughs": (
        f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]>{START}{_one(Name="&l9;", coordinates=TRIANGLE)}{END}', (),
    ),
    "one entity a hundred thousand times": (
        f'<!DOCTYPE a [<!ENTITY l "{"h" * 10**5}">]>{START}{_one(Name="&l;" * 20_000, coordinates=TRIANGLE)}{END}', (),
    ),
    "an entity from a file": (
        f'<!DOCTYPE a [<!ENTITY l SYSTEM "file:///etc/passwd">]>{START}{_one(Name="x", coordinates="&l;")}{END}', (),
    ),
    "200,000 tags in one another": ("<a>" * 200_000 + "</a>" * 200_000, ()),
    "a null character": (asap(GOOD).replace("_0", "_\0", 1), ()),
    "bytes that are no UTF-8": (asap(GOOD).encode().replace(b"_0", b"_\xff", 1), ()),
    "an encoding that nobody knows": ('<?xml version="1.0" encoding="klingon"?><ASAP_Annotations/>', ()),
    "a type that nobody knows": (START + _one("Hexagon", TRIANGLE) + END, ("odd", "Hexagon")),
    "no type": (START + _one("", TRIANGLE) + END, ("odd",)),
    "a place in words": (START + _one(coordinates=_points((0, 0), ("nine", 9), (9, 9))) + END, ("odd", "nine")),
    "a place of nan": (START + _one(coordinates=_points((0, 0), ("nan", 9), (9, 9))) + END, ("odd", "nan")),
    "an infinite place": (START + _one(coordinates=_points((0, 0), ("1e999", 9), (9, 9))) + END, ("odd",)),
    "a place without X": (START + _one(coordinates=TRIANGLE.replace('X="9"', "", 1)) + END, ("odd", "X")),
    "an order that comes twice": (START + _one(coordinates=TRIANGLE.replace('"1"', '"0"', 1)) + END, ("odd",)),
    "an order in words": (START + _one(coordinates=TRIANGLE.replace('Order="1"', 'Order="b"', 1)) + END, ("odd",)),
    "an order of 1.5": (START + _one(coordinates=TRIANGLE.replace('Order="1"', 'Order="1.5"', 1)) + END, ("odd",)),
    "a name of two lines in an error": (START + _one("Hexagon", TRIANGLE, Name="o&#10;dd") + END, ("Hexagon",)),
    "a name of 5,000 characters in an error": (START + _one("Hexagon", TRIANGLE, Name="o" * 5000) + END, ("Hexagon",)),
    "a right-to-left override in an error": (START + _one("Hexagon", TRIANGLE, Name="&#8238;ddo") + END, ("Hexagon",)),
    "an outline beyond every slide": (asap(("odd", "Tumor", ((-9e9, -9e9), (-9e9, 9e9), (9e9, 0)))), ("odd",)),
}  # fmt: skip

ODD_XML: dict[str, tuple[str | bytes, int | None, tuple[str, ...], int | None]] = {
    "no annotation at all": (START + END, ACCEPTED, ("1 file without annotation",), 0),
    "an outline without points": (START + _one() + END, ACCEPTED, ("1 outline without area",), 0),
    "an outline of two points beside a good one": (
        START + _one(coordinates=_points((0, 0), (9, 9))) + asap(GOOD)[len(START) :], ACCEPTED, ("1",), 1,
    ),
    "an outline of one point beside a good one": (
        START + _one(coordinates=_points((0, 0))) + asap(GOOD)[len(START) :], ACCEPTED, ("1",), 1,
    ),
    "an outline of no area beside a good one": (
        START + _one(coordinates=_points((0, 0), (5, 5), (9, 9))) + asap(GOOD)[len(START) :], ACCEPTED, ("1",), 1,
    ),
    "one place a hundred times beside a good outline": (
        START + _one(coordinates=_points(*[(7, 7)] * 100)) + asap(GOOD)[len(START) :], ACCEPTED, ("1",), 1,
    ),
    "holes alone": (asap(("_0", "Exclusion", LESION)), EITHER, ("a.xml",), None),
    "decimal commas": (asap(GOOD).replace("120", "120,5"), ACCEPTED, (), 1),
    "UTF-16": (asap(GOOD).replace('"1.0"', '"1.0" encoding="utf-16"').encode("utf-16"), ACCEPTED, (), 1),
    "orders from 7 on": (asap(GOOD).replace('Order="0"', 'Order="17"'), ACCEPTED, (), 1),
    "a name of an escape sequence": (asap(GOOD).replace("_0", "&#27;[2J", 1), EITHER, (), None),
    "an outline that crosses itself": (
        asap(("_0", "Tumor", ((0, 0), (90, 90), (0, 90), (90, 0)))), ACCEPTED, (), 1,
    ),
    "20,000 outlines": (
        asap(*[(f"_{i}", "Tumor", ((i, i), (i, i + 9), (i + 9, i))) for i in range(20_000)]), ACCEPTED, (), 20_000,
    ),
    "an outline of 100,000 points": (
        asap(("_0", "Tumor", tuple((i % 317, i // 317) for i in range(100_000)))), ACCEPTED, (), 1,
    ),
}  # fmt: skip


def _feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "geometry": geometry,
        "properties": {"classification": {"name": "Tumor"}, **properties},
    }


def _collection(*features: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": list(features)})


def _polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def _nested(depth: int) -> dict[str, Any]:
    feature = _feature(_polygon(RING))
    for _ in range(depth):
        feature = _feature(_polygon(RING), childObjects=[feature])
    return feature


RING = [[0, 0], [90, 0], [90, 90], [0, 0]]


def _parents(depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {"name": "a"}
    for _ in range(depth):
        result = {"name": "a", "parentClass": result}
    return result


GOOD_FEATURE = _feature(_polygon(RING))

BAD_JSON: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "an empty file": ("", ()),
    "text": ("outlines", ()),
    "half a file": (_collection(GOOD_FEATURE)[:60], ()),
    "a number": ("17", ()),
    "null": ("null", ()),
    "no features": ('{"type": "FeatureCollection"}', ()),
    "features that are a text": ('{"type": "FeatureCollection", "features": "many"}', ()),
    "a feature that is a number": (_collection(17), ("feature 1",)),
    "a geometry without a type": (_collection(_feature({"coordinates": [RING]})), ("feature 1",)),
    "coordinates that are null": (_collection(_feature({"type": "Polygon", "coordinates": None})), ("feature 1",)),
    "coordinates that are a text": (_collection(_feature({"type": "Polygon", "coordinates": "x"})), ("feature 1",)),
    "one pair of brackets too few": (_collection(_feature({"type": "Polygon", "coordinates": RING})), ("feature 1",)),
    "one pair of brackets too many": (_collection(_feature(_polygon([RING]))), ("feature 1",)),
    "a place in words": (_collection(_feature(_polygon([["a", "b"], *RING[1:]]))), ("feature 1",)),
    "a place of one number": (_collection(_feature(_polygon([[1], *RING[1:]]))), ("feature 1",)),
    "a place of NaN": (_collection(GOOD_FEATURE).replace("[90, 0]", "[NaN, 0]"), ("feature 1",)),
    "an infinite place": (_collection(GOOD_FEATURE).replace("[90, 0]", "[Infinity, 0]"), ("feature 1",)),
    "a place of 10^400": (_collection(GOOD_FEATURE).replace("[90, 0]", f"[1{'0' * 400}, 0]"), ("feature 1",)),
    "a place of a million digits": (_collection(GOOD_FEATURE).replace("[90, 0]", f"[{'9' * 10**6}, 0]"), ()),
    "true as a place": (_collection(GOOD_FEATURE).replace("[90, 0]", "[true, 0]"), ("feature 1",)),
    "a class that is a list": (_collection(_feature(_polygon(RING), classification=[1])), ("feature 1",)),
    "measurements that are a number": (_collection(_feature(_polygon(RING), measurements=7)), ("feature 1",)),
    "children that are a number": (_collection(_feature(_polygon(RING), childObjects=7)), ("feature 1",)),
    "a bad child": (_collection(_feature(_polygon(RING), childObjects=[{"type": "no"}])), ("feature 1", "child 1")),
    "100,000 brackets": ("[" * 100_000, ()),
    "100,000 objects in one another": ('{"features":' * 100_000, ()),
    "a parent class 50,000 deep": (
        _collection(_feature(_polygon(RING), classification="?")).replace(
            '"?"', '{"name": "a", "parentClass": ' * 50_000 + "null" + "}" * 50_000
        ), (),
    ),
    "bytes that are no text": (bytes(range(256)) * 64, ()),
    "a name with an escape sequence in an error": (
        _collection(GOOD_FEATURE, _feature(_polygon([["\x1b[2J", 0], *RING]))), ("feature 2",),
    ),
    "a gzip": (b"\x1f\x8b\x08\0" + bytes(100), ()),
}  # fmt: skip

ODD_JSON: dict[str, tuple[str | bytes, int | None, tuple[str, ...]]] = {
    "a byte order mark": (b"\xef\xbb\xbf" + _collection(GOOD_FEATURE).encode(), ACCEPTED, ()),
    "UTF-16": (_collection(GOOD_FEATURE).encode("utf-16"), ACCEPTED, ()),
    "a feature without geometry": (_collection(_feature(None), GOOD_FEATURE), ACCEPTED, ("1 feature without",)),
    "a polygon without rings": (_collection(_feature(_polygon()), GOOD_FEATURE), ACCEPTED, ("1 feature without",)),
    "a bare list": (json.dumps([GOOD_FEATURE]), ACCEPTED, ()),
    "one feature": (json.dumps(GOOD_FEATURE), ACCEPTED, ()),
    "a line beside a polygon": (
        _collection(_feature({"type": "LineString", "coordinates": RING}), GOOD_FEATURE), ACCEPTED, ("LineString",),
    ),
    "an outline of two points beside a good one": (
        _collection(_feature(_polygon(RING[:2])), GOOD_FEATURE), EITHER, ("feature 1",),
    ),
    "an outline of no area beside a good one": (
        _collection(_feature(_polygon([[0, 0], [1, 1], [2, 2], [0, 0]])), GOOD_FEATURE), ACCEPTED, ("1",),
    ),
    "a ring that is not closed": (_collection(_feature(_polygon(RING[:3]))), ACCEPTED, ()),
    "places of three numbers": (_collection(_feature(_polygon([[*place, 0] for place in RING]))), ACCEPTED, ()),
    "a class of an escape sequence": (
        _collection(_feature(_polygon(RING), classification={"name": "\x1b[2J"})), EITHER, (),
    ),
    "a class of half a surrogate pair": (
        _collection(_feature(_polygon(RING), classification={"name": "\ud800"})), EITHER, (),
    ),
    "a class of a null character": (_collection(_feature(_polygon(RING), classification={"name": "a\0b"})), EITHER, ()),
    "a parent class 900 deep": (
        _collection(_feature(_polygon(RING), classification=_parents(900))), EITHER, ("a.geojson",),
    ),
    "the same key twice": (
        '{"type": "x", "type": "FeatureCollection", "features": [' + json.dumps(GOOD_FEATURE) + "]}", EITHER, (),
    ),
    "20,000 polygons": (
        _collection(*[_feature(_polygon([[x + i, y + i] for x, y in RING])) for i in range(20_000)]), ACCEPTED, (),
    ),
    "children 300 deep": (_collection(_nested(300)), ACCEPTED, ()),
}  # fmt: skip


def _file(name: str, content: str | bytes) -> Callable[[], None]:
    return lambda: write_text(name, content)


def _converts_to(num: int | None) -> Callable[[], None]:
    def check() -> None:
        content = json.loads(Path("b.geojson").read_text())
        assert num is None or len(content["features"]) == num, (
            f"{len(content['features'])} regions, not {num}"
        )

    return check


SPECIAL: dict[str, Callable[[Path], object]] = {
    "no file": lambda path: None,
    "a FIFO": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "an empty device": lambda path: path.symlink_to("/dev/null"),
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a file nobody may read": lambda path: (write_text(path, "{}"), path.chmod(0)),
}


def cases() -> Iterator[Case]:
    """Both kinds."""
    for name, (content, mentions) in BAD_XML.items():
        yield Case(XML, name, OUT_XML, _file("a.xml", content), ("a.xml", *mentions))
    for name, (content, code, mentions, num) in ODD_XML.items():
        yield Case(XML, name, OUT_XML, _file("a.xml", content), mentions, code=code, check=_converts_to(num))
    for name, (content, mentions) in BAD_JSON.items():
        yield Case(GEOJSON, name, OUT_GEOJSON, _file("a.geojson", content), ("a.geojson", *mentions))
    for name, (content, code, mentions) in ODD_JSON.items():
        yield Case(GEOJSON, name, OUT_GEOJSON, _file("a.geojson", content), mentions, code=code)
    for name, make in SPECIAL.items():
        for kind, argv in ((XML, OUT_XML), (GEOJSON, OUT_GEOJSON)):
            yield Case(kind, name, argv, lambda make=make, argv=argv: make(Path(argv[1])), (argv[1],))
