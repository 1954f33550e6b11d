"""Valid annotation files, changed at random: each is read, or refused in one line.

    python -m tests.hostile.fuzz_annotations                # 2,500 files of each format
    python -m tests.hostile.fuzz_annotations --num 100000 --seed 1

Bytes are flipped, deleted, inserted, doubled and swapped; numbers, words and tags are replaced by hostile ones; two
files are grafted into one. What is read must have areas of finite numbers, and can be written and read again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from histo_monai.slides.annotations import Point, Region, read_annotations, write_annotations

TOKENS: tuple[bytes, ...] = (
    b"NaN", b"-Infinity", b"1e400", b"-1e300", b"9" * 5000, b"0x10", b"1_0", b"1,5", b"null", b"true", b"[]", b"{}",
    b"[[[[", b"]]]]", b'"', b"'", b"\\u0000", b"\\ud800", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80",
    b"&#0;", b"&#x10FFFF;", b"&amp;", b"&x;", b"&#10;", b"<", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>",
    b'<!DOCTYPE a [<!ENTITY x "y">]>', b'<?xml version="1.0" encoding="utf-16"?>', b'encoding="zip"', b"Polygon",
    b"MultiPolygon", b"Point", b"MultiPoint", b"GeometryCollection", b"Dot", b"PointSet", b"Spline", b"Measurement",
    b"Feature", b"_2", b"Exclusion", b"None", b"Coordinates", b"Coordinate", b"childObjects", b"parentClass", b"names",
    b"measurements", b"classification", b"-0.0", b"1e-320", b"1000000001", b"\r\n", b"\xc2\x85", b"\xe2\x80\xa8",
)  # fmt: skip


def valid_files(rng: random.Random) -> dict[str, list[bytes]]:
    """Files of either format as this project writes them, and as others do."""
    squares = [np.array([(0, 0), (0, 9), (9, 9), (9, 0)], float) * scale for scale in (1, 10, 0.37)]
    hole = np.array([(1, 1), (1, 2), (2, 2)], float)
    result: dict[str, list[bytes]] = {".xml": [], ".geojson": []}
    with tempfile.TemporaryDirectory() as name:
        for number, square in enumerate(squares):
            regions = [
                Region(square, (hole * (number + 1) / 4,), "Tumor", "a & b\n"),
                Region(square + 500, (), "_1"),
            ]
            for suffix, some in result.items():
                path = Path(name) / f"{number}{suffix}"
                write_annotations(path, regions, [Point((1, 2.5), "Mitosis")])
                some.append(path.read_bytes())
    many: dict[str, Any] = json.loads(result[".geojson"][0])
    feature = many["features"][0]
    feature["properties"]["childObjects"] = [json.loads(json.dumps(many["features"][1]))]
    feature["properties"]["classification"] = {"name": "Positive", "parentClass": {"name": "Tumor"}}
    feature["properties"]["measurements"] = [{"name": "n", "value": 3}, {"name": "x", "value": None}]
    rings = feature["geometry"]["coordinates"]
    feature["geometry"] = {"type": "MultiPolygon", "coordinates": [rings, rings]}
    result[".geojson"] += [json.dumps(many).encode(), json.dumps(many["features"]).encode("utf-16")]
    comma = result[".xml"][1].replace(b".", b",").replace(b'<?xml version="1,0"?>', b"")
    result[".xml"] += [
        comma,
        result[".xml"][2].decode().replace('"1.0"', '"1.0" encoding="utf-16"').encode("utf-16"),
    ]
    for some in result.values():
        rng.shuffle(some)
    return result


def mutated(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """One to six changes."""
    text = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice((1, 1, 2, 8, 40, 400)))
        there = rng.randrange(len(other))
        start, stop = word_at(text, at)
        start, stop, new = rng.choice(
            (
                (at, at + 1, bytes(byte ^ 1 << rng.randrange(8) for byte in text[at : at + 1])),
                (at, end, b""),
                (at, at, rng.choice(TOKENS)),
                (at, at, bytes(text[at:end])),
                (at, end, rng.choice(TOKENS)),
                (at, end, other[there : there + rng.choice((3, 30, 300))]),
                (at, len(text), b""),
                # A word or a number becomes another one: the file often stays well-formed.
                (start, stop, rng.choice(TOKENS)),
                (start, stop, rng.choice(TOKENS)),
                (start, stop, str(rng.choice((0, -1, 7.5, 10**9, rng.random()))).encode()),
            )
        )
        text[start:stop] = new
    return bytes(text)


def word_at(text: bytearray, at: int) -> tuple[int, int]:
    """Where the first word or number from a place on begins and ends."""
    result = re.compile(rb"[\w.-]+").search(text, at)
    return result.span() if result else (at, at)


def outcome(path: Path) -> str:
    """ "read" or "refused"; an `AssertionError` or another exception where it is neither as it should be."""
    refusal = ""
    try:
        regions, points = read_annotations(path, lambda left_out: one_line(str(left_out)))
    except ValueError as error:
        refusal = str(error)
    if refusal:
        one_line(refusal)
        assert refusal.startswith(str(path)), refusal
        return "refused"
    for region in regions:
        for outline in (region.exterior_yx, *region.holes_yx):
            assert np.isfinite(outline).all()
            assert len(outline) >= 3
        one_line(region.label)
    assert all(np.isfinite(point.yx).all() for point in points)
    again = path.with_name("again.geojson")
    write_annotations(again, regions, points)
    regions_again, points_again = read_annotations(again)
    assert [one.label for one in regions_again] == [one.label for one in regions]
    assert len(points_again) == len(points)
    return "read"


def one_line(text: str) -> None:
    """What a message may be."""
    assert not any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in text), repr(text)
    assert len(text) < 600, text


def fuzz(num: int, seed: int, folder: Path) -> Counter[str]:
    """Try `num` files of each format: how many of each were read and refused.

    Raises:
        AssertionError: One was neither; the file is left in `folder`.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    valid = valid_files(rng)
    for suffix, files in valid.items():
        path = folder / f"fuzz{suffix}"
        for _ in range(num):
            path.write_bytes(
                mutated(rng.choice(files), rng.choice(valid[rng.choice((".xml", ".geojson"))]), rng)
            )
            try:
                counts[f"{suffix} {outcome(path)}"] += 1
            except Exception as error:
                raise AssertionError(f"{path}: {type(error).__name__}: {str(error)[:500]}") from error
    return counts


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--num", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    counts = fuzz(arguments.num, arguments.seed, Path(tempfile.mkdtemp()))
    by_kind = ", ".join(f"{name} {num:,}" for name, num in sorted(counts.items()))
    print(f"{sum(counts.values()):,} files: {by_kind}; none otherwise; {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
