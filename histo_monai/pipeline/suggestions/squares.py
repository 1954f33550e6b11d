"""Squares to label: where they may lie, and their files for QuPath."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import image
from numpy.typing import NDArray

from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.suggestions.merging import SUGGESTIONS, answered_without_label
from histo_monai.reports.suggestions import suggested
from histo_monai.slides import open_slide
from histo_monai.slides.annotations import Region, write_geojson
from histo_monai.wsi.suggestion import Fields

TABLE, MOSAIC = "suggestions.csv", "suggestions.png"
_NAME = "suggestion"


def folder_of(of_run: Run | None, *, doubtful: bool = False) -> Path:
    """Default output: of a run's model or doubtful labels, or of `first`."""
    return SUGGESTIONS / (f"{'doubtful-' * doubtful}{of_run.name}" if of_run else "first")


def most_per_slide(num: int, num_slides: int) -> int:
    """Maximum regions per slide: twice an even distribution, at least a sixth of all.

    Regions spread over many slides, without opening each slide for one region.
    """
    return max(math.ceil(2 * num / num_slides), math.ceil(num / 6))


def bounds_corners(rows: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Slide -> corner of its bounds, QuPath's origin."""
    corners = {}
    slides = rows.drop_duplicates("slide_id")
    for slide_id, path, mpp in zip(slides["slide_id"], slides["path"], slides["slide_mpp"], strict=True):
        with open_slide(path, float(mpp)) as slide:
            corners[str(slide_id)] = slide.bounds_yx
    return corners


def taken(patches: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Squares on the candidate slides with a label, used or not, or answered without one."""
    slides = candidates.drop_duplicates("path")
    mpp_of = dict(zip(files_of(slides), slides["slide_mpp"], strict=True))
    answered = answered_without_label().merge(slides[["slide_id", "path"]], on="slide_id")
    squares = patches[patches["y"].notna()]
    columns = ["path", "y", "x", "mpp", "side_px"]
    taken = pd.concat([squares[columns], answered[columns]], ignore_index=True)
    taken = taken.assign(slide_mpp=files_of(taken).map(mpp_of))
    return taken[taken["slide_mpp"].notna()].reset_index(drop=True)


def files_of(rows: pd.DataFrame) -> pd.Series:
    """The slide's file of each row: links of one file are one slide."""
    return rows["path"].map({path: os.path.realpath(path) for path in rows["path"].unique()})


def fields(rows: pd.DataFrame) -> Fields:
    """Squares of rows with `slide_mpp`; a slide is known by its file."""
    return Fields(
        slide_ids=files_of(rows).to_numpy(object),
        centers_yx=rows[["y", "x"]].to_numpy(np.float64),
        sides_px=(rows["side_px"] * rows["mpp"] / rows["slide_mpp"]).to_numpy(np.float64),
    )


def places(rows: pd.DataFrame, side_um: float | pd.Series) -> dict[str, NDArray]:
    """Columns of suggestions.csv that say where squares lie, by rank; level-0 pixels of the canvas."""
    return {
        "rank": np.arange(1, len(rows) + 1),
        **{name: rows[name].to_numpy() for name in ("slide_id", "path")},
        **{name: rows[name].round(2).to_numpy() for name in ("y", "x")},
        "side_px": (side_um / rows["slide_mpp"]).round(2).to_numpy(),
        "mpp": rows["mpp"].to_numpy(),
        "patch_px": rows["side_px"].to_numpy(),
        "slide_mpp": rows["slide_mpp"].to_numpy(),
    }


def write_suggestions(
    folder: Path,
    table: pd.DataFrame,
    corners: Mapping[str, tuple[int, int]],
    measurements: Mapping[str, str],
    pictures: tuple[NDArray[np.uint8], Sequence[str], Sequence[float]],
) -> None:
    """Write suggestions.csv, <slide_id>.geojson for QuPath, and a picture of the squares.

    Args:
        table: `places` and further columns.
        corners: slide -> corner of its bounds (`bounds_corners`).
        measurements: name in QuPath -> column of the table.
        pictures: patches (n, 3, P, P), and for each a caption and the side of its field, µm.
    """
    patches, captions, fields_um = pictures
    table.to_csv(folder / TABLE, index=False)
    for slide_id, of_slide in table.groupby("slide_id"):
        squares = [_square(row, measurements) for row in of_slide.to_dict("records")]
        write_geojson(folder / f"{slide_id}.geojson", squares, bounds_yx=corners[str(slide_id)])
    image.imsave(folder / MOSAIC, suggested(patches, table["slide_id"].tolist(), captions, fields_um))


def _square(row: Mapping[Any, Any], measurements: Mapping[str, str]) -> Region:
    """Square outline without a class."""
    half = row["side_px"] / 2
    top, left, bottom, right = row["y"] - half, row["x"] - half, row["y"] + half, row["x"] + half
    corners = np.array([(top, left), (top, right), (bottom, right), (bottom, left)])
    values = {name: row[column] for name, column in measurements.items()}
    return Region(corners, label="", name=f"{_NAME} {int(row['rank'])}", measurements=values)
