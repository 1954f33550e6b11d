from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from openslide import ImageSlide
from openslide.deepzoom import DeepZoomGenerator
from PIL import Image

from histo_monai.reports.site.tiles import TILE_PX, Pyramid, write_tiles
from histo_monai.slides import Box, open_slide


def _levels(folder: Path) -> dict[int, tuple[int, int]]:
    """Level -> width and height of all tiles put together."""
    sizes = {}
    for level in folder.iterdir():
        tiles = {tuple(map(int, path.stem.split("_"))): Image.open(path).size for path in level.iterdir()}
        width = sum(size[0] for (_, row), size in tiles.items() if row == 0)
        height = sum(size[1] for (column, _), size in tiles.items() if column == 0)
        sizes[int(level.name)] = (width, height)
    return sizes


@pytest.mark.parametrize("size", [(1, 1), (512, 512), (513, 300), (1500, 700), (1025, 2050)])
def test_levels_and_tiles_are_those_of_openslides_deep_zoom(
    size: tuple[int, int], write_slide: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain:
        """A slide as large as asked."""

        mpp = 0.5
        size_yx = size[::-1]

        def read_many(self, boxes: list[Box]) -> np.ndarray:
            return np.full((len(boxes), 3, TILE_PX, TILE_PX), 200, np.uint8)

    slide = Plain()
    pyramid = Pyramid.of(slide, 0.5, 10_000)  # type: ignore[arg-type]  # what it needs of a slide
    num = write_tiles(slide, pyramid, tmp_path / "tiles")  # type: ignore[arg-type]  # the same
    theirs = DeepZoomGenerator(ImageSlide(Image.new("RGB", size)), tile_size=TILE_PX, overlap=0)
    assert (pyramid.width, pyramid.height) == size
    assert _levels(tmp_path / "tiles") == dict(enumerate(theirs.level_dimensions))
    assert num == theirs.tile_count
    assert pyramid.num_levels == theirs.level_count


def test_pixels_are_the_slides_at_every_level(write_slide: Callable[..., Path], tmp_path: Path) -> None:
    path = write_slide(tmp_path / "slide.tif", 0)
    with open_slide(path) as slide:
        pyramid = Pyramid.of(slide, 2 * slide.mpp, 10_000)
        write_tiles(slide, pyramid, tmp_path / "tiles")
        finest = pyramid.num_levels - 1
        assert pyramid.mpp == pytest.approx(2 * slide.mpp)
        height, width = (math.ceil(side / 2) for side in slide.size_yx)
        assert (pyramid.width, pyramid.height) == (width, height)
        side = min(TILE_PX, width, height)
        ours = np.asarray(Image.open(tmp_path / f"tiles/{finest}/0_0.jpg"))[:side, :side].astype(int)
        center = side * pyramid.mpp / slide.mpp / 2
        read = slide.read(Box((center, center), side, pyramid.mpp)).transpose(1, 2, 0)
    assert np.abs(ours - read).mean() < 12  # of JPEG, on noise
    half = np.asarray(Image.open(tmp_path / f"tiles/{finest - 1}/0_0.jpg"))[: side // 2, : side // 2]
    even = 2 * (side // 2)
    mean = read[:even, :even].reshape(even // 2, 2, even // 2, 2, 3).mean(axis=(1, 3))
    assert np.abs(half - mean).mean() < 8


def test_no_pixel_is_invented_and_no_side_is_longer_than_asked(
    write_slide: Callable[..., Path], tmp_path: Path
) -> None:
    with open_slide(write_slide(tmp_path / "slide.tif", 0)) as slide:
        assert Pyramid.of(slide, slide.mpp / 4, 10_000).mpp == slide.mpp
        small = Pyramid.of(slide, slide.mpp, 100)
        assert max(small.width, small.height) == 100
