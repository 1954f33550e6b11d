from __future__ import annotations

import struct

import numpy as np
import pytest
import tifffile

from histo_monai.slides import SlideError
from histo_monai.slides.tiff import is_tiff, read_pages


@pytest.mark.parametrize("bigtiff", [False, True])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_the_tables_agree_with_tifffile(tmp_path, noise, bigtiff, byteorder):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path, bigtiff=bigtiff, byteorder=byteorder) as writer:
        for step in (1, 2):
            writer.write(
                noise[::step, ::step],
                tile=(64, 48),
                photometric="rgb",
                description="Aperio something|MPP = 0.5",
                resolution=(20_000, 10_000),
                resolutionunit="CENTIMETER",
                metadata=None,
            )
    assert is_tiff(path)
    pages = read_pages(path)
    with tifffile.TiffFile(path) as file:
        assert len(pages) == len(file.pages) == 2
        for ours, theirs in zip(pages, file.pages, strict=True):
            assert ours.size_yx == (theirs.imagelength, theirs.imagewidth)
            assert ours.tile_yx == (64, 48)
            assert (ours.compression, ours.num_channels, ours.bits) == (1, 3, 8)
            np.testing.assert_array_equal(ours.offsets, theirs.dataoffsets)
            np.testing.assert_array_equal(ours.counts, theirs.databytecounts)
            assert ours.resolution_yx == (10_000, 20_000)
            assert ours.resolution_unit == 3
            assert ours.description.rstrip("\0") == "Aperio something|MPP = 0.5"


@pytest.mark.parametrize("num_bytes", [3, 6, 60, 2000])
def test_a_tiff_cut_off_in_its_tables_is_reported_as_truncated(write_slide, noise, num_bytes):
    path = write_slide(noise)
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(SlideError, match="truncated"):
        read_pages(path)


def test_directories_that_run_in_a_circle_end(write_slide, noise):
    path = write_slide(noise, (1, 2))
    with tifffile.TiffFile(path) as file:
        first, second = (page.offset for page in file.pages)
    data = bytearray(path.read_bytes())
    num_tags = int.from_bytes(data[second : second + 2], "little")
    at = second + 2 + 12 * num_tags
    data[at : at + 4] = first.to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(SlideError, match="form a loop"):
        read_pages(path)


def directory(entries, following=0, offset=8):
    """A little-endian TIFF's directory; each entry is (tag, kind, count, value)."""
    body = struct.pack("<H", len(entries))
    body += b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return body + struct.pack("<I", following)


def tiff(*directories):
    """A TIFF whose directories follow each other."""
    data = b"II*\0\x08\0\0\0"
    for number, entries in enumerate(directories):
        size = 6 + 12 * len(entries)
        data += directory(entries, len(data) + size if number + 1 < len(directories) else 0)
    return data


TILES = [(256, 4, 1, 64), (257, 4, 1, 64), (322, 3, 1, 64), (323, 3, 1, 64), (324, 4, 1, 0), (325, 4, 1, 0)]


def with_tag(tag, kind, count, value):
    return tiff([*[entry for entry in TILES if entry[0] != tag], (tag, kind, count, value)])


HOSTILE = {
    "wider than any slide": (with_tag(256, 4, 1, 10**9), "states 1000000000 x 64 px"),
    "of no width": (with_tag(256, 4, 1, 0), "states 0 x 64 px"),
    "with huge tiles": (
        tiff([*TILES[:2], (322, 4, 1, 2**31), (323, 4, 1, 2**31), *TILES[4:]]),
        "too large to read",
    ),
    "with a table of 4 billion tiles": (with_tag(324, 4, 2**32 - 1, 8), "damaged: tag 324"),
    "with a table beyond its end": (with_tag(324, 4, 1000, 8), "truncated: tag 324"),
    "with a text of a gigabyte": (with_tag(270, 2, 2**30, 8), "damaged: tag 270"),
    "without counts": (tiff(TILES[:-1]), "lists 0 of its 1 tiles"),
    "with too few tiles": (with_tag(256, 4, 1, 100), "lists 1 of its 2 tiles"),
    "with a tile beyond its end": (with_tag(325, 4, 1, 10**6), "truncated: a tile of image 0"),
    "of very many images": (tiff(*[[(254, 4, 1, 0)]] * 5000), "holds more than 4096 images"),
    "of very many tags": (
        b"II*\0\x08\0\0\0" + struct.pack("<H", 60_000) + bytes(800_000),
        "states 60000 tags",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_tiff_that_promises_what_no_slide_has_is_refused(tmp_path, what):
    data, message = HOSTILE[what]
    path = tmp_path / "hostile.tif"
    path.write_bytes(data)
    with pytest.raises(SlideError, match=message):
        read_pages(path)


def test_places_beyond_2_to_the_63_do_not_run_over(tmp_path):
    path = tmp_path / "big.tif"
    entries = [(tag, kind, count, value) for tag, kind, count, value in TILES[:4]]
    entries += [(324, 16, 1, 2**64 - 8), (325, 16, 1, 2**63)]
    body = struct.pack("<Q", len(entries)) + b"".join(struct.pack("<HHQQ", *entry) for entry in entries)
    path.write_bytes(b"II+\0\x08\0\0\0" + struct.pack("<Q", 16) + body + bytes(8))
    with pytest.raises(SlideError, match="truncated: a tile of image 0"):
        read_pages(path)


def test_of_a_tag_that_comes_twice_the_first_counts(tmp_path):
    """As in libtiff, by which cuCIM reads."""
    path = tmp_path / "twice.tif"
    path.write_bytes(tiff([*TILES, (256, 4, 1, 10**9)]))
    assert read_pages(path)[0].size_yx == (64, 64)
