import numpy as np
import pytest
from matplotlib.path import Path as Outline

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, lesion_mask, make_world
from histo_monai.data.simulated.plans.breast import Breast
from histo_monai.data.simulated.plans.lesions import DepthMap, Lesion, rasterize
from histo_monai.data.simulated.tissue import render as rendering
from histo_monai.data.simulated.tissue.render import render, render_strips
from histo_monai.data.simulated.tissue.world import World

SPEC = SlideSpec("tumor_001", 41, "macro", True, 1600, 0.5)


@pytest.mark.parametrize("mpp", [0.25, 0.5, 1.0])
def test_windows_match_the_larger_rendering_that_holds_them(mpp: float) -> None:
    world, _ = make_world(SlideSpec("tumor_001", 41, "macro", True, 1024, mpp))
    whole = render(world, 100, 60, 600, 640).image.astype(int)
    for top, left, height, width in ((100, 60, 300, 320), (397, 333, 211, 173), (400, 380, 300, 320)):
        part = render(world, top, left, height, width).image
        difference = abs(part - whole[top - 100 : top - 100 + height, left - 60 : left - 60 + width])
        assert difference.mean() < 0.05
        assert (difference > 6).mean() < 1e-4


def test_blocks_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    world, _ = make_world(SPEC)
    monkeypatch.setattr(rendering, "BLOCK_PX", 256)
    small = np.concatenate(list(render_strips(world, 700, 900))).astype(int)
    large = render(world, 0, 0, 700, 900).image
    assert abs(small - large).mean() < 0.05


def test_the_same_seed_gives_the_same_pixels_and_another_seed_others() -> None:
    first, again = (render(make_world(SPEC)[0], 300, 300, 200, 200).image for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = render(
        make_world(SlideSpec("tumor_001", 42, "macro", True, 1600, 0.5))[0], 300, 300, 200, 200
    ).image
    assert abs(first.astype(int) - other).mean() > 5


def test_malignant_cells_lie_inside_the_outlines_and_outside_their_holes() -> None:
    world, lesions = make_world(SPEC)
    malignant = np.concatenate([render(world, top, 0, 400, 1600).malignant for top in range(0, 1600, 400)])
    y, x = np.nonzero(malignant[::5, ::5])
    points = np.stack([(y * 5 + 0.5) * 0.5, (x * 5 + 0.5) * 0.5], 1)
    # The 4 µm raster of the depth map and the 2 µm raster of the epithelium blur the border by that much.
    inside = np.any([Outline(s.exterior).contains_points(points, radius=4) for s in lesions], 0)
    inside |= np.any([Outline(s.exterior).contains_points(points, radius=-4) for s in lesions], 0)
    assert len(points) > 1000
    assert inside.mean() > 0.999
    hole = Outline(lesions[0].holes[0])
    shrunk = hole.vertices.mean(0) + 0.9 * (hole.vertices - hole.vertices.mean(0))
    assert not Outline(shrunk).contains_points(points).any()


def test_lesion_mask_is_the_even_area_of_its_polygons() -> None:
    _, lesions = make_world(SPEC)
    mask = lesion_mask(SPEC, 4)
    y, x = np.mgrid[: mask.shape[0], : mask.shape[1]]
    points = np.stack([(y.ravel() + 0.5) * 2, (x.ravel() + 0.5) * 2], 1)
    expected = np.zeros(len(points), bool)
    for lesion in lesions:
        expected |= Outline(lesion.exterior).contains_points(points)
        for hole in lesion.holes:
            expected &= ~Outline(hole).contains_points(points)
    wrong = mask.ravel() != expected
    assert wrong.mean() < 0.004  # pixels astride an outline


def test_depth_inside_a_disc_is_the_distance_to_its_rim() -> None:
    theta = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    disc = Lesion(np.stack([500 + 200 * np.sin(theta), 600 + 200 * np.cos(theta)], 1))
    from histo_monai.data.simulated.raster.lattice import Grid

    grid = Grid(0.0, 0.0, 2.0, 500, 600)
    depth = DepthMap([disc], (1000.0, 1200.0)).at(grid)
    y, x = np.meshgrid(grid.rows_um() - 500, grid.columns_um() - 600, indexing="ij")
    truth = 200 - np.hypot(y, x)
    near = abs(truth) < 150
    assert abs(depth - truth)[near].max() < 6
    assert rasterize([disc], 2.0, 500, 600).sum() * 4 == pytest.approx(np.pi * 200**2, rel=0.01)


def test_glass_is_nearly_white_and_tissue_is_not() -> None:
    world = World.from_seed(5, 1.0, Breast(5, (1000.0, 1000.0)))
    image = render(world, 0, 0, 1000, 1000).image
    assert np.median(image[:20, :20], axis=(0, 1)).min() > 225
    assert image[400:600, 400:600].mean() < 220
