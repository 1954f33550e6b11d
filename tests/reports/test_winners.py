"""Maps of several classes in one picture, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from histo_monai.reports.maps.mosaic import map_mosaic
from histo_monai.reports.maps.overlay import layout, overlay
from histo_monai.reports.maps.winners import UNKNOWN, blend_winners, reference_picture, winners
from histo_monai.slides.annotations import Region, class_color
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.heatmaps.heatmap import Heatmap, column_of

CLASSES = ("gland", "stroma", "fat")


@pytest.fixture
def heatmap() -> Heatmap:
    """4 x 5 cells of 8 px of 1 µm, three of them not looked at."""
    random = np.random.default_rng(0)
    cells = np.argwhere(np.arange(20).reshape(4, 5) % 7 != 3)
    probabilities = random.dirichlet(np.ones(3), len(cells)).astype(np.float32)
    values = {column_of("m", name): probabilities[:, i] for i, name in enumerate(CLASSES)}
    return Heatmap(Grid(8.0, 1.0, (32, 40)), cells, np.ones(len(cells), np.float32), values)


def test_each_cell_has_the_class_that_is_most_probable_there(heatmap: Heatmap) -> None:
    best, probability = winners(heatmap, "m", CLASSES)
    expected, surest = np.full((4, 5), -1), np.zeros((4, 5))
    for number, (row, column) in enumerate(heatmap.cells):
        probabilities = [float(heatmap.values[f"m:{name}"][number]) for name in CLASSES]
        surest[row, column] = max(probabilities)
        expected[row, column] = probabilities.index(max(probabilities))
    np.testing.assert_array_equal(best, expected)
    np.testing.assert_allclose(probability, surest, rtol=1e-6)


def test_the_color_of_a_cell_is_that_of_its_class_and_the_stronger_the_surer(heatmap: Heatmap) -> None:
    gray = np.full((32, 40, 3), 128, np.uint8)
    picture = blend_winners(gray, 1.0, heatmap, "m", CLASSES)
    best, probability = winners(heatmap, "m", CLASSES)
    for row, column in np.ndindex(4, 5):
        cell = picture[8 * row : 8 * row + 8, 8 * column : 8 * column + 8].reshape(-1, 3)
        assert (cell == cell[0]).all()
        if best[row, column] < 0:
            assert (cell == 128).all()
            continue
        weight = 0.25 + 0.4 * (probability[row, column] - 1 / 3) / (2 / 3)
        color = np.array(class_color(CLASSES[best[row, column]]))
        np.testing.assert_allclose(cell[0], 128 * (1 - weight) + color * weight, atol=0.51)


def test_what_nobody_outlined_is_gray_and_never_black() -> None:
    box = np.array([(0, 0), (0, 16), (16, 16), (16, 0)], float)
    picture = reference_picture(
        [Region(box, label="gland"), Region(box + 16, label="fat")], (16, 20), 1.0, 2.0
    )
    assert (picture[:8, :8] == class_color("gland")).all()
    assert (picture[8:, 8:16] == class_color("fat")).all()
    assert (picture[:8, 8:] == UNKNOWN).all()


def test_a_key_names_every_class_below_the_slide(heatmap: Heatmap) -> None:
    gray = np.full((32, 40, 3), 128, np.uint8)
    picture = overlay(gray, 1.0, heatmap, "m", regions=[], title="s", quantity="", classes=CLASSES)
    plan = layout((32, 40), "s", CLASSES)
    assert picture.shape[:2] == plan.canvas_yx
    top, left = plan.corner_yx
    np.testing.assert_array_equal(
        picture[top : top + 32, left : left + 40], blend_winners(gray, 1.0, heatmap, "m", CLASSES)
    )
    below = picture[top + 32 :].reshape(-1, 3)
    mosaic = map_mosaic([("s", [gray])], ["slide"], classes=CLASSES).reshape(-1, 3)
    for name in CLASSES:
        color = np.array(class_color(name))
        assert (below == color).all(axis=1).any()
        assert (mosaic == color).all(axis=1).any()
