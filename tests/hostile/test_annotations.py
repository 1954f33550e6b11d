"""Annotation files made to hurt: each is read or refused in one line that names it."""

from __future__ import annotations

import os
import socket
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from histo_monai.__main__ import main
from histo_monai.slides.annotations import (
    LeftOut,
    Point,
    Region,
    rasterize_regions,
    read_annotations,
    read_geojson,
    write_annotations,
)
from histo_monai.slides.annotations.content import MOST_BYTES
from tests.hostile.fuzz_annotations import fuzz, one_line

BOX = np.array([(0, 0), (0, 10), (10, 10), (10, 0)], float)
SQUARE = "[[0,0],[8,0],[8,8],[0,8],[0,0]]"


def polygon(rings: str, properties: str = "{}") -> str:
    return feature(f'{{"type":"Polygon","coordinates":{rings}}}', properties)


def feature(geometry: str, properties: str = "{}") -> str:
    return f'[{{"type":"Feature","geometry":{geometry},"properties":{properties}}}]'


def asap(
    points: str = '<Coordinate Order="0" X="0" Y="0"/><Coordinate Order="1" X="9" Y="0"/>'
    '<Coordinate Order="2" X="9" Y="9"/>',
    attributes: str = 'Name="A" Type="Polygon" PartOfGroup="Tumor"',
    before: str = "",
) -> str:
    return (
        f"{before}<ASAP_Annotations><Annotations><Annotation {attributes}><Coordinates>{points}</Coordinates>"
        "</Annotation></Annotations></ASAP_Annotations>"
    )


def bomb(depth: int) -> str:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "ha"}">' for n in range(depth))
    return f"<!DOCTYPE a [{entities}]>"


def at(x: str) -> str:
    return asap(f'<Coordinate Order="0" X="{x}" Y="0"/>')


REFUSED_XML: dict[str, tuple[str | bytes, str]] = {
    "nothing in it": (b"", "is empty"),
    "blanks": (b" \n", "not XML"),
    "random bytes": (bytes(range(256)), "not XML"),
    "NUL in a name": (asap(attributes='Name="A\0" Type="Polygon"'), "not XML"),
    "NUL as a reference": (asap(attributes='Name="A&#0;" Type="Polygon"'), "not XML"),
    "a bell in a name": (asap(attributes='Name="A\x07" Type="Polygon"'), "not XML"),
    "not UTF-8": (asap(attributes='Name="\xe4" Type="Polygon"').encode("latin-1"), "not XML"),
    "an unknown encoding": (asap(before='<?xml version="1.0" encoding="klingon"?>'), "unknown encoding"),
    "an encoding that is none": (asap(before='<?xml version="1.0" encoding="zip"?>'), "not XML"),
    "an encoding of many bytes": (asap(before='<?xml version="1.0" encoding="gbk"?>'), "multi-byte"),
    "entities that laugh": (asap(before=bomb(12), attributes='Name="&e11;" Type="Polygon"'), "<!DOCTYPE>"),
    "entities, quadratic": (asap(before=f'<!DOCTYPE a [<!ENTITY x "{"a" * 9**5}">]>'), "<!DOCTYPE>"),
    "a document type alone": (asap(before="<!DOCTYPE ASAP_Annotations>"), "<!DOCTYPE>"),
    "a million elements deep": (b"<a>" * 10**6, "not XML"),
    "a million deep and closed": (b"<a>" * 10**6 + b"</a>" * 10**6, "its root is <a>"),
    "a root of a megabyte": (b"<" + b"a" * 2**20 + b"/>", "its root is <aaaa"),
    "an attribute twice": (asap(attributes='Name="A" Name="B"'), "duplicate attribute"),
    "two documents": (asap() + asap(), "junk after document element"),
    "HTML": ("<html><body>Not found</body></html>", "its root is <html>"),
    "another namespace": ('<ASAP_Annotations xmlns="urn:x"/>', "its root is <{urn:x}ASAP_Annotations>"),
    "a type of a megabyte": (asap(attributes=f'Type="{"x" * 2**20}"'), "is unknown; known"),
    "a group of two lines": (asap(attributes='Type="Polygon" PartOfGroup="a&#10;b"'), "control characters"),
    "holes only": (asap(attributes='Type="Polygon" PartOfGroup="Exclusion"'), "outlines holes only"),
    "no coordinate": (asap(points=""), "holds no outline"),
    "one place, thrice": (
        asap("".join(f'<Coordinate Order="{n}" X="1" Y="1"/>' for n in range(3))),
        "holds no outline",
    ),
    "infinity": (at("inf"), "X of a coordinate is 'inf'"),
    "not a number": (at("NaN"), "X of a coordinate is 'NaN'"),
    "beyond floats": (at("1e400"), "X of a coordinate is '1e400'"),
    "beyond slides": (at("-1000000001"), "within a billion"),
    "a hundred thousand digits": (at("9" * 10**5), "X of a coordinate is '999"),
    "hexadecimal": (at("0x10"), "X of a coordinate is '0x10'"),
    "lines in a number": (at("1&#10;2"), r"X of a coordinate is '1\n2'"),
    "Order of an octillion": (asap('<Coordinate Order="1e27" X="0" Y="0"/>'), "Order of a coordinate is '1e27'"),
    "Order by halves": (asap('<Coordinate Order="0.5" X="0" Y="0"/>'), "Order '0.5' is not whole"),
}  # fmt: skip

