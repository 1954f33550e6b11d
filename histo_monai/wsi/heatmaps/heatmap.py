"""Heat-map of a slide: model predictions per tissue cell, and its csv file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.manifests import first_five
from histo_monai.slides.annotations import CANVAS
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.csv_values import read_varied_csv
from histo_monai.utils.storage import RECORD_SEAL, file_sha256, read_json, sealed, whole_file, write_json
from histo_monai.utils.storage.shapes import COUNT, POSITIVE
from histo_monai.wsi.heatmaps.origin import CSV_SHA256, MADE_FROM

PLACE_COLUMNS = ("row", "column", "y", "x", "tissue")
"""First columns of a score csv: cell, center in level-0 pixels, tissue fraction."""


def column_of(model: str, label: str = "") -> str:
    """Column name of a model's values, with the class if several are mapped."""
    return f"{model}:{label}" if label else model


_SHAPE = {
    "stride_um": POSITIVE,
    "slide_mpp": POSITIVE,
    "size_yx": [COUNT],
    "models": [str],
    "num_cells": COUNT,
    "distances?": [str],
    "answers?": bool,
}

IN_TRAINING = "_seen"
"""Suffix of columns with predictions of a model trained on the slide."""
DISTANCE = "_distance"
"""Suffix of columns with distances to the labeled training patches of a model."""
ANSWER = "answer"
"""Column with the class of a cell, empty where the model abstains."""
UNLIKE = "unlike_training"
"""Name of the fraction of a slide's mapped tissue whose distance is above 1."""
ABSTAINS = "abstains"
"""Name of the fraction of a slide's mapped tissue without an answer."""
_MOSTLY = 0.5


@dataclass(frozen=True)
class Heatmap:
    """One value per model and tissue cell.

    Attributes:
        grid: cell grid of the slide.
        cells: (n, 2), int64, unique (row, column), sorted.
        tissue: (n,), float32, tissue fraction of each cell, 0..1.
        values: column (`column_of`) -> (n,), float32, 0..1: class probability or score.
        distances: model -> (n,), float32: distance to its labeled training patches; above 1 is unlike them.
        answers: (n,), class of each cell, empty where the model abstains; None: no error rate was given.
    """

    grid: Grid
    cells: NDArray[np.int64]
    tissue: NDArray[np.float32]
    values: Mapping[str, NDArray[np.float32]]
    distances: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    answers: NDArray[np.str_] | None = None

    def raster(self, column: str) -> NDArray[np.float32]:
        """Map as an image with one pixel per cell, `grid.shape`, float32; NaN for unmapped cells."""
        raster = np.full(self.grid.shape, np.nan, np.float32)
        raster[tuple(self.cells.T)] = self.values[column]
        return raster

    def column(self, model: str, label: str) -> str:
        """Column of a model and class, or the model's only column."""
        return model if model in self.values else column_of(model, label)

    def answered(self) -> Heatmap:
        """The map in which cells without an answer have no value, NaN."""
        if self.answers is None:
            return self
        has_none = self.answers == ""
        return replace(
            self, values={name: np.where(has_none, np.nan, of) for name, of in self.values.items()}
        )

    def unlike_training(self, model: str) -> float:
        """Fraction of the mapped tissue that is unlike the labeled training patches of a model; NaN if unknown."""
        return self._fraction(self.distances[model] > 1) if model in self.distances else math.nan

    def abstains(self) -> float:
        """Fraction of the mapped tissue without an answer; 0 where none was asked for."""
        return 0.0 if self.answers is None else self._fraction(self.answers == "")

    def _fraction(self, is_part: NDArray[np.bool_]) -> float:
        if not self.tissue.any():
            return math.nan
        return float(np.average(is_part, weights=self.tissue.astype(np.float64)))


def unlike_slides(fractions: Mapping[str, float]) -> list[str]:
    """Warning, if any, about slides whose tissue is mostly unlike the labeled training patches.

    Args:
        fractions: slide -> `Heatmap.unlike_training`.
    """
    mostly = [name for name, fraction in fractions.items() if fraction > _MOSTLY]
    if not mostly:
        return []
    return [
        f"mostly tissue unlike the labeled training patches in {len(mostly)} of {len(fractions)} slides: "
        f"{first_five(mostly)}. Fix: check their maps, and label patches of such slides"
    ]


