from __future__ import annotations

import numpy as np
import openslide
import pytest
import tifffile

from histo_monai.slides import SlideError, open_slide
from histo_monai.wsi.heatmaps.tiff_map import PALETTE, encode, read_map, write_map


def _raster(rows: int, columns: int) -> np.ndarray:
    """Noise with both ends of the range and, in a corner and here and there, nothing."""
    rng = np.random.default_rng(rows)
    raster = rng.random((rows, columns)).astype(np.float32)
    raster[rng.random((rows, columns)) < 0.3] = np.nan
    raster[: rows // 3, : columns // 3] = np.nan
    raster[-1, :2] = 0, 1
    return raster


@pytest.mark.parametrize("stride_um", [64.0, 62.5, 15, 256 * 0.2431, 100 / 3])
def test_a_map_comes_back_to_within_half_a_step_and_its_stride_exactly(tmp_path, stride_um):
    raster = _raster(40, 57)
    write_map(tmp_path / "a" / "map.tif", raster, stride_um)
    values, written_um = read_map(tmp_path / "a" / "map.tif")
    assert written_um == stride_um
    assert values.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(values), np.isnan(raster))
    np.testing.assert_allclose(values, raster, rtol=0, atol=1 / 508 + 1e-7)
    np.testing.assert_array_equal(values[-1, :2], [0, 1])


def test_openslide_shows_one_pixel_per_cell_in_the_palette_at_the_strides_resolution(tmp_path):
    raster = _raster(300, 520)
    write_map(tmp_path / "map.tif", raster, 62.5)
    with openslide.OpenSlide(tmp_path / "map.tif") as slide:
        assert slide.properties["openslide.vendor"] == "generic-tiff"
        assert (
            float(slide.properties["openslide.mpp-x"]) == float(slide.properties["openslide.mpp-y"]) == 62.5
        )
        assert slide.level_dimensions == ((520, 300), (260, 150), (130, 75))
        shown = np.asarray(slide.read_region((0, 0), 0, (520, 300)))
    expected = np.full((300, 520, 3), 255)
    seen = ~np.isnan(raster)
    expected[seen] = PALETTE[1:][np.rint(254 * raster[seen]).astype(int)]
    np.testing.assert_array_equal(shown[..., :3], expected)
    assert (shown[..., 3] == 255).all()


def test_the_palette_runs_from_blue_to_red_in_colors_all_different():
    assert PALETTE[0].tolist() == [255, 255, 255]
    assert PALETTE[1].argmax() == 2
    assert PALETTE[255].argmax() == 0
    assert len(np.unique(PALETTE, axis=0)) == 256


def test_a_coarser_level_is_the_mean_of_what_was_looked_at_down_to_one_tile(tmp_path):
    raster = _raster(301, 519)
    write_map(tmp_path / "map.tif", raster, 64)
    with tifffile.TiffFile(tmp_path / "map.tif") as file:
        levels = [page.asarray() for page in file.pages]
        assert [page.is_reduced for page in file.pages] == [False, True, True]
        assert [page.resolution for page in file.pages] == [(156.25 / 2**k,) * 2 for k in range(3)]
    assert [level.shape for level in levels] == [(301, 519), (151, 260), (76, 130)]
    finer = raster
    for level in levels[1:]:
        naive = np.full(level.shape, np.nan, np.float32)
        for y, x in np.ndindex(level.shape):
            block = finer[2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
            if not np.isnan(block).all():
                naive[y, x] = block[~np.isnan(block)].mean()
        np.testing.assert_array_equal(level == 0, np.isnan(naive))
        away = np.abs((level.astype(float) - 1) / 254 - naive)
        assert np.nanmax(away) < 1 / 508 + 1e-6
        finer = naive


def test_the_same_map_gives_the_same_bytes(tmp_path):
    for name in ("a.tif", "b.tif"):
        write_map(tmp_path / name, _raster(60, 70), 64)
    assert (tmp_path / "a.tif").read_bytes() == (tmp_path / "b.tif").read_bytes()


@pytest.mark.parametrize("wrong", [-0.01, 1.01, np.inf])
def test_a_refused_map_leaves_the_folder_as_it_was(tmp_path, wrong):
    raster = _raster(20, 30)
    write_map(tmp_path / "map.tif", raster, 64)
    before = (tmp_path / "map.tif").read_bytes()
    raster[10, 20] = wrong
    with pytest.raises(ValueError, match=r"in 0\.\.1"):
        write_map(tmp_path / "map.tif", raster, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["map.tif"]
    assert (tmp_path / "map.tif").read_bytes() == before


def test_a_raster_that_is_no_picture_and_a_stride_of_nothing_are_refused(tmp_path):
    for shape, stride_um in (((4, 4, 3), 64), ((0, 4), 64), ((4, 4), 0)):
        with pytest.raises(ValueError, match="positive stride"):
            write_map(tmp_path / "map.tif", np.zeros(shape, np.float32), stride_um)


def test_a_map_of_nothing_looked_at_is_all_nan(tmp_path):
    write_map(tmp_path / "map.tif", np.full((3, 5), np.nan, np.float32), 64)
    assert np.isnan(read_map(tmp_path / "map.tif")[0]).all()


def test_what_is_not_a_map_is_refused_in_one_line_that_names_the_file(tmp_path):
    (tmp_path / "text.tif").write_text("row,column\n")
    tifffile.imwrite(tmp_path / "rgb.tif", PALETTE[None], photometric="rgb")
    write_map(tmp_path / "map.tif", _raster(20, 30), 64)
    whole = (tmp_path / "map.tif").read_bytes()
    cut_at = (0, 3, 6, 60, 300, len(whole) - 1)
    for num_bytes in cut_at:
        (tmp_path / f"cut{num_bytes}.tif").write_bytes(whole[:num_bytes])
    cut = [f"cut{num_bytes}.tif" for num_bytes in cut_at]
    for name in ("text.tif", "rgb.tif", "missing.tif", *cut):
        with pytest.raises(ValueError, match=rf"{name}: not a map.*run the stage heatmap again") as error:
            read_map(tmp_path / name)
        assert "\n" not in str(error.value)


def test_a_map_is_not_taken_for_a_slide(tmp_path):
    write_map(tmp_path / "map.tif", _raster(300, 520), 64)
    with pytest.raises(SlideError, match="states no resolution") as error:
        open_slide(tmp_path / "map.tif")
    assert "\n" not in str(error.value)


def test_values_are_rounded_to_the_nearest_index():
    values = np.array([[np.nan, 0, 0.5 / 254 - 1e-5, 0.5 / 254 + 1e-5, 1]], np.float32)
    assert encode(values).tolist() == [[0, 1, 1, 2, 255]]