REFUSED_GEOJSON: dict[str, tuple[str | bytes, str]] = {
    "nothing in it": (b"", "is empty"),
    "a byte order mark alone": (b"\xef\xbb\xbf", "not JSON"),
    "not UTF-8": (b'["\xff\xff"]', "not JSON"),
    "half of UTF-16": ("[]".encode("utf-16")[:-1], "not JSON"),
    "NUL": (b"\0\0\0\0", "not JSON"),
    "brackets, a million": ("[" * 10**6, "not JSON"),
    "brackets, a million, closed": ("[" * 10**6 + "]" * 10**6, "not JSON"),
    "objects in objects": ('{"a":' * 10**5, "not JSON"),
    "coordinates 900 deep": (polygon("[" * 900 + "]" * 900), "where a coordinate"),
    "coordinates 5 deep": (polygon(f"[[{SQUARE}]]"), "where a coordinate"),
    "parents 900 deep": (
        polygon(f"[{SQUARE}]", '{"classification":' + '{"name":3,"parentClass":' * 900 + "null" + "}" * 901),
        "its classification has no name",
    ),
    "infinity": (polygon("[[[0,0],[Infinity,0],[8,8]]]"), "where a coordinate"),
    "beyond floats": (polygon("[[[0,0],[1e400,0],[8,8]]]"), "where a coordinate"),
    "beyond slides": (polygon("[[[0,0],[1e300,0],[8,8]]]"), "within a billion"),
    "a number of a hundred thousand digits": (polygon(f"[[[0,0],[{'9' * 10**5},0],[8,8]]]"), "where a coordinate"),
    "numbers as text": (polygon('[[["0","0"],["8","0"],["8","8"]]]'), "['0', '0'] where a coordinate"),
    "one of two numbers": (polygon("[[[0],[8,0],[8,8]]]"), "[0.0] where a coordinate"),
    "truth for a number": (polygon("[[[0,0],[true,0],[8,8]]]"), "[True, 0.0] where"),
    "nothing for a number": (polygon("[[[0,0],[null,0],[8,8]]]"), "[None, 0.0] where"),
    "an object for a ring": (polygon("[{}]"), "{} where a list of coordinates"),
    "text for rings": (polygon('"' + "x" * 2**20 + '"'), "where a list of outlines"),
    "a ring of a million words": (polygon("[[" + ",".join(['"x"'] * 10**6) + "]]"), "'x' where a coordinate"),
    "no ring": (polygon("[]"), "a polygon without an outline"),
    "no geometry": ('[{"type":"Feature"}]', "no geometry"),
    "null geometry": (feature("null"), "no geometry"),
    "a geometry of no type": (feature("{}"), "no geometry"),
    "a class of two lines": (polygon(f"[{SQUARE}]", r'{"classification":{"name":"a\nb"}}'), "control characters"),
    "a class with NUL": (polygon(f"[{SQUARE}]", r'{"classification":"a\u0000"}'), "control characters"),
    "a class with half a character": (
        polygon(f"[{SQUARE}]", r'{"classification":{"name":"\ud800"}}'),
        "control characters",
    ),
    "a class that is a list": (polygon(f"[{SQUARE}]", '{"classification":{"name":["a"]}}'), "has no name"),
    "a name that is a list": (polygon(f"[{SQUARE}]", '{"name":[[[["a"]]]]}'), "its name is [[[...]]]"),
    "a name with half a character": (polygon(f"[{SQUARE}]", r'{"name":"\udfff"}'), r"its name is '\udfff'"),
    "measurements by lists": (polygon(f"[{SQUARE}]", '{"measurements":[{"name":[]}]}'), "are no table"),
    "children that are no list": (polygon(f"[{SQUARE}]", '{"childObjects":{}}'), "childObjects is not a list"),
    "a child that is a number": (polygon(f"[{SQUARE}]", '{"childObjects":[3]}'), "child 1: not a feature"),
    "a number": ("1" * 10**5, "not GeoJSON"),
    "two documents": ("[][]", "not JSON"),
}  # fmt: skip


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        read_annotations(path)
    message = str(caught.value)
    one_line(message)
    assert message.startswith(str(path))
    assert len(message) < len(str(path)) + 300
    return message


