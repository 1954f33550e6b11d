"""`suggest --doubtful`: labeled squares to look at again, as a folder of suggestions with their labels."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.tables.patches import read_patches
from histo_monai.evaluation.doubtful import read_doubtful
from histo_monai.evaluation.recommendation import read_recommendation
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import read_environment
from histo_monai.pipeline.params import Params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import check_slides
from histo_monai.pipeline.suggestions.squares import bounds_corners, places, write_suggestions
from histo_monai.reports.suggestions import MAX_SHOWN
from histo_monai.slides import open_slide
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import FINETUNED

_LOG = logging.getLogger(__name__)

_BATCH = 64
_IDS = ["patch_id", "slide_id", "label"]


def finetuned_run(params: Params, method: str | None, encoder: int | None, seed: int | None) -> Run:
    """The fine-tuning of a method and two seeds; if none is named, the only one of params.yaml, or the recommended.

    Raises:
        InputError: params.yaml has several that fit.
    """
    known = paths.runs(params.pretraining_methods, [""], params.repeats)
    fitting = [
        run
        for run in known
        if method in (None, run.method) and encoder in (None, run.encoder) and seed in (None, run.seed)
    ]
    if len(fitting) > 1 and (method, encoder, seed) == (None, None, None) and paths.CHOSEN.is_file():
        found = read_recommendation(paths.CHOSEN)
        return Run(found["method"], found["encoder"], found["seed"], "")
    if len(fitting) != 1:
        names = ", ".join(
            f"--method {run.method} --pretraining-seed {run.encoder} --seed {run.seed}" for run in known
        )
        raise InputError(
            f"suggest --doubtful: {len(fitting)} fine-tuned models fit. Fix: name one of {names}"
        )
    return fitting[0]


def doubtful_squares(path: Path, patches: pd.DataFrame) -> pd.DataFrame:
    """Labeled squares of slides, the most doubtful first: columns of patches.csv and of the table.

    Labels that are no longer in patches.csv, or changed since the table was written, are left out.

    Args:
        path: doubtful.csv of the stage `finetune`.
        patches: data/index/patches.csv.

    Raises:
        InputError: the table is missing, of scores, or has no square of a slide.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: not found. Fix: run `dvc repro finetune`, with labels of each class on two patients or more."
        )
    if patches["score"].notna().any():
        raise InputError(
            f"{paths.PATCHES_CSV}: has scores, and the page labels classes. Fix: look at {path}, and correct scores in "
            "your table."
        )
    table = read_doubtful(path, has_scores=False).drop(columns=["rank", "patient_id"])
    rows = table.merge(patches, on=_IDS, validate="one_to_one")
    if len(rows) < len(table):
        _LOG.warning(
            "suggest: %d of %d labels were changed since finetune", len(table) - len(rows), len(table)
        )
    squares = rows[rows["y"].notna()].reset_index(drop=True)
    if squares.empty:
        raise InputError(
            f"{path}: no label is a square of a slide. Fix: correct labels of image files in your table."
        )
    return squares


def suggest_doubtful(draft: Path, params: Params, run: Run, num: int) -> str:
    """Write the files of `suggest`; a one-line summary.

    Raises:
        InputError: a file cannot be used, or no label is a square of a slide.
    """
    environment = read_environment()
    environment.use_cpus()
    path = run.folds[FINETUNED] / paths.DOUBTFUL
    squares = doubtful_squares(path, read_patches(paths.PATCHES_CSV))
    rows = squares[:num].reset_index(drop=True)
    check_slides([rows])
    rows["slide_mpp"] = _slide_mpps(rows)
    table = pd.DataFrame(places(rows, rows["side_px"] * rows["mpp"]))
    columns = ["label", "other_label", "label_probability", "other_probability"]
    columns += ["neighbors_of_label", "neighbors_of_other", "doubt"]
    table[columns] = rows[columns]
    reading = PatchReading(params.patch_px, None, 0, environment.device)
    bare = rows[:MAX_SHOWN].assign(label="", score=np.nan)
    shown, _ = reading.in_order(bare, _BATCH).some(MAX_SHOWN)
    captions = [f"{row.label}, or {row.other_label}" for row in table.itertuples()]
    pictures = (shown.squeeze(1).numpy(), captions, (rows["side_px"] * rows["mpp"]).tolist())
    write_suggestions(draft, table, bounds_corners(rows), {"doubt": "doubt"}, pictures)
    return f"{len(table)} of {len(squares)} labeled squares on {table['slide_id'].nunique()} slides"


def _slide_mpps(rows: pd.DataFrame) -> pd.Series:
    """Level-0 resolution of each row's slide: of the table, else of the file."""
    of_slide = {}
    slides = rows.drop_duplicates("path")
    for path, mpp in zip(slides["path"], slides["slide_mpp"], strict=True):
        with open_slide(path, None if np.isnan(mpp) else float(mpp)) as slide:
            of_slide[path] = slide.mpp
    return rows["path"].map(of_slide)
