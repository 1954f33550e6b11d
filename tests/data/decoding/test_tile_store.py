"""Tiles on a device: each is decoded once while there is room, and none is taken for another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from histo_monai.data.decoding.ahead import prepared_ahead
from histo_monai.data.decoding.codec import is_plain_jpeg, jpeg_stream
from histo_monai.data.decoding.patches import read_patches
from histo_monai.data.decoding.tile_store import TileStore
from histo_monai.slides import Box, Slide
from histo_monai.slides.tiff import Page
from tests.data.decoding.codecs import PillowCodec, opened

CPU = torch.device("cpu")
TILE_BYTES = 3 * 256 * 256


def _boxes(slide: Slide, tiles: list[tuple[int, int]]) -> list[Box]:
    return [Box(((row + 0.5) * 256, (column + 0.5) * 256), 256, slide.mpp) for row, column in tiles]


def test_a_tile_is_decoded_again_only_after_it_made_room(real_slides: Path) -> None:
    codec = PillowCodec()
    store = TileStore(codec, CPU, max_bytes=4 * TILE_BYTES)
    with opened(real_slides / "lymph-node.tif") as slide:
        for tiles, num in (([(0, 0), (0, 1)], 2), ([(0, 1), (0, 0)], 2), ([(1, 0), (1, 1)], 4), ([(0, 0)], 4),
                           ([(2, 0)], 5), ([(0, 0)], 5), ([(0, 1)], 6)):  # fmt: skip
            boxes = _boxes(slide, tiles)
            assert np.array_equal(read_patches(slide, boxes, store).numpy(), slide.read_many(boxes))
            assert codec.num_tiles == num


def test_two_slides_and_two_openings_share_no_tile(real_slides: Path) -> None:
    codec = PillowCodec()
    store = TileStore(codec, CPU)
    for name in ("lymph-node.tif", "duodenum-adenoma.tif", "lymph-node.tif"):
        with opened(real_slides / name) as slide:
            boxes = _boxes(slide, [(3, 3)])
            assert np.array_equal(read_patches(slide, boxes, store).numpy(), slide.read_many(boxes))
    assert codec.num_tiles == 3


def test_a_box_that_needs_more_tiles_than_there_is_room_for_is_read_by_the_cpu(real_slides: Path) -> None:
    store = TileStore(PillowCodec(), CPU, max_bytes=2 * TILE_BYTES)
    with opened(real_slides / "lymph-node.tif") as slide:
        boxes = [Box((700.0, 900.0), 600, slide.mpp), Box((100.0, 100.0), 600, slide.mpp)]
        assert np.array_equal(read_patches(slide, boxes, store).numpy(), slide.read_many(boxes))


def test_threads_with_a_small_store_get_their_own_tiles(real_slides: Path) -> None:
    """Tiles of one thread make room for those of the other; their requests overlap."""
    store = TileStore(PillowCodec(), CPU, max_bytes=10 * TILE_BYTES)
    with opened(real_slides / "lymph-node.tif") as slide:
        generator = np.random.default_rng(0)
        jobs = [
            _boxes(slide, [tuple(tile) for tile in generator.integers(0, 5, (5, 2)).tolist()])
            for _ in range(60)
        ]
        wanted = [slide.read_many(boxes) for boxes in jobs]
        items = prepared_ahead(jobs, lambda boxes: (read_patches(slide, boxes, store), 0), None, threads=3)
        for (pixels, _), right in zip(items, wanted, strict=True):
            assert np.array_equal(pixels.numpy(), right)


def test_a_tile_that_another_thread_has_stored_meanwhile_keeps_its_slot(
    real_slides: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TileStore(PillowCodec(), CPU, max_bytes=4 * TILE_BYTES)
    with opened(real_slides / "lymph-node.tif") as slide:
        boxes = _boxes(slide, [(0, 1), (0, 2)])
        other = _boxes(slide, [(0, 1), (3, 3)])
        decode = store.codec.decode

        def late(page: Page, tiles: Sequence[bytes]) -> list[torch.Tensor | None]:
            monkeypatch.setattr(store.codec, "decode", decode)
            read_patches(slide, other, store)
            return decode(page, tiles)

        monkeypatch.setattr(store.codec, "decode", late)
        for wanted in (boxes, other, boxes):
            assert np.array_equal(read_patches(slide, wanted, store).numpy(), slide.read_many(wanted))


def test_colors_that_the_jpeg_states_are_left_to_the_cpu() -> None:
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
    assert not is_plain_jpeg(b"\xff\xd8" + bytes(5000) + adobe + b"\xff\xd9")
    assert jpeg_stream(b"\xff\xd8TABLES\xff\xd9\x00\x00", b"\xff\xd8T\xff\xd9") == b"\xff\xd8TABLEST\xff\xd9"


def test_a_stream_has_the_tables_of_the_page_and_is_judged_by_its_end() -> None:
    assert jpeg_stream(b"\xff\xd8TABLES\xff\xd9", b"\xff\xd8TILE\xff\xd9") == b"\xff\xd8TABLESTILE\xff\xd9"
    assert jpeg_stream(b"", b"\xff\xd8TILE\xff\xd9") == b"\xff\xd8TILE\xff\xd9"
    assert is_plain_jpeg(b"\xff\xd8TILE\xff\xd9" + bytes(3))
    assert not is_plain_jpeg(b"\xff\xd8TILE")
    assert not is_plain_jpeg(b"\xff\xd8\xff\xee\x00\x0eAdobe..\xff\xd9")


@pytest.mark.parametrize("value", ["gpu", "gpU", "0"])
def test_a_decoder_that_there_is_not_is_an_error(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from histo_monai.data.decoding.choice import tile_store
    from histo_monai.utils.errors import InputError

    monkeypatch.setenv("HISTO_MONAI_DECODER", value)
    with pytest.raises(InputError, match=r"HISTO_MONAI_DECODER: .*Fix: "):
        tile_store(CPU)
    monkeypatch.setenv("HISTO_MONAI_DECODER", "cpu")
    assert tile_store(CPU) is None
