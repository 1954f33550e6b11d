"""From a cross on a slide to all that a pathologist opens: it lies in the same place in every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
import torch
from matplotlib import image
from numpy.typing import NDArray
from torch import nn

from histo_monai.reports.maps.overlay import layout
from histo_monai.reports.maps.slide_maps import MapStyle, SlidePicture, write_slide_maps
from histo_monai.slides.annotations import read_geojson
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.heatmaps.heatmap import read_heatmap, write_heatmap
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, PatchModels

PINK = (210, 130, 180)
STRIDE_UM = 16.0
STYLE = MapStyle(("tumor",), 0.05, 0.5, 0.5, 20.0, 0.0)
ARM_PX = 6


class Darkness(nn.Module):
    """1 where the middle of a patch is black, 0 where it is as light as the tissue."""

    def forward(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        middle = patches.shape[-1] // 2
        spot = patches[:, 0, middle - 1 : middle + 1, middle - 1 : middle + 1].mean(dim=(1, 2))
        return {"model": (1 - spot / (PINK[0] / 255)).clamp(0, 1)[:, None]}


def _slide(path: Path, factors: Sequence[int], mpp: float, cells: Sequence[tuple[int, int]]) -> Path:
    """Tissue with a black cross over the middle of some cells of the grid."""
    side = round(20 * STRIDE_UM / mpp)
    pixels: NDArray[np.uint8] = np.full((side, side, 3), PINK, np.uint8)
    arm = round(ARM_PX / mpp)
    for row, column in cells:
        y, x = (round((i + 0.5) * STRIDE_UM / mpp) for i in (row, column))
        width = max(2, round(2 / mpp))
        pixels[y - arm : y + arm, x - width : x + width] = 0
        pixels[y - width : y + width, x - arm : x + arm] = 0
    with tifffile.TiffWriter(path) as writer:
        for factor in factors:
            size = side // factor
            level = pixels[: size * factor, : size * factor]
            level = level.reshape(size, factor, size, factor, 3).mean(axis=(1, 3)).round().astype(np.uint8)
            per_cm = (1e4 / (mpp * factor),) * 2
            writer.write(
                level,
                tile=(64, 64),
                photometric="rgb",
                subfiletype=int(factor > 1),
                resolution=per_cm,
                resolutionunit="CENTIMETER",
                metadata=None,
            )
    return path


@pytest.mark.parametrize(
    ("factors", "mpp"), [((1, 2, 4), 0.25), ((1, 4, 16), 0.2528), ((1, 3), 0.5), ((1,), 0.499)]
)
def test_a_cross_lies_in_one_place_in_csv_tiff_geojson_and_overlay(
    tmp_path: Path, factors: Sequence[int], mpp: float
) -> None:
    cells = [(3, 5), (14, 2), (17, 16)]
    path = _slide(tmp_path / "slide.tif", factors, mpp, cells)
    settings = MapPlan(32, 0.5, STRIDE_UM, TissueRules(4.0), 0.5, 50)
    models = PatchModels(("model",), Darkness(), lambda outputs: outputs[:, :1], ())
    heatmap = map_slide(path, mpp, models, settings, device=torch.device("cpu"), workers=0)
    write_heatmap(tmp_path / "slide.csv", heatmap)
    heatmap = read_heatmap(tmp_path / "slide.csv")
    picture = SlidePicture.read(path, heatmap, STYLE, [])
    write_slide_maps(tmp_path / "out", "slide", "a slide", heatmap, "model", picture, STYLE)
    step = STRIDE_UM / mpp  # Level-0 pixels, not whole in three of four.
    corners = np.array(sorted(cells)) * step

    lit = heatmap.cells[heatmap.values["model"] > 0.5]
    np.testing.assert_array_equal(lit, sorted(cells))
    table = np.genfromtxt(tmp_path / "slide.csv", delimiter=",", names=True)
    result = table[table["model"] > 0.5]
    np.testing.assert_allclose(np.column_stack([result["y"], result["x"]]), corners + step / 2, atol=0.01)

    with openslide.OpenSlide(tmp_path / "out/slide.tif") as opened:
        scale = float(opened.properties["openslide.mpp-x"]) / mpp  # Level-0 pixels of the slide per pixel.
        colors = np.asarray(opened.read_region((0, 0), 0, opened.dimensions))[..., :3].astype(int)
    red = np.argwhere(colors[..., 0] - colors[..., 2] > 80)
    np.testing.assert_allclose(red * scale, corners, atol=1)

    regions, points = read_geojson(tmp_path / "out/slide.geojson")
    exteriors = np.array(sorted(region.exterior_yx.min(axis=0).tolist() for region in regions))
    np.testing.assert_allclose(exteriors, corners, atol=1)
    assert all(np.ptp(region.exterior_yx, axis=0) == pytest.approx(step, abs=1) for region in regions)
    np.testing.assert_allclose(sorted(point.yx for point in points), corners + step / 2, atol=1)

    pixels = np.rint(image.imread(tmp_path / "out/slide.png")[..., :3] * 255).astype(int)
    top, left = layout(picture.thumbnail.shape[:2], "a slide").corner_yx
    height, width, _ = picture.thumbnail.shape
    shown = pixels[top : top + height, left : left + width]
    assert picture.mpp == pytest.approx(mpp)  # So small that every level-0 pixel is shown.
    for corner in corners:
        first, last = np.ceil(corner).astype(int), np.floor(corner + step).astype(int)
        changed = (np.abs(shown - picture.thumbnail).sum(axis=2) > 120) & (shown[..., 0] > shown[..., 2] + 40)
        window = changed[first[0] - 3 : last[0] + 3, first[1] - 3 : last[1] + 3]
        rows, columns = np.nonzero(window)
        assert abs(rows.min() - 3) <= 1
        assert abs(columns.min() - 3) <= 1
        assert abs(rows.max() + 1 - (window.shape[0] - 3)) <= 1
        assert abs(columns.max() + 1 - (window.shape[1] - 3)) <= 1


def test_overlays_are_neither_tiny_nor_huge(tmp_path: Path) -> None:
    """A slide of 320 µm is shown finer than asked for, one that is asked for at 0.01 µm/px as fine as it is."""
    path = _slide(tmp_path / "slide.tif", (1, 2), 0.25, [(3, 3)])
    models = PatchModels(("model",), Darkness(), lambda outputs: outputs[:, :1], ())
    settings = MapPlan(32, 0.5, STRIDE_UM, TissueRules(4.0), 0.5, 50)
    heatmap = map_slide(path, 0.25, models, settings, device=torch.device("cpu"), workers=0)
    for asked in (8.0, 0.1):
        style = MapStyle((), asked, 0.5, 0.5, 20.0, 0.0)
        assert SlidePicture.read(path, heatmap, style, []).mpp == pytest.approx(
            320 / 640 if asked == 8 else 0.25
        )