@pytest.mark.parametrize("case", REFUSED_XML)
def test_hostile_asap_files_are_refused_in_one_line(tmp_path: Path, case: str) -> None:
    content, says = REFUSED_XML[case]
    path = tmp_path / "a.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert says in refused(path)


@pytest.mark.parametrize("case", REFUSED_GEOJSON)
def test_hostile_geojson_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    content, says = REFUSED_GEOJSON[case]
    path = tmp_path / "a.geojson"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert says in refused(path)


def test_an_entity_bomb_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(asap(before=bomb(30), attributes='Name="&e29;" Type="Polygon"'))
    tracemalloc.start()
    refused(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24


def test_an_external_entity_reads_no_file_and_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("Tumor")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        for place in ("file://" + str(tmp_path / "secret"), f"http://127.0.0.1:{server.getsockname()[1]}/x"):
            for doctype in (f'<!DOCTYPE a [<!ENTITY x SYSTEM "{place}">]>', f'<!DOCTYPE a SYSTEM "{place}">'):
                path = tmp_path / "a.xml"
                path.write_text(asap(before=doctype, attributes='Type="Polygon" PartOfGroup="&x;"'))
                assert "<!DOCTYPE>" in refused(path)
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("suffix", [".xml", ".geojson"])
@pytest.mark.parametrize(
    "kind", ["pipe", "folder", "link to a pipe", "link to itself", "device", "too large"]
)
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, suffix: str, kind: str) -> None:
    path = tmp_path / f"a{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to a pipe":
        os.mkfifo(tmp_path / "pipe")
        path.symlink_to("pipe")
    elif kind == "link to itself":
        path.symlink_to(path.name)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as file:
            file.truncate(MOST_BYTES + 1)
    messages: list[str] = []
    thread = threading.Thread(target=lambda: messages.append(refused(path)), daemon=True)
    thread.start()
    thread.join(20)
    assert messages, "it waits"
    assert ("MiB" if kind == "too large" else "cannot be read") in messages[0]


