"""Columns, builders and readers of slide tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.stage_csv import read_stage_csv
from histo_monai.slides.annotations import ORIGINS
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_name

SPLITS = ("train", "validation", "test")

CORPUS_COLUMNS = ("slide_id", "path", "patient_id", "mpp", "split", "coordinates", "outlines")
"""Slides for pretraining, one row each. `patient_id` is empty if unknown, `mpp` missing if the file states it, `split`
empty if the index assigns it. `coordinates` names a file of patches (`data.readers.coordinates`); empty: all tissue.
`outlines` names a file of outlines of tissue and artefacts (`slides.tiles.usable`) or is empty."""

SLIDE_COLUMNS = (
    *(
        "slide_id",
        "path",
        "patient_id",
        "mpp",
        "height_px",
        "width_px",
        "tissue_fraction",
        "split",
        "content",
    ),
)
"""Surveyed slides of the corpus, one row each. `mpp` and size come from the file; `content` is a digest of its bytes
(`utils.storage.identity`). Equal tables imply equal pixels in pretraining."""

CENTER_COLUMNS = ("slide_id", "y", "x", "split")
"""Centers of pretraining patches, one row each, in level-0 pixels."""

PATCH_COLUMNS = (
    "patch_id",
    "path",
    "slide_id",
    "patient_id",
    "y",
    "x",
    "mpp",
    "side_px",
    "label",
    "score",
    "rater_a",
    "rater_b",
    "split",
    "label_rank",
    "slide_mpp",
)
"""Labeled patches, one row each. A patch is an image file (`path`, in which a zip acts as a folder; `y` and `x` are
missing) or a square of a slide (`path` is the slide's file, `y` and `x` the center in level-0 pixels, `mpp` the
resolution to read at, `slide_mpp` overrides the level-0 resolution in the file). Unknown texts are empty, unknown
numbers missing."""

WHOLE_SLIDE_COLUMNS = (
    *("slide_id", "path", "patient_id", "mpp", "label", "size", "split", "annotation", "annotation_origin"),
    *("exhaustive", "content", "outlines"),
)
"""Slides to map and to diagnose, one row each. `label` and `size` (of the largest metastasis) may be empty,
`mpp` missing if the file states it. `annotation` is the file of outlines or empty, `annotation_origin` their origin
(`slides.annotations.ORIGINS`) or empty, `exhaustive` whether they are complete, `content` a digest of the bytes,
`outlines` a file of outlines of tissue and artefacts (`slides.tiles.usable`) or empty."""


def whole_slide_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows -> a table with `WHOLE_SLIDE_COLUMNS`, in the given order; may be empty."""
    bare = {
        "patient_id": "",
        "mpp": None,
        "label": "",
        "size": "",
        "annotation": "",
        "annotation_origin": "",
        "exhaustive": True,
        "content": "",
        "outlines": "",
    }
    full = [{**bare, **row, **{key: str(row.get(key, "")) for key in ("path", "annotation")}} for row in rows]
    return pd.DataFrame(full, columns=list(WHOLE_SLIDE_COLUMNS)).astype(
        {"mpp": "float64", "exhaustive": bool}
    )


def corpus_slides(slides: pd.DataFrame) -> pd.DataFrame:
    """Slides of a corpus (`SLIDE_COLUMNS`) as unlabeled slides to map, for BreastPathQ."""
    names = ["slide_id", "path", "patient_id", "mpp", "split", "content"]
    return whole_slide_table(slides[names].to_dict("records"))  # type: ignore[arg-type]  # names are texts


def read_whole_slides(path: Path) -> pd.DataFrame:
    """Read a csv of `WHOLE_SLIDE_COLUMNS`, which the index stage writes.

    Raises:
        InputError: The file is missing or is no such table.
    """
    types = dict.fromkeys(WHOLE_SLIDE_COLUMNS, "str") | {"mpp": "float64", "exhaustive": "bool"}
    among = {"split": ("", *SPLITS), "annotation_origin": ("", *ORIGINS)}
    return read_stage_csv(path, types, stage="index", key=["slide_id"], among=among)


def read_surveyed_slides(path: Path) -> pd.DataFrame:
    """Read a csv of `SLIDE_COLUMNS`, which the index stage writes.

    Raises:
        InputError: The file is missing or is no such table, or a slide has no µm/px above 0.
    """
    numbers = dict.fromkeys(("mpp", "tissue_fraction"), "float64") | dict.fromkeys(
        ("height_px", "width_px"), "int64"
    )
    types = {column: numbers.get(column, "str") for column in SLIDE_COLUMNS}
    table = read_stage_csv(path, types, stage="index", key=["slide_id"], among={"split": SPLITS})
    if not (table["mpp"] > 0).all():
        slide_id = table.loc[~(table["mpp"] > 0), "slide_id"].iloc[0]
        raise InputError(f"{path}: slide {slide_id} has no µm/px above 0. Fix: run `dvc repro index` again.")
    return table


def read_centers(path: Path) -> pd.DataFrame:
    """Read a csv of `CENTER_COLUMNS`, which the index stage writes.

    Raises:
        InputError: The file is missing or is no such table.
    """
    types = {"slide_id": "str", "y": "int64", "x": "int64", "split": "str"}
    return read_stage_csv(path, types, stage="index", among={"split": SPLITS})


def corpus_table(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows -> a table with `CORPUS_COLUMNS`, in the order given.

    Raises:
        InputError: There is no row, or a slide_id repeats or cannot name a file.
    """
    if not rows:
        raise InputError(
            "the corpus has no slide. Fix: name at least two: one for training, one for validation."
        )
    full = [
        {"patient_id": "", "mpp": None, "split": "", "coordinates": "", "outlines": "", **row} for row in rows
    ]
    table = pd.DataFrame(full, columns=list(CORPUS_COLUMNS)).astype({"mpp": "float64"})
    for slide_id, path in zip(table["slide_id"], table["path"], strict=True):
        check_name(slide_id, f"{path}: slide_id")
    twice = table[table["slide_id"].duplicated(keep=False)]
    if len(twice):
        first, second = twice["path"].iloc[:2]
        raise InputError(
            f"slide_id {twice['slide_id'].iloc[0]!r} is given twice, for {first} and {second}. Fix: make ids unique."
        )
    return table
