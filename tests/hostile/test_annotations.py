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

from histo_monai.pipeline.cli import main
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
from tests.hostile.annotation_cases import (
    READ,
    REFUSED_GEOJSON,
    REFUSED_XML,
    SQUARE,
    asap,
    bomb,
    polygon,
)
from tests.hostile.fuzz_annotations import fuzz, one_line

BOX = np.array([(0, 0), (0, 10), (10, 10), (10, 0)], float)


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
    content, message = REFUSED_XML[case]
    path = tmp_path / "a.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused(path)


@pytest.mark.parametrize("case", REFUSED_GEOJSON)
def test_hostile_geojson_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    content, message = REFUSED_GEOJSON[case]
    path = tmp_path / "a.geojson"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert message in refused(path)


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
    message = {"folder": "is a folder", "too large": "more than", "link to itself": "cannot be read"}
    assert message.get(kind, "is a pipe, socket or device") in messages[0]


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


@pytest.mark.parametrize("case", READ)
def test_odd_geojson_keeps_its_area_and_what_is_left_out_is_reported(tmp_path: Path, case: str) -> None:
    content, area, messages = READ[case]
    path = tmp_path / "a.geojson"
    path.write_text(content)
    left_out: list[LeftOut] = []
    regions, _ = read_geojson(path, left_out.append)
    mask = rasterize_regions(regions, downsample=0.25, shape=(200, 200), corner_yx=(-40, -40))
    assert mask.sum() / 16 == pytest.approx(area, rel=0.05)
    for line, message in zip(map(str, left_out), messages, strict=True):
        one_line(line)
        assert message in line


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
