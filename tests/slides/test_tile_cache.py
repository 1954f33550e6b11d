"""Decoded tiles that are kept: a bounded number, of the right file, and each decoded once."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray

from histo_monai.slides import Box, concentric_boxes, cucim_backend, open_slide, tile_cache
from histo_monai.slides.tile_cache import Key, TileCache

TILE = 64


@pytest.fixture
def cache(monkeypatch) -> TileCache:
    fresh = TileCache(2**24)
    monkeypatch.setattr(tile_cache._Process, "cache", fresh)
    return fresh


@pytest.fixture
def decoded(monkeypatch) -> list[tuple[int, tuple[int, int]]]:
    """Every tile that is decoded, (level, (row, column)), as often as it is."""
    tiles = []
    plainly = cucim_backend.CucimBackend._decode_plainly

    def count(self, level, place):
        tiles.append((level, place))
        return plainly(self, level, place)

    monkeypatch.setattr(cucim_backend.CucimBackend, "_decode_plainly", count)
    return tiles


def without_cache(monkeypatch) -> None:
    monkeypatch.setattr(tile_cache._Process, "cache", TileCache(0))


def tile(num_bytes: int, value: int = 0) -> NDArray[np.uint8]:
    return np.full((1, num_bytes, 1), value, np.uint8)


def test_it_holds_what_a_plain_list_of_the_tiles_used_last_would_hold() -> None:
    """Truth: all tiles ever used in their order, cut where their bytes exceed the limit."""
    rng = np.random.default_rng(0)
    overhead, limit = tile_cache._ENTRY_BYTES, 20_000
    cache, naive = TileCache(limit), OrderedDict[Key, int]()
    owners = [object(), object()]
    for turn in range(5000):
        key = (
            owners[int(rng.integers(2))],
            int(rng.integers(2)),
            (int(rng.integers(3)), int(rng.integers(3))),
        )
        if rng.random() < 0.5:
            size = int(rng.integers(1, 4000))
            cache.put(key, tile(size, turn % 251))
            naive.pop(key, None)
            naive[key] = size
            while sum(naive.values()) + overhead * len(naive) > limit:
                naive.popitem(last=False)
        elif rng.random() < 0.02:
            cache.forget(key[0])
            naive = OrderedDict((other, size) for other, size in naive.items() if other[0] is not key[0])
        else:
            held = cache.get(key)
            assert (held is not None) == (key in naive)
            if held is not None:
                assert held.nbytes == naive[key]
                naive.move_to_end(key)
        assert len(cache) == len(naive)
        assert cache.num_bytes == sum(naive.values()) + overhead * len(naive) <= limit


def test_what_is_larger_than_the_cache_is_not_held() -> None:
    cache, owner = TileCache(1000), object()
    cache.put((owner, 0, (0, 0)), tile(100))
    cache.put((owner, 0, (0, 1)), tile(2000))
    assert len(cache) == 1
    assert cache.get((owner, 0, (0, 1))) is None


def test_a_triple_decodes_each_tile_once_also_where_one_level_serves_all_of_it(
    write_slide, noise, cache, decoded
) -> None:
    with open_slide(write_slide(noise, factors=(1,))) as slide:
        decoded.clear()
        slide.read_many(concentric_boxes((230.3, 201.7), 48, (0.25, 0.5, 1.0)))
    assert len(decoded) == len(set(decoded)) > 4


def test_neighbors_decode_each_tile_once_in_whatever_order_they_come(
    write_slide, noise, cache, decoded
) -> None:
    rng = np.random.default_rng(0)
    centers = rng.uniform(40, 400, (300, 2)).tolist()
    with open_slide(write_slide(noise, jpeg=True)) as slide:
        decoded.clear()
        slide.read_many([box for y, x in centers for box in concentric_boxes((y, x), 32, (0.25, 0.5, 0.7))])
        first = list(decoded)
        slide.read_many([Box((y, x), 32, 0.25) for y, x in centers])
    assert len(first) == len(set(first))
    assert decoded == first


@pytest.mark.parametrize("jpeg", [False, True])
@pytest.mark.parametrize("max_bytes", [0, 40_000, 2**24])
def test_pixels_are_the_same_with_any_cache(write_slide, noise, jpeg, max_bytes, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    path = write_slide(noise, jpeg=jpeg)
    boxes = [
        Box((float(y), float(x)), 40, 0.25 * float(rng.choice([1, 1.9, 2, 3.3, 4])))
        for y, x in rng.uniform(-30, 530, (200, 2))
    ]
    without_cache(monkeypatch)
    with open_slide(path) as slide:
        wanted = np.stack([slide.read(box) for box in boxes])
    monkeypatch.setattr(tile_cache._Process, "cache", TileCache(max_bytes))
    with open_slide(path) as slide:
        for _ in range(2):
            np.testing.assert_array_equal(slide.read_many(boxes), wanted)


def test_a_closed_slide_leaves_nothing(write_slide, noise, cache) -> None:
    with open_slide(write_slide(noise)) as slide:
        slide.read(Box((200, 200), 64, 0.5))
        assert len(cache) > 0
    assert (len(cache), cache.num_bytes) == (0, 0)


def test_a_file_written_anew_while_its_slide_was_closed_is_read_anew(write_slide, noise, cache) -> None:
    box = Box((200, 200), 64, 0.5)
    path = write_slide(np.full_like(noise, 50))
    with open_slide(path) as slide:
        assert (slide.read(box) == 50).all()
    status = path.stat()
    path.write_bytes(write_slide(np.full_like(noise, 90), name="other.tif").read_bytes())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with open_slide(path) as slide:
        assert (slide.read(box) == 90).all()


def test_a_forked_process_starts_with_none(write_slide, noise) -> None:
    with open_slide(write_slide(noise)) as slide:
        slide.read(Box((200, 200), 64, 0.5))
        assert len(tile_cache.tile_cache()) > 0
        pid = os.fork()
        if pid == 0:
            os._exit(len(tile_cache.tile_cache()))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(tile_cache.tile_cache()) > 0


def test_tiles_that_were_never_written_are_white_and_take_no_room(tmp_path: Path, cache) -> None:
    path = tmp_path / "sparse.tif"
    pixels = np.full((3 * TILE, 3 * TILE, 3), 80, np.uint8)
    tifffile.imwrite(path, pixels, tile=(TILE, TILE), photometric="rgb", metadata=None)
    with tifffile.TiffFile(path, mode="r+") as file:
        counts, offsets = list(file.pages[0].databytecounts), list(file.pages[0].dataoffsets)
        counts[4] = offsets[4] = 0
        file.pages[0].tags["TileByteCounts"].overwrite(counts)
        file.pages[0].tags["TileOffsets"].overwrite(offsets)
    wanted = pixels.copy()
    wanted[TILE : 2 * TILE, TILE : 2 * TILE] = 255
    with open_slide(path, mpp=0.5) as slide:
        assert slide.backend == "cucim"
        read = slide.read(Box((1.5 * TILE, 1.5 * TILE), 3 * TILE, 0.5))
        np.testing.assert_array_equal(read, wanted.transpose(2, 0, 1))
        assert len(cache) == 8
