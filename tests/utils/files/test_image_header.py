from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from histo_monai.utils.files import trees as files
from histo_monai.utils.files.image_header import image_size
from histo_monai.utils.files.trees import read_bytes, read_image

KINDS = ("png", "jpg", "progressive", "tif", "big-endian", "bigtiff")


def _encoded(kind: str, height: int, width: int) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    into = io.BytesIO()
    if kind == "big-endian":
        tifffile.imwrite(into, pixels, byteorder=">", photometric="rgb")
    elif kind == "bigtiff":
        tifffile.imwrite(into, pixels, bigtiff=True, photometric="rgb")
    else:
        name = {"png": "PNG", "tif": "TIFF"}.get(kind, "JPEG")
        exif = Image.Exif()
        exif[0x9286] = "\xff\xc0" * 20  # a frame header where there is none
        more = {"progressive": True, "exif": exif} if kind == "progressive" else {}
        Image.fromarray(pixels).save(into, name, **more)
    return into.getvalue()


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 70), st.integers(1, 70))
def test_the_size_is_that_of_the_decoded_image(kind: str, height: int, width: int) -> None:
    data = _encoded(kind, height, width)
    decoded = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert image_size(data) == decoded.shape[:2] == (height, width)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 400), st.binary(max_size=12))
def test_a_damaged_header_has_a_size_or_none_and_nothing_else(kind: str, place: int, junk: bytes) -> None:
    data = _encoded(kind, 9, 8)
    for damaged in (data[:place], data[:place] + junk + data[place + len(junk) :], data[:4] + junk):
        size = image_size(damaged)
        assert size is None or min(size) >= 0


def _png_of_stated_size(height: int, width: int) -> bytes:
    """A few bytes of a picture of any size, zeros all over."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    rows = zlib.compress(bytes(1 + 3 * width) * min(height, 100))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_picture_of_a_slides_size_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.png"
    path.write_bytes(_png_of_stated_size(20_000, 20_000))

    def never(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(cv2, "imdecode", never)
    with pytest.raises(
        ValueError, match=r"large\.png: 20000 × 20000 px; a patch has at most 64 million pixels"
    ):
        read_image(path)


def test_a_file_or_member_larger_than_any_table_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(2**30 + 1)  # a hole, which takes no disk
    with pytest.raises(ValueError, match=r"large\.csv: 1\.0 GiB. Fix: use a file of at most"):
        read_bytes(path)
    monkeypatch.setattr(files, "MAX_BYTES", 10**6)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as into:
        into.writestr("bomb.csv", bytes(10**6 + 1))
    with pytest.raises(ValueError, match=r"x\.zip/bomb\.csv: 0\.0 GiB\. Fix"):
        read_bytes(tmp_path / "x.zip/bomb.csv")


def test_a_member_that_unpacks_to_more_than_it_states_is_damaged_and_takes_no_more_memory(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as into:
        into.writestr("bomb.csv", bytes(10**7))
    content = path.read_bytes().replace(struct.pack("<I", 10**7), struct.pack("<I", 100))
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.zip/bomb\.csv: damaged in the zip .*CRC"):
        read_bytes(path / "bomb.csv")
