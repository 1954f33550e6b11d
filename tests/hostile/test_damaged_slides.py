"""Slides that are damaged, crafted or no slides at all: a line with slide, level and tile, and a process that lives."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile

from histo_monai.slides import Box, SlideError, open_slide
from histo_monai.utils.process.threads import decode_with
from tests.folders import NewFolder
from tests.hostile.fuzz_slides import fuzz
from tests.hostile.slide_sandbox import in_sandbox
from tests.hostile.slide_specimens import real_slides as find_real_slides
from tests.hostile.slide_specimens import write_simulated

DAMAGED_TILE = (1, 2)
"""Row and column."""


@pytest.fixture(scope="module")
def simulated(module_folder: NewFolder) -> dict[str, Path]:
    return {path.name: path for path in write_simulated(module_folder("simulated"))}


@pytest.fixture
def copy_of(simulated: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copy(simulated[name], tmp_path / name))


def tile_span(path: Path, level: int = 0, place: tuple[int, int] = DAMAGED_TILE) -> tuple[int, int]:
    with tifffile.TiffFile(path) as file:
        page = file.pages[level]
        number = place[0] * -(-page.imagewidth // page.tilewidth) + place[1]
        return page.dataoffsets[number], page.databytecounts[number]


def change_tile(path: Path, change: Callable[[bytearray], object]) -> None:
    """Change the bytes of one tile in place; their number stays."""
    offset, count = tile_span(path)
    tile = bytearray(path.read_bytes()[offset : offset + count])
    change(tile)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(tile[:count])


def read_around_the_tile(path: Path) -> str:
    """The message of a reading of the whole slide, where a sandbox runs it."""
    try:
        with open_slide(path, mpp=0.5) as slide:
            slide.read(Box((130, 165), 330, 0.5))
    except SlideError as error:
        return str(error)
    return "read"


def put(tile: bytearray, at: int, code: str, value: int) -> None:
    struct.pack_into(code, tile, at, value)


def in_frame(tile: bytearray, at: int, code: str, value: int) -> None:
    """``at`` counts from the marker of the frame header."""
    put(tile, max(tile.find(b"\xff\xc0"), tile.find(b"\xff\xc2")) + at, code, value)


JPEG_FRAMES = {
    "higher than its tile": lambda tile: in_frame(tile, 5, ">H", 512),
    "wider than its tile": lambda tile: in_frame(tile, 7, ">H", 512),
    "much larger": lambda tile: (in_frame(tile, 5, ">H", 65500), in_frame(tile, 7, ">H", 65500)),
    "smaller than its tile": lambda tile: in_frame(tile, 7, ">H", 32),
    "of no height": lambda tile: in_frame(tile, 5, ">H", 0),
    "of one channel": lambda tile: in_frame(tile, 9, ">B", 1),
    "of 255 channels": lambda tile: in_frame(tile, 9, ">B", 255),
    "of 12 bits": lambda tile: in_frame(tile, 4, ">B", 12),
    "lossless": lambda tile: in_frame(tile, 1, ">B", 0xC3),
    "sampled 15 times": lambda tile: in_frame(tile, 11, ">B", 0xFF),
    "with a second frame": lambda tile: in_frame(tile, 1, ">B", 0xFE) or put(tile, 2, ">H", 0xFFC0),
    "without a scan": lambda tile: put(tile, tile.find(b"\xff\xda"), ">H", 0xFFFE),
    "a long segment": lambda tile: put(tile, 4, ">H", 0xFFFF),
    "an empty segment": lambda tile: put(tile, 4, ">H", 0),
    "nothing but fill bytes": lambda tile: tile.__setitem__(slice(2, None), b"\xff" * (len(tile) - 2)),
}


@pytest.mark.parametrize("slide", ["jpeg-ycbcr.tif", "jpeg-big.tif", "jpeg-progressive.tif"])
def test_a_jpeg_tile_whose_header_is_not_the_tiffs_is_refused_by_its_place(copy_of, slide):
    paths = []
    for what, change in JPEG_FRAMES.items():
        path = copy_of(slide)
        change_tile(path, change)
        paths.append(path.rename(path.with_name(f"{what}.tif")))
    for path, message in in_sandbox(paths, read_around_the_tile):
        assert "the tile in row 1, column 2 of level 0 is damaged" in message, (path.name, message)
        assert path.name in message


JPEG2000_HEADERS = {
    "wider than its tile": lambda tile: put(tile, 8, ">I", 512),
    "higher than its tile": lambda tile: put(tile, 12, ">I", 2**31),
    "offset": lambda tile: put(tile, 16, ">I", 8),
    "in pieces of a pixel": lambda tile: (put(tile, 24, ">I", 1), put(tile, 28, ">I", 1)),
    "in pieces of nothing": lambda tile: put(tile, 24, ">I", 0),
    "of 16,384 channels": lambda tile: put(tile, 40, ">H", 16384),
    "of no channels": lambda tile: (put(tile, 40, ">H", 0), put(tile, 4, ">H", 38)),
    "of 38 bits": lambda tile: put(tile, 42, ">B", 37),
    "of different channels": lambda tile: put(tile, 45, ">B", 6),
    "sampled by nothing": lambda tile: put(tile, 43, ">B", 0),
    "sampled by 255": lambda tile: put(tile, 46, ">B", 255),
    "cut off": lambda tile: tile.__setitem__(slice(len(tile) // 2, None), bytes(len(tile) - len(tile) // 2)),
    "with a marker in its packets": lambda tile: put(tile, len(tile) // 2, ">H", 0xFFA0),
}


def test_a_jpeg_2000_tile_whose_header_is_not_the_tiffs_is_refused_by_its_place(copy_of):
    paths = []
    for what, change in JPEG2000_HEADERS.items():
        path = copy_of("jpeg2000.tif")
        change_tile(path, change)
        paths.append(path.rename(path.with_name(f"{what}.tif")))
    for path, message in in_sandbox(paths, read_around_the_tile):
        assert "the tile in row 1, column 2 of level 0 is damaged" in message, (path.name, message)


def test_a_picture_in_the_tables_that_tiles_share_is_refused(tmp_path, real_slides):
    path = Path(shutil.copy(real_slides / "cmu-1-small-region.svs", tmp_path))
    path.chmod(0o644)
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags["JPEGTables"]
        at, tables = tag.valueoffset, bytearray(file.pages[0].jpegtables)
    second = tables.find(b"\xff\xdb", 4)
    tables[second : second + 12] = b"\xff\xc0\x00\x11\x08\x20\x00\x20\x00\x03\x01\x22"
    with path.open("r+b") as file:
        file.seek(at)
        file.write(tables)
    ((_, message),) = in_sandbox([path], read_around_the_tile)
    assert "the JPEG tables of level 0 are damaged" in message


def zeros_in_the_middle(tile: bytearray) -> None:
    middle = len(tile) * 2 // 3
    tile[middle : middle + 200] = bytes(200)


@pytest.mark.parametrize(
    "name", ["jpeg-ycbcr.tif", "jpeg-big.tif", "jpeg-progressive.tif", "lzw.tif", "deflate.tif"]
)
def test_what_the_decoder_complains_about_is_an_error_with_slide_level_and_tile(copy_of, name, capfd):
    path = copy_of(name)
    change_tile(path, zeros_in_the_middle)
    with open_slide(path) as slide:
        sound = slide.read(Box((200, 40), 64, 0.5))
        for _ in range(2):
            with pytest.raises(SlideError, match=r"the tile in row 1, column 2 of level 0 is damaged \(.+\)"):
                slide.read(Box((130, 165), 300, 0.5))
        np.testing.assert_array_equal(slide.read(Box((200, 40), 64, 0.5)), sound)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["jpeg-ycbcr.tif", "lzw.tif"])
def test_several_threads_blame_the_damaged_tile_and_no_sound_one(copy_of, name, capfd):
    path = copy_of(name)
    boxes = [Box((float(y), float(x)), 40, 0.5) for y in range(30, 240, 30) for x in range(30, 300, 30)]
    with open_slide(path) as slide:
        wanted = slide.read_many(boxes)
    change_tile(path, zeros_in_the_middle)
    decode_with(3)
    try:
        with open_slide(path) as slide:
            for _ in range(10):
                with pytest.raises(
                    SlideError, match=r"the tile in row 1, column 2 of level 0 is damaged \(.+\)"
                ):
                    slide.read_many(boxes)
            top = [number for number, box in enumerate(boxes) if box.center_yx[0] < 40]
            np.testing.assert_array_equal(slide.read_many([boxes[number] for number in top]), wanted[top])
    finally:
        decode_with(1)
    assert capfd.readouterr() == ("", "")


def test_openslide_reads_sound_tiles_after_a_damaged_one(copy_of):
    path = copy_of("jpeg-big.ptif")
    change_tile(path, lambda tile: tile.__setitem__(slice(2, None), bytes(len(tile) - 2)))
    with open_slide(path) as slide:
        assert slide.backend == "openslide"
        with pytest.raises(SlideError, match=r"damaged in level 0, rows \d+ to \d+, columns \d+ to \d+"):
            slide.read(Box((96, 160), 64, 0.5))
        assert slide.read(Box((220, 40), 64, 0.5)).std() > 0


def test_tiles_that_decode_to_too_few_bytes_are_refused(copy_of):
    for name in ("uncompressed.tif", "lzw.tif", "deflate.tif"):
        path = copy_of(name)
        with tifffile.TiffFile(path, mode="r+") as file:
            counts = list(file.pages[0].databytecounts)
            counts[1 * 6 + 2] //= 2
            file.pages[0].tags["TileByteCounts"].overwrite(counts)
        assert "row 1, column 2 of level 0" in read_around_the_tile(path)


@pytest.mark.parametrize("change", ["truncated", "written to"])
def test_a_slide_that_changes_while_it_is_open_is_an_error(copy_of, change):
    path = copy_of("jpeg-ycbcr.tif")
    with open_slide(path) as slide:
        slide.read(Box((100, 100), 64, 0.5))
        if change == "truncated":
            os.truncate(path, 20_000)
        else:
            os.utime(path, ns=(10**18, 10**18))
        with pytest.raises(SlideError, match="changed while it was open"):
            slide.read(Box((100, 100), 64, 0.5))


def test_a_slide_that_is_removed_while_it_is_open_is_read_on(copy_of):
    path = copy_of("jpeg-ycbcr.tif")
    with open_slide(path) as slide:
        before = slide.read(Box((100, 100), 64, 0.5))
        path.unlink()
        np.testing.assert_array_equal(slide.read(Box((100, 100), 64, 0.5)), before)


def set_tags(path: Path, **values: int) -> None:
    with tifffile.TiffFile(path, mode="r+") as file:
        for name, value in values.items():
            file.pages[0].tags[name].overwrite(value, dtype="I" if value > 65535 else "H")


def test_numbers_that_no_slide_has_are_a_sentence_and_not_an_allocation(copy_of):
    bombs = [
        {"ImageWidth": 10**9},
        {"ImageWidth": 2**32 - 1, "ImageLength": 2**32 - 1},
        {"ImageWidth": 0},
        {"TileWidth": 2**31 - 16, "TileLength": 2**31 - 16},
        {"TileWidth": 65536, "TileLength": 65536},
        {"TileWidth": 0, "TileLength": 0},
        {"SamplesPerPixel": 65535},
        {"BitsPerSample": 65535},
    ]
    paths = []
    for number, tags in enumerate(bombs):
        path = copy_of("jpeg-big.tif")
        set_tags(path, **tags)
        paths.append(path.rename(path.with_name(f"{number}.tif")))
    for path, message in in_sandbox(paths, read_around_the_tile, memory_gib=0.5):
        assert message.startswith("slide "), (path.name, message)


def test_deflate_with_a_predictor_is_read_by_openslide(tmp_path):
    """A sound file of common make: opening it ends the process inside cuCIM."""
    image = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    path = tmp_path / "slide.tif"
    tifffile.imwrite(path, image, tile=(64, 64), photometric="rgb", compression="deflate", predictor=True)

    def read(path: Path) -> str:
        with open_slide(path, mpp=0.5) as slide:
            same = np.array_equal(slide.read(Box((100, 100), 200, 0.5)), image.transpose(2, 0, 1))
        return f"{slide.backend} {same}"

    assert list(in_sandbox([path], read)) == [(path, "openslide True")]


def test_properties_that_are_no_text_are_left_out(real_slides, tmp_path):
    path = Path(shutil.copy(real_slides / "cmu-1-small-region.svs", tmp_path))
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data.replace(b"|Filename", b"|F\xedlename", 1))
    assert b"|F\xedlename" in path.read_bytes()
    with open_slide(path, mpp=0.5) as slide:
        assert slide.backend == "openslide"


def test_a_tile_of_many_gigabytes_never_reaches_openslide(copy_of):
    path = copy_of("jpeg-big.ptif")
    with tifffile.TiffFile(path, mode="r+") as file:
        tag = file.pages[0].tags["TileByteCounts"]
        tag.overwrite([2**62, *tag.value[1:]], dtype="Q")
    ((_, message),) = in_sandbox([path], read_around_the_tile)
    assert "truncated: a tile of image 0" in message


def test_a_patch_or_a_thumbnail_beyond_memory_is_a_sentence(copy_of):
    with open_slide(copy_of("jpeg-big.tif"), mpp=0.5) as slide:
        with pytest.raises(SlideError, match=r"at 1000 µm/px this read has .* more than"):
            slide.read(Box((100, 100), 256, 1000.0))
        with pytest.raises(SlideError, match=r"this read has .* more than"):
            slide.read(Box((100, 100), 10**6, 0.5))


FEW, MANY = 120, int(os.environ.get("HISTO_MONAI_FUZZ_CASES", "0"))


@pytest.mark.slow
def test_no_damage_ends_the_process(simulated, real_slides, tmp_path):
    """`HISTO_MONAI_FUZZ_CASES=2400`, or `python -m tests.hostile.fuzz_slides`, for all of them."""
    slides = [*simulated.values(), *find_real_slides(real_slides)]
    small = [path for path in slides if path.stat().st_size < 5e6 or MANY]
    (tmp_path / "copies").mkdir()
    results = list(fuzz(small, range(MANY or FEW), tmp_path / "copies"))
    assert len(results) == (MANY or FEW)
    assert [result for result in results if result.failed] == []