@pytest.mark.parametrize("encode", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_encoding_of_unicode_is_read(tmp_path: Path, encode: str) -> None:
    text = polygon(f"[{SQUARE}]", '{"classification":{"name":"Tumör"}}')
    path = tmp_path / "a.geojson"
    path.write_bytes(text.encode(encode))
    assert [one.label for one in read_annotations(path)[0]] == ["Tumör"]
    if encode in ("utf-8", "utf-8-sig", "utf-16"):
        xml = asap(attributes='Name="A" Type="Polygon" PartOfGroup="Tumör"')
        path.with_suffix(".xml").write_bytes(xml.encode(encode))
        assert [one.label for one in read_annotations(path.with_suffix(".xml"))[0]] == ["Tumör"]


READ: dict[str, tuple[str, float, list[str]]] = {
    "closed twice": (polygon("[[[0,0],[8,0],[8,8],[0,8],[0,0],[0,0]]]"), 64, []),
    "every point twice": (polygon("[[[0,0],[0,0],[8,0],[8,0],[8,8],[8,8],[0,8]]]"), 64, []),
    "a bow tie": (polygon("[[[0,0],[8,8],[8,0],[0,8]]]"), 32, []),
    "a hole outside": (polygon(f"[{SQUARE},[[20,20],[30,20],[30,30]]]"), 64, []),
    "a hole twice": (polygon(f"[{SQUARE},[[2,2],[6,2],[6,6],[2,6]],[[2,2],[6,2],[6,6],[2,6]]]"), 48, []),
    "a hole larger than it": (polygon(f"[{SQUARE},[[-9,-9],[20,-9],[20,20],[-9,20]]]"), 0, []),
    "a flat hole": (polygon(f"[{SQUARE},[[2,2],[6,2],[4,2]]]"), 64, ["1 outline without area"]),
    "a flat outline": (polygon("[[[0,0],[8,0],[4,0]]]"), 0, ["1 outline without area"]),
    "there and back": (polygon("[[[0,0],[8,0],[8,8],[8,0],[3,0],[3,5],[3,0]]]"), 0, ["1 outline without area"]),
    "no point": (polygon("[[]]"), 0, ["1 outline without area"]),
    "with heights": (polygon("[[[0,0,5],[8,0,5],[8,8],[0,8,1]]]"), 64, []),
    "children": (
        polygon(f"[{SQUARE}]", '{"childObjects":[' + polygon("[[[20,20],[28,20],[28,28]]]")[1:-1] + "]}"), 96, [],
    ),
    "parts": (
        feature(f'{{"type":"MultiPolygon","coordinates":[[{SQUARE}],[[[0,0],[1,1]]],[[[20,0],[28,0],[28,8]]]]}}'),
        96,
        ["1 outline without area"],
    ),
    "other shapes": (
        feature('{"type":"GeometryCollection","geometries":[]}')[:-1] + ","
        + feature('{"type":"LineString","coordinates":[[0,0],[1,1]]}')[1:-1] + ","
        + feature(f'{{"type":"{"x" * 10**5}"}}')[1:-1] + ","
        + polygon(f"[{SQUARE}]")[1:],
        64,
        ["of type GeometryCollection", "of type LineString", "1 shape of unknown type"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_odd_geojson_keeps_its_area_and_what_is_left_out_is_told(tmp_path: Path, case: str) -> None:
    content, area, told = READ[case]
    path = tmp_path / "a.geojson"
    path.write_text(content)
    left_out: list[LeftOut] = []
    regions, _ = read_geojson(path, left_out.append)
    mask = rasterize_regions(regions, downsample=0.25, shape=(200, 200), corner_yx=(-40, -40))
    assert mask.sum() / 16 == pytest.approx(area, rel=0.05)
    for line, says in zip(map(str, left_out), told, strict=True):
        one_line(line)
        assert says in line


def deep_children(depth: int) -> str:
    text = polygon(f"[{SQUARE}]")[1:-1]
    for _ in range(depth):
        text = polygon(f"[{SQUARE}]", f'{{"childObjects":[{text}]}}')[1:-1]
    return f"[{text}]"


@pytest.mark.parametrize("make", [deep_children, lambda depth: polygon("[" * depth + "]" * depth)])
def test_no_depth_of_nesting_is_a_recursion_error(tmp_path: Path, make: Callable[[int], str]) -> None:
    path = tmp_path / "a.geojson"
    for depth in (*range(1, 60, 7), *range(300, 1000, 11), 5000):
        path.write_text(make(depth))
        try:
            read_annotations(path)
        except ValueError as error:
            one_line(str(error))


CONTROL = [chr(code) for code in (*range(1, 32), 0x7F, 0x85, 0x2028, 0xFFFE, 0xFFFF)]


@pytest.mark.parametrize("sign", CONTROL, ids=lambda sign: f"{ord(sign):04x}")
def test_names_with_control_characters_come_back_or_are_refused(tmp_path: Path, sign: str) -> None:
    region = Region(BOX, label="Tumor", name=f"a{sign}b")
    write_annotations(tmp_path / "a.geojson", [region])
    assert read_annotations(tmp_path / "a.geojson")[0][0].name == region.name
    xml = tmp_path / "a.xml"
    if sign in "\t\n\r\x7f\x85\u2028":
        write_annotations(xml, [region])
        assert read_annotations(xml)[0][0].name == region.name
    else:
        with pytest.raises(ValueError, match=r"a\.xml, region 1: its name 'a\\.*' has control") as caught:
            write_annotations(xml, [region])
        one_line(str(caught.value))
        assert not xml.exists()


@pytest.mark.parametrize("suffix", [".xml", ".geojson"])
def test_half_a_character_is_never_written(tmp_path: Path, suffix: str) -> None:
    for region, point in (
        (Region(BOX, label="a\ud800"), Point((0, 0))),
        (Region(BOX, name="a\ud800"), Point((0, 0))),
        (Region(BOX), Point((0, 0), "a\ud800")),
    ):
        with pytest.raises(ValueError, match=r"(region|point) 1: its ") as caught:
            write_annotations(tmp_path / f"a{suffix}", [region], [point])
        one_line(str(caught.value))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[" * 10**5, polygon("[[[0,0],[1e999,0],[1,1]]]")])
def test_the_command_ends_with_one_line_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "a.geojson").write_text(content)
    assert main(["convert", str(tmp_path / "a.geojson"), str(tmp_path / "b.xml")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"histo-monai convert: error: {tmp_path / 'a.geojson'}")
    assert [path.name for path in tmp_path.iterdir()] == ["a.geojson"]


def test_files_changed_at_random_are_read_or_refused(tmp_path: Path) -> None:
    counts = fuzz(400, seed=7, folder=tmp_path)
    assert sum(counts.values()) == 800
    assert min(counts.values()) > 10
