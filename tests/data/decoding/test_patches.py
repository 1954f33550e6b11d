"""Patches cut on a device are those of `Slide.read_many`, within 2 of 255 levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from histo_monai.data.decoding.patches import is_decodable, read_patches
from histo_monai.slides import Box, Slide, SlideError, open_slide
from histo_monai.slides.reader import level_tiles
from tests.data.decoding.codecs import opened, store_on

SLIDES = (
    "asap-example.tif", "breast-lobular.tif", "cmu-1-small-region.svs", "duodenum-adenoma.tif", "lymph-node.tif",
    "oesophagus-eosinophilic.tif", "stomach-metaplasia.tif", "tcga-cr-7395-01a-01-ts1.svs",
)  # fmt: skip
TILE_BYTES = 3 * 512 * 512


def some_boxes(slide: Slide, mpp: float, side_px: int, num: int) -> list[Box]:
    """Boxes anywhere on a slide and across its edges; every second one at whole pixels."""
    generator = np.random.default_rng(0)
    reach = side_px * mpp / slide.mpp
    centers = generator.uniform(-reach / 2, np.array(slide.size_yx) + reach / 2, size=(num, 2))
    centers[::2] = centers[::2].round()
    return [Box((float(y), float(x)), side_px, mpp) for y, x in centers]


@pytest.mark.parametrize("name", SLIDES)
@pytest.mark.parametrize("factor", [1.0, 1.37, 2.0, 2.9])
def test_patches_of_real_slides_at_levels_and_between(
    real_slides: Path, name: str, factor: float, device: torch.device
) -> None:
    with opened(real_slides / name) as slide:
        store = store_on(device, max_bytes=40 * TILE_BYTES)  # Less than the boxes need: tiles make room.
        mpp = slide.mpp * factor
        boxes = some_boxes(slide, mpp, 96, 24 if device.type == "cpu" else 200)
        assert is_decodable(slide, [mpp], store)
        got = read_patches(slide, boxes, store).cpu().numpy().astype(int)
        off = np.abs(got - slide.read_many(boxes))
    # One level by the GPU's engines, one by rounding: the CPU rounds a shifted patch twice.
    assert off.max() <= 2
    assert (off > 1).mean() < 1e-4
    if factor == 1.0:
        assert off[::2].max() <= 1


def test_patches_of_the_atlas(real_slides: Path, device: torch.device) -> None:
    paths = sorted(path for path in (real_slides / "atlas").glob("*.tif"))
    assert len(paths) == 26
    for path in paths[:: 9 if device.type == "cpu" else 1]:
        with opened(path) as slide:
            boxes = some_boxes(slide, 1.0, 128, 20) + some_boxes(slide, 2.5, 128, 20)
            got = read_patches(slide, boxes, store_on(device)).cpu().numpy().astype(int)
            assert np.abs(got - slide.read_many(boxes)).max() <= 2, path.name


def test_no_box_of_many_is_wrong(real_slides: Path, device: torch.device) -> None:
    with opened(real_slides / "breast-lobular.tif") as slide:
        store = store_on(device, max_bytes=100 * TILE_BYTES)
        boxes = some_boxes(slide, slide.mpp, 64, 300 if device.type == "cpu" else 10_000)
        got = read_patches(slide, boxes, store).cpu().numpy()
        off = np.abs(got.astype(int) - slide.read_many(boxes)).max((1, 2, 3))
    assert off.max() <= 2


def test_a_slide_whose_tiles_the_decoder_does_not_read_is_read_by_the_cpu(
    tmp_path: Path, device: torch.device
) -> None:
    from tests.slides.drawn_tiff import LZW, DrawnPage, write_tiff

    pixels = np.random.default_rng(0).integers(0, 256, (300, 340, 3), dtype=np.uint8)
    path = write_tiff(tmp_path / "slide.tif", [DrawnPage(pixels, compression=LZW)])
    with open_slide(path, 0.5) as slide:
        store = store_on(device)
        assert not is_decodable(slide, [0.5], store)
        boxes = some_boxes(slide, 0.5, 64, 9)
        assert np.array_equal(read_patches(slide, boxes, store).cpu().numpy(), slide.read_many(boxes))


def test_damaged_tiles_end_in_an_error_or_in_pixels_and_never_in_the_process(
    real_slides: Path, tmp_path: Path, device: torch.device
) -> None:
    """200 tiles, cut off or with other bytes; the sound ones are right afterwards."""
    source = real_slides / "asap-example.tif" if device.type == "cpu" else real_slides / "breast-lobular.tif"
    generator = np.random.default_rng(0)
    with opened(source) as slide:
        tiles = level_tiles(slide, 0)
        assert tiles is not None
        sizes = zip(tiles.page.offsets, tiles.page.counts, strict=True)
        places = [(int(offset), int(count)) for offset, count in sizes if count > 0]
        side, mpp = tiles.page.tile_yx[0], slide.mpp
        columns = tiles.page.grid_yx[1]
    whole = bytearray(source.read_bytes())
    num = 6 if device.type == "cpu" else 200
    refused: list[str] = []
    for number in range(num):
        offset, count = places[number % len(places)]
        data = whole.copy()
        if number % 3 == 0:
            data[offset + count // 2 : offset + count] = bytes(count - count // 2)
        else:
            for place in generator.integers(2 if number % 3 == 1 else 700, count, 1 + number % 40):
                data[offset + int(place)] = int(generator.integers(256))
        path = tmp_path / f"{number}{source.suffix}"
        path.write_bytes(data)
        row, column = divmod(number % len(places), columns)
        box = Box(((row + 0.5) * side, (column + 0.5) * side), side, mpp)
        try:
            with open_slide(path, mpp) as slide:
                read_patches(slide, [box], store_on(device))
        except SlideError as error:
            refused.append(str(error))
        path.unlink()
    assert len(refused) >= num // 3
    assert all(source.suffix in message and "Fix: " in message for message in refused)
    with opened(source) as slide:
        boxes = some_boxes(slide, mpp, 64, 50)
        got = read_patches(slide, boxes, store_on(device)).cpu().numpy().astype(int)
        assert np.abs(got - slide.read_many(boxes)).max() <= 2
