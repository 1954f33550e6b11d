"""Data warnings on labeled patches: problems that do not stop a run but weaken its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.slides import open_slide, tissue_fraction
from histo_monai.slides.tiles.usable import TissueRules, usable_tissue
from histo_monai.utils.process.processes import map_over_processes

_ONE_SIDED = 0.95
"""Fraction of one class in a split from which accuracy has little meaning."""
_GLASS = 0.05
"""Tissue fraction of a patch below which it is empty glass."""
_MOSTLY = 0.5
"""Fraction of a patch on artefacts from which `check` names it."""


def label_warnings(
    table: pd.DataFrame,
    *,
    patch_px: int,
    tissue: TissueRules,
    outlines: Mapping[str, str] | None = None,
    processes: int,
) -> list[str]:
    """Data warnings on the labels, one line each.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits; `side_px` of images as in their files.
        patch_px: Side of the networks' patches.
        tissue: Rules for the tissue that is used.
        outlines: slide_id -> the user's outlines of tissue and artefacts.
        processes: Slides read in parallel; does not affect the result.
    """
    if table.empty:
        return []
    squares = table[table["y"].notna()]
    look = partial(_areas, tissue=tissue, outlines=outlines or {})
    areas = _of_squares(squares, look, processes)
    return [
        *_shrunk(table, patch_px),
        *_sizes(table),
        *_one_sided(table),
        *_on_glass(squares[areas["tissue"] < _GLASS], squares),
        *_on_artefacts(squares[areas["excluded"] >= _MOSTLY], len(squares)),
    ]


def _shrunk(table: pd.DataFrame, patch_px: int) -> list[str]:
    images = table[table["y"].isna()]
    larger = images.loc[images["side_px"] > patch_px, "side_px"]
    if larger.empty:
        return []
    return [
        f"{len(larger)} of {len(images)} images have up to {larger.max()} px a side and are shrunk to patch_px "
        f"{patch_px}. Fix: raise patch_px to use their full resolution"
    ]


def _sizes(table: pd.DataFrame) -> list[str]:
    num = table["split"].value_counts()
    if num.get("validation", 0) <= num.get("train", 0):
        return []
    return [
        f"there are more patches for validation ({num['validation']}) than for training ({num['train']}), "
        "because some patients or slides have many. Fix: lower index.validation_fraction, or fill the column split"
    ]


def _one_sided(table: pd.DataFrame) -> list[str]:
    lines = []
    for split in ("train", "validation", "test"):
        labels = table.loc[(table["split"] == split) & (table["label"] != ""), "label"]
        proportions = labels.value_counts(normalize=True)
        if len(proportions) and proportions.iloc[0] >= _ONE_SIDED:
            lines.append(
                f"{proportions.iloc[0]:.0%} of the {len(labels)} {split} patches are {proportions.index[0]!r}, "
                "so a constant prediction has this accuracy. Fix: add patches of other classes"
            )
    return lines


def _of_squares(
    squares: pd.DataFrame, look: Callable[[pd.DataFrame], NDArray[np.float64]], processes: int
) -> pd.DataFrame:
    """Fractions of each square that are tissue and excluded."""
    rows = [part for _, part in squares.groupby("path", sort=True)]
    found = map_over_processes(look, rows, processes=processes, title="tissue of patches", unit="slide")
    areas = np.concatenate([np.empty((0, 2)), *found])
    index = np.concatenate([np.empty(0, int), *(part.index for part in rows)])
    return pd.DataFrame(areas, index, ["tissue", "excluded"]).reindex(squares.index)


def _on_glass(bare: pd.DataFrame, squares: pd.DataFrame) -> list[str]:
    lines = []
    for label, some in bare.groupby("label"):
        num = int((squares["label"] == label).sum())
        what = f"of class {label!r} " if label else ""
        lines.append(
            f"{len(some)} of {num} patches {what}show empty glass, no tissue ({_first(some)}). "
            "Fix: outline the class again, unless it is glass"
        )
    return lines


def _on_artefacts(flagged: pd.DataFrame, num: int) -> list[str]:
    if flagged.empty:
        return []
    return [
        f"{len(flagged)} of {num} labeled patches lie mostly on pen, dark areas, blur or outlined artefacts and "
        f"are used nevertheless ({_first(flagged)}). Fix: check them; index.artefacts and masks/ decide"
    ]


def _first(patches: pd.DataFrame) -> str:
    one = patches.iloc[0]
    return f"the first: {one['patch_id']}, y {one['y']:.0f}, x {one['x']:.0f}"


def _areas(rows: pd.DataFrame, tissue: TissueRules, outlines: Mapping[str, str]) -> NDArray[np.float64]:
    """Fractions of each square of one slide that are tissue and excluded, 0..1, shape (rows, 2)."""
    stated = rows["slide_mpp"].iloc[0]
    with open_slide(Path(rows["path"].iloc[0]), None if np.isnan(stated) else float(stated)) as slide:
        usable = usable_tissue(slide, tissue, outlines.get(str(rows["slide_id"].iloc[0]), ""))
        centers = rows[["y", "x"]].to_numpy(np.float64) * slide.mpp / usable.mpp
    parts = np.empty((len(rows), 2))
    sides = (rows["side_px"] * rows["mpp"] / usable.mpp).to_numpy()
    for side in np.unique(sides):
        same = sides == side
        for column, mask in enumerate((usable.tissue, usable.excluded)):
            parts[same, column] = tissue_fraction(mask, centers[same], float(side))
    return parts
