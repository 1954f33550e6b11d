from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from histo_monai.reports.site.tiles import Pyramid
from histo_monai.reports.site.viewer import slide_script
from histo_monai.slides.annotations import Point, Region
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.heatmaps.heatmap import Heatmap


@pytest.fixture
def viewer_data() -> dict[str, object]:
    grid = Grid(64.0, 0.5, (1000, 1300))
    cells = np.array([[0, 0], [2, 3], [7, 10]])
    values = {"student": np.array([0.0, 0.5, 1.0], np.float32)}
    heatmap = Heatmap(grid, cells, np.ones(3, np.float32), values)
    region = Region(np.array([[100.0, 200.0], [100, 600], [300, 600], [300, 200]]), label="tumor")
    points = [Point((100.0, 50.0), "tumor", {"probability": value}) for value in (0.3, 0.9)]
    script = slide_script(
        "</script>'\"", Pyramid(650, 500, 1.0), "slides/a/", heatmap, [region], {"student": points}, 150.0
    )
    assert "</script>" not in script
    arguments = script.strip().removeprefix("histoSlide(").removesuffix(");")
    slide_id, content = json.loads(f"[{arguments}]")
    assert slide_id == "</script>'\""
    return dict(content)


def test_maps_are_bytes_of_cells(viewer_data: dict) -> None:
    grid = viewer_data["grid"]
    assert grid == {"rows": 8, "columns": 11, "stride_um": 64.0}
    cells = np.frombuffer(base64.b64decode(viewer_data["maps"]["student"]), np.uint8).reshape(8, 11)
    assert (cells[0, 0], cells[2, 3], cells[7, 10]) == (0, 127, 254)
    assert (np.delete(cells.ravel(), [0, 25, 87]) == 255).all()


def test_places_are_in_micrometers_and_the_surest_come_first(viewer_data: dict) -> None:
    (outline,) = viewer_data["outlines"]
    assert outline["points"] == "100.0,50.0 300.0,50.0 300.0,150.0 100.0,150.0"
    assert (outline["x"], outline["y"], outline["side"], outline["name"]) == (200.0, 100.0, 200.0, "tumor")
    places = viewer_data["detections"]["student"]
    assert places == [{"x": 25.0, "y": 50.0, "score": 0.9}, {"x": 25.0, "y": 50.0, "score": 0.3}]
    assert (viewer_data["width_um"], viewer_data["height_um"]) == (650.0, 500.0)
