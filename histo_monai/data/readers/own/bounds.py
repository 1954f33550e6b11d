"""Bounds check of squares listed in a user's table: each must lie inside its slide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.tables.manifests import first_row
from histo_monai.slides import choose_level, open_slide
from histo_monai.slides.annotations import BOUNDS
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes

_ROUNDING_PX = 0.5
"""Centers are often whole numbers, so a square of odd side at the edge is off by half a pixel."""


def squares_on_canvas(path: Path, table: pd.DataFrame, slides: pd.DataFrame, processes: int) -> pd.DataFrame:
    """The table with `y` and `x` converted to count from the corner of the canvas, for rows with `origin` bounds.

    Opens every slide with a patch. Refuses a patch outside of its slide, and a patch finer than its slide.

    Args:
        path: The csv of patches, for messages.
        table: Columns `slide_id`, `y`, `x`, `origin`, `side_px`, `mpp`; rows without a slide_id are ignored.
        slides: Columns `slide_id`, `path`, `mpp` (missing if the file states it).
        processes: Slides opened at the same time.

    Raises:
        InputError: A slide cannot be opened, or a patch cannot be read; names file and row.
    """
    slides = slides[slides["slide_id"].isin(table["slide_id"].unique())]
    mpps = [None if np.isnan(mpp) else float(mpp) for mpp in slides["mpp"]]
    jobs = (list(slides["path"]), mpps)
    measured = list(map_over_processes(_measure, *jobs, processes=processes, title="slides", unit="slide"))
    problems = [problem for problem, *_ in measured if problem]
    if problems:
        more = f"; and {len(problems) - 1} more slides" if len(problems) > 1 else ""
        raise InputError(f"{path}: {problems[0]}{more}")
    levels = dict(
        zip(slides["slide_id"], (mpps_of_levels for _, _, mpps_of_levels, _ in measured), strict=True)
    )
    for slide_id, finest in table[table["slide_id"] != ""].groupby("slide_id")["mpp"].min().items():
        try:
            choose_level(levels[str(slide_id)], float(finest))
        except InputError as error:
            raise InputError(f"{path}: slide {slide_id!r}: {error}") from None
    sizes = pd.DataFrame(
        [(*size, mpps_of_levels[0], *corner) for _, size, mpps_of_levels, corner in measured],
        columns=["h", "w", "mpp", "y", "x"],
    )
    on = sizes.set_axis(slides["slide_id"]).reindex(table["slide_id"]).set_axis(table.index)
    counts_from_bounds = table["origin"] == BOUNDS
    table = table.assign(**{axis: table[axis] + on[axis].where(counts_from_bounds, 0) for axis in ("y", "x")})
    _refuse_outside(path, table, on)
    return table


def _refuse_outside(path: Path, table: pd.DataFrame, on: pd.DataFrame) -> None:
    """Refuse patches outside their slide; `on` has size and resolution of each row's slide, or missing values."""
    half = table["side_px"] * table["mpp"] / on["mpp"] / 2 - _ROUNDING_PX
    outside = pd.Series(False, index=table.index)
    for center, size in (("y", "h"), ("x", "w")):
        outside |= (table[center] < half) | (table[center] > on[size] - half)
    if outside.any():
        row = first_row(outside)
        patch, slide = table.loc[row], on.loc[row]
        shift = f", whose bounds begin at y {slide['y']:g}, x {slide['x']:g} (added)"
        raise InputError(
            f"{path}, row {row}: the patch around y {patch['y']:g}, x {patch['x']:g} of {patch['side_px']:g} px "
            f"at {patch['mpp']:g} µm/px reaches outside slide {patch['slide_id']!r} "
            f"({slide['h']:g} × {slide['w']:g} px, {slide['mpp']:.4g} µm/px)"
            + (shift if patch["origin"] == BOUNDS else "")
        )


def _measure(
    path: Path, mpp: float | None
) -> tuple[str, tuple[int, int], tuple[float, ...], tuple[int, int]]:
    """The error of a slide, or its size, the resolutions of its levels and the corner of its bounds."""
    try:
        with open_slide(path, mpp) as slide:
            return "", slide.size_yx, slide.level_mpps, slide.bounds_yx
    except (InputError, OSError) as error:
        return str(error), (0, 0), (), (0, 0)