def write_heatmap(path: Path, heatmap: Heatmap, made_from: Mapping[str, Any] | None = None) -> None:
    """Write the score csv and a `.json` with the grid; each appears complete or not at all.

    The json is written last, so that its presence marks a complete csv; it holds both SHA-256. Columns:
    `PLACE_COLUMNS`, values, distances and answers; centers with two decimals, values with six digits.

    Args:
        path: csv file; an existing json is deleted first, so that it never describes another csv.
        made_from: provenance for the json (`Origin.as_dict`).
    """
    path.with_suffix(".json").unlink(missing_ok=True)
    centers = heatmap.grid.centers_yx(heatmap.cells).round(2)
    columns = [*heatmap.cells.T, *centers.T, np.round(heatmap.tissue.astype(np.float64), 4)]
    table = pd.DataFrame(dict(zip(PLACE_COLUMNS, columns, strict=True)))
    of_models = {f"{name}{DISTANCE}": values for name, values in heatmap.distances.items()}
    written = {**heatmap.values, **of_models}
    texts = {name: [f"{value:.6g}" for value in values] for name, values in written.items()}
    if heatmap.answers is not None:
        texts[ANSWER] = heatmap.answers.tolist()
    with whole_file(path) as draft:
        table.assign(**texts).to_csv(draft, index=False)
    grid = heatmap.grid
    about = {
        "stride_um": grid.stride_um,
        "slide_mpp": grid.slide_mpp,
        "size_yx": list(grid.size_yx),
        "origin": CANVAS,
        "bounds_yx": list(grid.bounds_yx),
        "models": list(heatmap.values),
        "num_cells": len(heatmap.cells),
        **({"distances": list(heatmap.distances)} if heatmap.distances else {}),
        **({"answers": True} if heatmap.answers is not None else {}),
        **({MADE_FROM: made_from} if made_from else {}),
        CSV_SHA256: file_sha256(path),
    }
    write_json(path.with_suffix(".json"), sealed(about, RECORD_SEAL))


def read_heatmap(path: str | Path) -> Heatmap:
    """Heat-map from the files of `write_heatmap`.

    Raises:
        InputError: a file is missing or damaged.
    """
    path = Path(path)
    try:
        about = read_json(path.with_suffix(".json"), "run the stage heatmap again", _SHAPE)
        table = read_varied_csv(path, [ANSWER], stage="heatmap")
        models = list(about["models"])
        distances = {name: f"{name}{DISTANCE}" for name in about.get("distances", [])}
        answers = [ANSWER] if about.get("answers") else []
        wanted = [*PLACE_COLUMNS, *models, *distances.values(), *answers]
        if list(table.columns) != wanted or len(table) != about["num_cells"]:
            raise InputError(f"columns or rows differ from {path.with_suffix('.json').name}")
        height, width = (int(side) for side in about["size_yx"])
        top, left = (int(place) for place in about.get("bounds_yx", (0, 0)))  # Earlier maps have no bounds.
        grid = Grid(float(about["stride_um"]), float(about["slide_mpp"]), (height, width), (top, left))
        _check_rows(table.drop(columns=answers), grid, models)
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        what = " ".join((error.problem if isinstance(error, InputError) else str(error)).split())
        raise InputError(f"{path}: not a score table ({what}). Fix: run the stage heatmap again") from None
    return Heatmap(
        grid,
        table[["row", "column"]].to_numpy(np.int64),
        table["tissue"].to_numpy(np.float32),
        {name: table[name].to_numpy(np.float32) for name in models},
        {name: table[column].to_numpy(np.float32) for name, column in distances.items()},
        table[ANSWER].to_numpy(str) if answers else None,
    )


def _check_rows(table: pd.DataFrame, grid: Grid, models: Sequence[str]) -> None:
    numbers = table.to_numpy(np.float64)
    if not np.isfinite(numbers).all():
        raise InputError("a value is missing or not a number")
    if (table.drop(columns=[*PLACE_COLUMNS, *models]) < 0).to_numpy().any():
        raise InputError("a distance is negative")
    fractions = table[["tissue", *models]].to_numpy(np.float64)
    if ((fractions < 0) | (fractions > 1)).any():
        raise InputError("a value is outside 0..1")
    cells = table[["row", "column"]].to_numpy(np.float64)
    if ((cells < 0) | (cells >= grid.shape) | (cells % 1 != 0)).any():
        raise InputError(f"a cell is outside the slide's {grid.shape[0]} x {grid.shape[1]} grid")
    if table.duplicated(["row", "column"]).any():
        raise InputError("a cell is duplicated")
