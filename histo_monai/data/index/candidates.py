"""Unlabeled fields of slides, for semi-supervised training and for `suggest`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.readers.shared.quotas import even_quotas
from histo_monai.data.tables.patches import labeled_table
from histo_monai.slides import open_slide
from histo_monai.slides.geometry import MAX_UPSAMPLING
from histo_monai.slides.tiles.cells import tissue_cells
from histo_monai.slides.tiles.grid import Grid
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.randomness import generator

_LOG = logging.getLogger(__name__)

PLENTY = 2400
"""Default number of unlabeled patches; the reported figures of simulated slides use it."""
_LEAST_OFFER, _SURPLUS = 64, 4
SEARCHED_COLUMNS = ("slide_id", "path", "patient_id", "slide_mpp")


def slides_to_search(
    slides: pd.DataFrame, patches: pd.DataFrame, held_out: pd.DataFrame, *, shared_ids: bool
) -> pd.DataFrame:
    """Slides of the pretraining and of training patches, without validation and test slides.

    Args:
        slides: Pretraining slides with `slide_id`, `path`, `patient_id`, `mpp`.
        patches: `data.tables.columns.PATCH_COLUMNS`; only training rows are used.
        held_out: `slide_id`, `path`, `patient_id` (empty if unknown) of validation and test. A slide is excluded by
            its file.
        shared_ids: All tables come from one collection: also exclude by slide and patient id.

    Returns:
        `SEARCHED_COLUMNS`, sorted by slide_id; `slide_mpp` is missing where the file states it.

    Raises:
        InputError: No slide remains, or two files have one slide_id.
    """
    squares = patches[(patches["split"] == "train") & patches["y"].notna()]
    searched = pd.concat([slides.rename(columns={"mpp": "slide_mpp"}), squares], ignore_index=True)
    searched = searched[list(SEARCHED_COLUMNS)].fillna({"patient_id": ""})
    file = searched["path"].map(os.path.realpath)
    searched = searched[~file.duplicated() & ~file.isin(set(held_out["path"].map(os.path.realpath)))]
    if shared_ids:
        for column in ("slide_id", "patient_id"):
            searched = searched[~searched[column].isin(set(held_out[column]) - {""})]
    if searched.empty:
        raise InputError("every slide is used for validation or test. Fix: add slides to the corpus.")
    twice = searched[searched["slide_id"].duplicated(keep=False)]
    if len(twice):
        first, second = twice["path"].iloc[:2]
        raise InputError(
            f"slide_id {twice['slide_id'].iloc[0]!r} names {first} and {second}. Fix: use unique ids."
        )
    return searched.sort_values("slide_id", ignore_index=True)


def outlines_by_slide(*tables: pd.DataFrame) -> dict[str, str]:
    """slide_id -> file of the user's outlines of tissue and artefacts, from tables with a column `outlines`."""
    rows = pd.concat([table[["slide_id", "outlines"]] for table in tables])
    return {slide_id: path for slide_id, path in rows.itertuples(index=False, name=None) if path}


@dataclass(frozen=True)
class Search:
    """Places on a slide that candidates may have.

    Attributes:
        patch_px: Side of the patches, px.
        mpp: Resolution of the patches, µm/px.
        side_um: Side of the square around a candidate that must lie inside the slide, µm.
        tissue: Rules for the tissue that is used.
        min_tissue_fraction: Least tissue fraction of a patch.
        per_slide: Most candidates per slide.
        outlines: slide_id -> the user's outlines of tissue and artefacts.
    """

    patch_px: int
    mpp: float
    side_um: float
    tissue: TissueRules
    min_tissue_fraction: float
    per_slide: int
    outlines: Mapping[str, str] = field(default_factory=dict)


