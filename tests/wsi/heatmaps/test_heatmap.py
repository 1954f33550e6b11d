from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.heatmaps.heatmap import Heatmap, read_heatmap, write_heatmap

GRID = Grid(stride_um=32.0, slide_mpp=0.25, size_yx=(500, 1000))


def _heatmap(num: int) -> Heatmap:
    rng = np.random.default_rng(0)
    cells = np.argwhere(np.ones(GRID.shape, bool))[: num * 2 : 2]
    values = {name: rng.random(num, np.float32) for name in ("finetuned", "student")}
    return Heatmap(GRID, cells, rng.random(num, np.float32), values)


def test_cells_cover_the_slide_and_the_last_ones_may_reach_beyond() -> None:
    assert GRID.downsample == 128
    assert GRID.shape == (4, 8)  # 500 / 128 = 3.9 and 1000 / 128 = 7.8
    np.testing.assert_array_equal(GRID.centers_yx(np.array([[0, 0], [3, 7]])), [[64, 64], [448, 960]])
    assert Grid(32.0, 0.25, (512, 1024)).shape == (4, 8)  # a whole number of cells is not one more


@pytest.mark.parametrize("num", [0, 1, 16])
def test_a_map_is_read_as_it_was_written(tmp_path: Path, num: int) -> None:
    heatmap = _heatmap(num)
    write_heatmap(tmp_path / "maps" / "slide.csv", heatmap)
    result = read_heatmap(tmp_path / "maps" / "slide.csv")
    assert result.grid == heatmap.grid
    np.testing.assert_array_equal(result.cells, heatmap.cells)
    np.testing.assert_allclose(result.tissue, heatmap.tissue, atol=5e-5)
    assert list(result.values) == ["finetuned", "student"]
    for name, values in heatmap.values.items():
        np.testing.assert_allclose(result.values[name], values, rtol=5e-6)


def test_writing_again_what_was_read_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    write_heatmap(first, _heatmap(16))
    write_heatmap(second, read_heatmap(first))
    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".json").read_bytes() == second.with_suffix(".json").read_bytes()


def test_cells_not_looked_at_are_not_numbers_in_the_raster() -> None:
    heatmap = _heatmap(3)  # cells (0, 0), (0, 2), (0, 4)
    raster = heatmap.raster("student")
    assert raster.shape == (4, 8)
    assert np.isfinite(raster).sum() == 3
    np.testing.assert_array_equal(raster[0, [0, 2, 4]], heatmap.values["student"])


@pytest.mark.parametrize(
    "damage",
    [
        lambda csv: csv.unlink(),
        lambda csv: csv.with_suffix(".json").unlink(),
        lambda csv: csv.with_suffix(".json").write_text("{}"),
        lambda csv: csv.write_text("".join(csv.read_text().splitlines(keepends=True)[:-1])),
        lambda csv: csv.write_text(csv.read_text().replace("student", "teacher")),
        lambda csv: csv.write_text(csv.read_text().replace("64.0", "", 1)),
    ],
    ids=["no csv", "no json", "empty json", "a row less", "another model", "a missing number"],
)
def test_a_map_that_is_not_whole_is_refused_in_one_line(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "slide.csv"
    write_heatmap(path, _heatmap(4))
    damage(path)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"slide.csv: not a score table .* run the stage heatmap") as refused:
        read_heatmap(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        *({"stride_um": stride} for stride in (0.0, float("nan"), float("inf"))),
        {"slide_mpp": -1.0},
        {"size_yx": (0, 5)},
    ],
)
def test_a_grid_without_extent_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="pass positive, finite lengths"):
        Grid(**{"stride_um": 32.0, "slide_mpp": 0.25, "size_yx": (5, 5), **change})  # type: ignore[arg-type]


def test_a_grid_of_more_cells_than_memory_holds_is_refused_with_a_stride_that_would_do() -> None:
    with pytest.raises(
        ValueError, match=r"stride_um: 1e-06 makes 6\.2e\+20 cells of 25 x 25 mm.* raise it to 2\.5"
    ):
        Grid(1e-6, 0.25, (100_000, 100_000))
    Grid(2.6, 0.25, (100_000, 100_000))


LIES: list[dict[str, Any] | list[Any] | str] = [
    *({"models": value} for value in (None, 1, {}, [["student"]], "student")),
    *({"num_cells": value} for value in (15, "16", None, [16])),
    *(
        {"size_yx": value}
        for value in (None, [500], [500, "wide"], 500, [float("inf"), 500], [float("nan"), 5], [0, 0])
    ),
    *({"stride_um": value} for value in ([], "fast", -1, 0, None, {})),
    *({"slide_mpp": value} for value in ([], "x", 0, None)),
    *([1], [], "text", ""),
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_description_that_lies_is_one_line(lie: Any, tmp_path: Path) -> None:
    write_heatmap(tmp_path / "slide.csv", _heatmap(16))
    about = tmp_path / "slide.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), **lie} if isinstance(lie, dict) else lie))
    with pytest.raises(
        ValueError, match=r"slide\.csv: not a score table .* run the stage heatmap again$"
    ) as caught:
        read_heatmap(tmp_path / "slide.csv")
    assert "\n" not in str(caught.value)
