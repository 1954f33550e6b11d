"""Data warnings on labeled patches: problems that do not stop a run but weaken its results."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.slides import open_slide, tissue_fraction, tissue_mask
from histo_monai.utils.process.processes import map_over_processes

_ONE_SIDED = 0.95
"""Fraction of one class in a split from which accuracy has little meaning."""
_GLASS = 0.05
"""Tissue fraction of a patch below which it is empty glass."""


def remarks_on(table: pd.DataFrame, *, patch_px: int, tissue_mpp: float, processes: int) -> list[str]:
    """Data warnings on the labels, one line each.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits; `side_px` of images as in their files.
        patch_px: Side of the networks' patches.
        tissue_mpp: Resolution of the tissue mask, µm/px.
        processes: Slides read in parallel; does not affect the result.
    """
    if table.empty:
        return []
    return [
        *_shrunk(table, patch_px),
        *_sizes(table),
        *_one_sided(table),
        *_on_glass(table, tissue_mpp, processes),
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
        shares = labels.value_counts(normalize=True)
        if len(shares) and shares.iloc[0] >= _ONE_SIDED:
            lines.append(
                f"{shares.iloc[0]:.0%} of the {len(labels)} {split} patches are {shares.index[0]!r}, so a constant "
                "prediction has this accuracy. Fix: add patches of other classes"
            )
    return lines


def _on_glass(table: pd.DataFrame, tissue_mpp: float, processes: int) -> list[str]:
    squares = table[table["y"].notna()]
    if squares.empty:
        return []
    rows = [part for _, part in squares.groupby("path", sort=True)]
    look = partial(_tissue, tissue_mpp=tissue_mpp)
    found = map_over_processes(look, rows, processes=processes, title="tissue of patches", unit="slide")
    tissue = pd.Series(np.concatenate(list(found)), index=np.concatenate([part.index for part in rows]))
    bare = squares[tissue.reindex(squares.index) < _GLASS]
    lines = []
    for label, some in bare.groupby("label"):
        num = int((squares["label"] == label).sum())
        what = f"of class {label!r} " if label else ""
        lines.append(
            f"{len(some)} of {num} patches {what}show empty glass, no tissue (the first: {some['patch_id'].iloc[0]}, "
            f"y {some['y'].iloc[0]:.0f}, x {some['x'].iloc[0]:.0f}). Fix: outline the class again, unless it is glass"
        )
    return lines


def _tissue(rows: pd.DataFrame, tissue_mpp: float) -> NDArray[np.float64]:
    """Tissue fraction of each square of one slide, 0..1, shape (rows,)."""
    stated = rows["slide_mpp"].iloc[0]
    with open_slide(Path(rows["path"].iloc[0]), None if np.isnan(stated) else float(stated)) as slide:
        mask_mpp = max(tissue_mpp, slide.mpp)
        mask = tissue_mask(slide.thumbnail(mask_mpp))
        centers = rows[["y", "x"]].to_numpy(np.float64) * slide.mpp / mask_mpp
    parts = np.empty(len(rows))
    sides = (rows["side_px"] * rows["mpp"] / mask_mpp).to_numpy()
    for side in np.unique(sides):
        same = sides == side
        parts[same] = tissue_fraction(mask, centers[same], float(side))
    return parts