def sample_candidates(slides: pd.DataFrame, search: Search, *, seed: int, processes: int) -> pd.DataFrame:
    """Cells with tissue on the grid whose stride is the field of a patch, so candidates do not overlap.

    A slide with more than `per_slide` cells gets a random subset from its own generator. Slides that are too coarse for
    `search.mpp` have no candidates; the log counts them.

    Args:
        slides: `SEARCHED_COLUMNS`.
        processes: Slides read in parallel; does not affect the result.

    Returns:
        `data.tables.columns.PATCH_COLUMNS` without label and split, slide by slide in the order of rows and columns;
        `slide_mpp` is never missing.

    Raises:
        InputError: No slide has a candidate.
    """
    work = partial(_of_slide, search=search, seed=seed)
    mpps = [None if np.isnan(mpp) else float(mpp) for mpp in slides["slide_mpp"]]
    jobs = (list(slides["slide_id"]), [Path(path) for path in slides["path"]], mpps)
    surveys = list(map_over_processes(work, *jobs, processes=processes, title="slides", unit="slide"))
    counts = [len(centers) for centers, _ in surveys]
    coarse = slides["slide_id"].to_numpy()[[mpp > search.mpp * MAX_UPSAMPLING for _, mpp in surveys]]
    if len(coarse) == len(slides):
        raise InputError(
            f"all {len(slides)} slides are coarser than the patches of {search.mpp:g} µm/px. Fix: add slides of this "
            "resolution"
        )
    if len(coarse):
        _LOG.warning(
            "%d of %d slides are coarser than %g µm/px and give no patch (the first: %s)",
            len(coarse), len(slides), search.mpp, coarse[0],
        )  # fmt: skip
    if not any(counts):
        raise InputError(
            f"no tissue of the {len(slides)} slides holds a field of {search.side_um:g} µm. Fix: lower --side-um, "
            "or index.min_tissue_fraction."
        )
    rows = slides.assign(slide_mpp=[mpp for _, mpp in surveys]).loc[np.repeat(slides.index, counts)]
    rows = rows.reset_index(drop=True)
    rows[["y", "x"]] = np.concatenate([centers for centers, _ in surveys])
    places = rows["y"].map("{:.1f}".format) + "-" + rows["x"].map("{:.1f}".format)
    return labeled_table(
        rows.assign(patch_id=rows["slide_id"] + "-" + places, mpp=search.mpp, side_px=search.patch_px)
    )


def sample_unlabeled(
    slides: pd.DataFrame, num: int, search: Search, *, seed: int, processes: int, or_fewer: bool = False
) -> pd.DataFrame:
    """`num` candidates, equally many from each slide as far as its tissue allows.

    Args:
        slides: `SEARCHED_COLUMNS`.
        search: `per_slide` is ignored.
        processes: Slides read in parallel; does not affect the result.
        or_fewer: Accept fewer candidates if the tissue is too small.

    Returns:
        Table as of `sample_candidates`; slides alternate, so the first batch in order already covers all slides.

    Raises:
        InputError: An error of `sample_candidates`, or the tissue is too small for `num` patches.
    """
    # A slide offers up to four times its even quota, to compensate for slides with little tissue.
    offer = min(num, _LEAST_OFFER + _SURPLUS * -(-num // len(slides)))
    rows = sample_candidates(slides, replace(search, per_slide=offer), seed=seed, processes=processes)
    key = generator(seed, "unlabeled").permutation(len(rows))
    turns = rows.assign(key=key).sort_values("key", kind="stable").groupby("slide_id", sort=True)
    limits = turns.size()
    num = min(num, len(rows)) if or_fewer else num
    if len(rows) < num:
        raise InputError(
            f"{num} unlabeled patches are requested, but the tissue of the {len(limits)} slides outside validation and "
            f"test holds {len(rows)} without overlap. Fix: request fewer, or add slides."
        )
    turn = turns.cumcount()
    quotas = pd.Series(even_quotas(limits.to_numpy(), num), index=limits.index)
    selected = turn[turn < rows["slide_id"].loc[turn.index].map(quotas)]
    order = selected.index[np.lexsort((rows["slide_id"].loc[selected.index], selected))]
    return rows.loc[order].reset_index(drop=True)


def _of_slide(
    slide_id: str, path: Path, mpp: float | None, search: Search, seed: int
) -> tuple[NDArray[np.float64], float]:
    """Candidate centers of a slide, shape (n, 2), level-0 pixels, and the slide's µm/px."""
    with open_slide(path, mpp) as slide:
        if slide.mpp > search.mpp * MAX_UPSAMPLING:
            return np.empty((0, 2)), slide.mpp
        grid = Grid(search.patch_px * search.mpp, slide.mpp, slide.size_yx)
        outlines = search.outlines.get(slide_id, "")
        cells, _ = tissue_cells(slide, grid, search.tissue, search.min_tissue_fraction, outlines)
    centers = grid.centers_yx(cells)
    half = search.side_um / slide.mpp / 2
    inside = ((centers >= half) & (centers <= np.array(slide.size_yx) - half)).all(axis=1)
    centers = centers[inside]
    if len(centers) > search.per_slide:
        sample = generator(seed, "candidates", slide_id).choice(len(centers), search.per_slide, replace=False)
        centers = centers[np.sort(sample)]
    return centers, slide.mpp
