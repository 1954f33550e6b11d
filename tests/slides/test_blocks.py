from __future__ import annotations

import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest
import tifffile

from histo_monai.slides import Box, Slide, SlideError, open_slide
from histo_monai.slides.tiles import blocks as blocks_module
from histo_monai.slides.tiles.blocks import CellBlocks, whole_stride
from histo_monai.slides.tiles.grid import Grid

PATCH_PX = 32


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Blurred noise, harder than tissue, 600 x 840 px in one level."""
    noise = np.random.default_rng(0).integers(0, 256, (600, 840, 3), np.uint8)
    smooth = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 2), None, 0, 255, cv2.NORM_MINMAX)  # type: ignore[call-overload]
    path = tmp_path_factory.mktemp("blocks") / "noise.tif"
    tifffile.imwrite(path, smooth, tile=(64, 64), photometric="rgb")
    return path


def _cells(grid: Grid) -> np.ndarray:
    """Most cells of the grid, its corners among them."""
    cells = np.argwhere(np.ones(grid.shape, bool))
    kept = np.random.default_rng(1).random(len(cells)) < 0.8
    kept[[0, -1]] = True
    return cells[kept]


def _read_one_by_one(slide: Slide, grid: Grid, cells: np.ndarray, mpp: float) -> np.ndarray:
    return slide.read_many([Box((y, x), PATCH_PX, mpp) for y, x in grid.centers_yx(cells).tolist()])


def _read_in_blocks(blocks: CellBlocks, num: int) -> np.ndarray:
    sums = np.zeros((num, 3, PATCH_PX, PATCH_PX), np.uint8)
    seen = np.zeros(num, int)
    for patches, numbers in blocks:
        sums[numbers] = patches
        seen[numbers] += 1
    assert (seen == 1).all()
    return sums


@pytest.fixture(params=[4096, 200], ids=["one block", "many blocks"])
def source_px(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(blocks_module, "_SOURCE_PX", request.param)
    return request.param


@pytest.mark.parametrize(
    ("slide_mpp", "mpp", "stride_px"),
    [(0.5, 0.5, 16), (0.5, 0.5, 32), (0.5, 0.5, 7), (0.25, 0.5, 16), (0.25, 1.0, 16), (0.2528, 0.2528, 48)],
)
def test_patches_are_those_read_one_by_one_where_levels_are_whole_multiples(
    path: Path, source_px: int, slide_mpp: float, mpp: float, stride_px: int
) -> None:
    with open_slide(path, mpp=slide_mpp) as slide:
        grid = Grid(stride_px * mpp, slide_mpp, slide.size_yx)
        cells = _cells(grid)
        blocks = CellBlocks(slide, grid, cells, patch_px=PATCH_PX, mpp=mpp)
        assert len(blocks) > 8 or source_px == 4096
        expected = _read_one_by_one(slide, grid, cells, mpp)
    np.testing.assert_array_equal(_read_in_blocks(blocks, len(cells)), expected)


@pytest.mark.parametrize(
    ("slide_mpp", "mpp"), [(0.2528, 0.25), (0.25, 0.2528), (0.2528, 0.5), (0.3, 0.5), (0.25, 0.82)]
)
def test_resampled_patches_differ_from_those_read_one_by_one_by_gray_levels(
    path: Path, source_px: int, slide_mpp: float, mpp: float
) -> None:
    with open_slide(path, mpp=slide_mpp) as slide:
        grid = Grid(16 * mpp, slide_mpp, slide.size_yx)
        cells = _cells(grid)
        blocks = CellBlocks(slide, grid, cells, patch_px=PATCH_PX, mpp=mpp)
        expected = _read_one_by_one(slide, grid, cells, mpp).astype(float)
    difference = np.abs(_read_in_blocks(blocks, len(cells)) - expected)
    assert difference.max() <= 4
    assert difference.mean() < 0.2


def test_a_slide_is_read_little_more_than_once_although_patches_overlap(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Slide.read
    areas: list[int] = []
    monkeypatch.setattr(Slide, "read", lambda self, box: (areas.append(box.side_px**2), read(self, box))[1])
    monkeypatch.setattr(blocks_module, "_SOURCE_PX", 256)
    with open_slide(path, mpp=1.0) as slide:
        grid = Grid(16.0, 1.0, slide.size_yx)
        cells = np.argwhere(np.ones(grid.shape, bool))
        list(CellBlocks(slide, grid, cells, patch_px=PATCH_PX, mpp=1.0))
        assert max(areas) <= 256**2
        assert sum(areas) < 1.5 * np.prod(slide.size_yx)  # one by one: 4 times
    assert len(cells) * PATCH_PX**2 > 3.9 * np.prod((600, 840))


def test_blocks_are_small_whatever_the_slide(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "_PATCH_BYTES", 100 * 3 * PATCH_PX**2)
    with open_slide(path, mpp=1.0) as slide:
        grid = Grid(4.0, 1.0, slide.size_yx)
        cells = np.argwhere(np.ones(grid.shape, bool))
        blocks = CellBlocks(slide, grid, cells, patch_px=PATCH_PX, mpp=1.0)
    assert max(len(blocks[i][1]) for i in range(0, len(blocks), 40)) <= 100


def test_far_apart_cells_do_not_read_what_lies_between_and_none_reads_nothing(path: Path) -> None:
    with open_slide(path, mpp=1.0) as slide:
        grid = Grid(16.0, 1.0, slide.size_yx)
        none = CellBlocks(slide, grid, np.zeros((0, 2), np.int64), patch_px=PATCH_PX, mpp=1.0)
        one = CellBlocks(slide, grid, np.array([[3, 5]]), patch_px=PATCH_PX, mpp=1.0)
        expected = slide.read(Box((56, 88), PATCH_PX, 1.0))
    assert len(none) == 0
    patches, numbers = pickle.loads(pickle.dumps(one))[0]
    np.testing.assert_array_equal(patches, expected[None])
    assert numbers.tolist() == [0]


def test_a_stride_between_pixels_is_refused_with_one_that_is_whole() -> None:
    assert whole_stride(32.0, 0.25) == 128
    assert whole_stride(22.752, 0.2528) == 90
    with pytest.raises(ValueError, match=r"stride_um: 33 µm is 16.5 pixels of 2 µm.* set stride_um to 32"):
        whole_stride(33.0, 2.0)
    with pytest.raises(ValueError, match="set stride_um to 2"):
        whole_stride(0.1, 2.0)


def test_patches_finer_than_the_slide_are_refused_by_its_name(path: Path) -> None:
    with open_slide(path, mpp=1.0) as slide:
        grid = Grid(16.0, 1.0, slide.size_yx)
        with pytest.raises(SlideError, match=r"noise\.tif: 0\.5 µm/px requested"):
            CellBlocks(slide, grid, np.array([[0, 0]]), patch_px=PATCH_PX, mpp=0.5)
