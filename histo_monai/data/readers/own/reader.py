"""Reader of the user's data: a folder with `slides.csv`, and for labels `patches.csv`, `annotations/`, or both."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.data.readers.own.bounds import squares_on_canvas
from histo_monai.data.readers.own.named_files import by_slide, list_files, outlines_of
from histo_monai.data.readers.own.regions import (
    ANNOTATIONS,
    RegionPlacement,
    annotation_files,
    region_patches,
)
from histo_monai.data.readers.own.slides import (
    MPP,
    WITHOUT_SPLIT,
    YES,
    check_origin,
    check_split,
    read_slides,
    row_without_split,
    with_columns,
)
from histo_monai.data.tables.columns import corpus_table, whole_slide_table
from histo_monai.data.tables.manifests import (
    check_classes,
    check_key,
    check_texts,
    first_row,
    read_numbers,
    read_table,
)
from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.data.tables.texts import come_again
from histo_monai.slides.annotations import log_left_out
from histo_monai.utils.errors import InputError

_LOG = logging.getLogger(__name__)

LABELED_COLUMNS = (
    *("patch_id", "path", "slide_id", "y", "x", "mpp"),
    *("side_px", "label", "score", "patient_id", "split", "origin"),
    *("labeled_by", "labeled_at", "corrected_from"),
)

_SQUARE = ("slide_id", "y", "x", "mpp", "side_px")


def pretraining_slides(root: Path) -> pd.DataFrame:
    """Slides of `slides.csv` outside the test split, as `data.tables.columns.CORPUS_COLUMNS`.

    Required columns: `slide_id`, `path` (absolute, or relative to the folder of slides.csv). Optional columns:
    `patient_id`, `mpp` (µm per level-0 pixel, required if the file has none), `label`, `split` (train, validation or
    test in all rows, or test alone; the index splits the others by patient), `annotation_origin` (bounds or canvas, if
    it differs from the program's), `exhaustive` (yes or no), `sha256` (digest of the file).

    If `coordinates/<slide_id>.h5` (CLAM, `histo-monai features`) or `<slide_id>_patches.h5` (TRIDENT) exists,
    pretraining samples its patches from that file. `masks/<slide_id>.geojson` outlines tissue or artefacts.

    Raises:
        InputError: The file or a required column is missing, a column is unknown, an id repeats, a value does not fit
            its column, or coordinates belong to no slide; names file and row.
    """
    table = read_slides(root)
    paths, others = list_files(root / COORDINATES, (".h5",))
    for one in others:
        log_left_out(one)
    files = by_slide(paths, table["slide_id"], _ENDINGS)
    table = table.assign(coordinates=[str(files.get(name, "")) for name in table["slide_id"]])
    table["outlines"] = outlines_of(root, table)
    rows: list[dict[str, Any]] = table[table["split"] != "test"].to_dict("records")  # type: ignore[assignment]
    return corpus_table(rows)


COORDINATES = "coordinates"
_ENDINGS = ("", "_patches")
"""TRIDENT writes <slide_id>_patches.h5."""


def whole_slides(root: Path) -> tuple[pd.DataFrame, list[str]]:
    """All slides of `slides.csv`, `data.tables.columns.WHOLE_SLIDE_COLUMNS`, and one-line data warnings.

    `annotation` is `annotations/<slide_id>.geojson` or `.xml`, if it exists; the warnings name other files there.
    Outlines may be incomplete unless the column `exhaustive` is yes. Then a slide without outlines has nothing of the
    mapped class, and detections outside outlines are wrong.

    Raises:
        InputError: slides.csv is invalid, or an annotation belongs to no slide; names file and row.
    """
    table = read_slides(root)
    paths, others = annotation_files(root)
    annotations = by_slide(paths, table["slide_id"])
    table["annotation"] = [str(annotations.get(slide_id, "")) for slide_id in table["slide_id"]]
    table["exhaustive"] = table["exhaustive"] == YES
    table["outlines"] = outlines_of(root, table)
    rows: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return whole_slide_table(rows), [str(one) for one in others]


def labeled_patches(
    root: Path,
    *,
    patch_px: int,
    region_mpp: float,
    min_region_fraction: float,
    num_per_region: int,
    ignored_classes: tuple[str, ...] = (),
    innermost: bool = False,
    processes: int = 1,
) -> LabeledDataset:
    """Patches of `patches.csv` and of the regions in `annotations/`.

    A row with `path` is an image file (absolute, or relative to the folder of patches.csv; a zip acts as a folder); its
    `y` and `x` only state its origin. A row with `slide_id` is a square of this slide, read at `mpp` around `y`, `x`:
    center, level-0 pixels, from the corner of the canvas, or with `origin` bounds from the corner of the slide's bounds
    (QuPath). Missing patients and splits come from the slide. All rows have a `label`, or all have a `score` in 0..1.
    All rows have a `split`, or `test` alone is given and the index splits train and validation.

    `annotations/<slide_id>.geojson` (QuPath) or `.xml` (ASAP) outlines regions of a slide. Each region gives squares
    with its class and the slide's patient and split.

    Args:
        patch_px: Side of a square without a value in the column side_px.
        region_mpp: Resolution of region squares, µm/px.
        min_region_fraction: Least fraction of such a square inside its region, above 0, up to 1.
        num_per_region: Most squares of one region.
        ignored_classes: Classes of regions without squares, in addition to classes that end in "*".
        innermost: Whether to cut regions of another class out of the region around them; else refuse the overlap.
        processes: Slides opened at the same time.

    Returns:
        Table and warnings; `side_px` 0 means the whole image. Warnings name regions without a patch.

    Raises:
        InputError: There are neither patches.csv nor annotations, or they give no patch; a value is missing or does not
            fit its column; a slide is not in slides.csv; a patch reaches outside its slide; one square has two answers;
            an annotation cannot be read, or regions of different classes overlap. Names file and row or region, and
            logs the warnings.
    """
    path = root / "patches.csv"
    if not is_labeled(root):
        raise InputError(
            f"{path}: not found"
            + "".join(f"; {one}" for one in annotation_files(root)[1])
            + ". Fix: list your labeled patches there, with the columns path|slide_id,y,x[,mpp,label|score,patient_id,"
            f"split], or outline regions in {root / ANNOTATIONS}/<slide_id>.geojson."
        )
    listed = _listed_patches(path, patch_px, processes) if os.path.lexists(path) else pd.DataFrame()
    outlined, warnings = pd.DataFrame(), list[str]()
    if annotation_files(root)[0]:
        placement = RegionPlacement(
            patch_px, region_mpp, min_region_fraction, num_per_region, ignored_classes, innermost
        )
        outlined, warnings = region_patches(root, read_slides(root), placement, processes)
    try:
        return LabeledDataset(_one_table(root, listed, outlined), tuple(warnings))
    except InputError:
        for line in warnings:
            _LOG.warning("%s", line)
        raise


def _one_table(root: Path, listed: pd.DataFrame, outlined: pd.DataFrame) -> pd.DataFrame:
    """Table of the patches of patches.csv and of annotations, checked for conflicts."""
    if len(outlined) and len(listed) and listed["score"].notna().any():
        raise InputError(
            f"{root / 'patches.csv'}: holds scores, but {root / ANNOTATIONS} gives labels. Fix: remove one kind."
        )
    table = pd.concat([part for part in (listed, outlined) if len(part)] or [listed], ignore_index=True)
    if table.empty:
        raise InputError(
            f"{root / ANNOTATIONS}: gives no patch; the warnings above name the causes. Fix: give regions a "
            "class and the size of a patch (labels.own.regions), or list squares in patches.csv."
        )
    _check_mixture(root, table, listed.index)
    table = labeled_table(table)
    _check_one_answer(root, table, listed.index)
    return table


def _listed_patches(path: Path, patch_px: int, processes: int) -> pd.DataFrame:
    """Rows of patches.csv, completed from slides.csv."""
    root = path.parent
    table = _checked(path)
    of_slide = table["slide_id"] != ""
    if of_slide.any():
        table = _with_slides(path, table, read_slides(root), patch_px)
        table = squares_on_canvas(path, table, read_slides(root), processes)
    rows = pd.Series([f"-row{number:07d}" for number in table.index], index=table.index)
    names = table["path"].where(~of_slide, table["slide_id"] + rows)
    table["patch_id"] = table["patch_id"].where(table["patch_id"] != "", names)
    if come_again(table, ["patch_id"]).any():
        check_key(path, table, ["patch_id"])
    table.loc[~of_slide, "path"] = [str(root / name) for name in table.loc[~of_slide, "path"]]
    table.loc[~of_slide, ["y", "x"]] = np.nan
    return table.drop(columns=["origin", "labeled_by", "labeled_at", "corrected_from"]).assign(
        side_px=table["side_px"].fillna(0)
    )


def _checked(path: Path) -> pd.DataFrame:
    """Rows of patches.csv with checked values."""
    table = with_columns(read_table(path, needed=(), known=LABELED_COLUMNS, key=()), LABELED_COLUMNS)
    ambiguous = (table["slide_id"] != "") == (table["path"] != "")
    if ambiguous.any():
        row = first_row(ambiguous)
        given = "both" if table.loc[row, "path"] else "neither"
        raise InputError(
            f"{path}, row {row}: expected a path or a slide_id, got {given}. Fix: write one of them."
        )
    for name, low, high, expected in (
        ("y", 0.0, 2**31, "level-0 pixels, 0 or more"),
        ("x", 0.0, 2**31, "level-0 pixels, 0 or more"),
        ("mpp", 0.05, 64.0, MPP),
        ("side_px", 1, 2**20, "a whole number of pixels, 1 or more"),
        ("score", 0.0, 1.0, "a fraction in 0..1"),
    ):
        table[name] = read_numbers(path, table[name], low, high, expected, whole=name == "side_px")
    _check_labels(path, table)
    for name in ("patch_id", "patient_id"):
        check_texts(path, table[name])
    check_split(path, table["split"])
    check_origin(path, table["origin"])
    return table


def is_labeled(root: Path) -> bool:
    """Whether patches.csv or a file of annotations exists."""
    # A broken link counts, so that reading it raises an error.
    return os.path.lexists(root / "patches.csv") or bool(annotation_files(root)[0])


def _check_mixture(root: Path, table: pd.DataFrame, listed: pd.Index) -> None:
    """Refuse missing splits beside training rows. `listed`: line numbers of the first rows, which patches.csv holds."""
    row = row_without_split(table["split"].reset_index(drop=True))
    if row is not None:
        raise InputError(f"{_where(root, table, listed, row)}: {WITHOUT_SPLIT}")


def _check_one_answer(root: Path, table: pd.DataFrame, listed: pd.Index) -> None:
    """Refuse a repeated square with two labels or two scores; `listed`: line numbers of the rows of patches.csv."""
    squares = table[table["y"].notna()]
    answer = squares["label"].where(squares["score"].isna(), squares["score"])
    first = squares.assign(place=squares.index).groupby(list(_SQUARE))["place"].transform("first")
    differs = answer.to_numpy() != answer.loc[first].to_numpy()
    if differs.any():
        second = squares.index[differs][0]
        one, other = (
            f"{_where(root, table, listed, i)} (patch {table.loc[i, 'patch_id']}: {answer[i]})"
            for i in (first[second], second)
        )
        raise InputError(f"{one} and {other}: one square with two labels or scores. Fix: remove one.")


def _where(root: Path, table: pd.DataFrame, listed: pd.Index, place: int) -> str:
    """Source of a row: a line of patches.csv, or a slide with annotations."""
    if place < len(listed):
        return f"{root / 'patches.csv'}, row {listed[place]}"
    return f"{root / 'slides.csv'}, slide {table['slide_id'].iloc[place]!r}"


def _check_labels(path: Path, table: pd.DataFrame) -> None:
    check_classes(path, table["label"])
    has_label, has_score = table["label"] != "", table["score"].notna()
    if has_label.any() and has_score.any():
        row = first_row(has_label if has_score.iloc[0] else has_score)
        raise InputError(f"{path}, row {row}: labels and scores in one table. Fix: remove one kind.")
    bare = ~(has_label | has_score)
    if bare.any():
        raise InputError(f"{path}, row {first_row(bare)}: neither label nor score. Fix: fill one of them.")


def _with_slides(path: Path, table: pd.DataFrame, slides: pd.DataFrame, patch_px: int) -> pd.DataFrame:
    """Patches with missing paths, patients, splits, sides and resolutions filled from their slides."""
    of_slide = table["slide_id"] != ""
    slide_row = pd.Index(slides["slide_id"]).get_indexer(pd.Index(table["slide_id"]))
    unknown = of_slide & (slide_row < 0)
    if unknown.any():
        row = first_row(unknown)
        raise InputError(
            f"{path}, row {row}: slide {table.loc[row, 'slide_id']!r} is not in {path.parent}/slides.csv. Fix: add it."
        )
    for name in ("y", "x", "mpp"):
        bare = of_slide & table[name].isna()
        if bare.any():
            raise InputError(
                f"{path}, row {first_row(bare)}: {name} is empty. Fix: fill y, x and mpp of a patch of a slide."
            )
    of = slides.iloc[slide_row].set_axis(table.index)
    given = table["patient_id"] != ""
    differs = of_slide & given & (table["patient_id"] != of["patient_id"])
    if differs.any():
        row = first_row(differs)
        slide_id, patient = table.loc[row, ["slide_id", "patient_id"]]
        known = of.loc[row, "patient_id"]
        fix = "correct one of them" if known else "write it there, for all slides of the patient"
        raise InputError(
            f"{path}, row {row}: patient {patient!r}, but slides.csv has {known!r} for slide {slide_id!r}. Fix: {fix}."
        )
    return table.assign(
        path=table["path"].where(~of_slide, of["path"].map(str)),
        patient_id=table["patient_id"].where(~of_slide | given, of["patient_id"]),
        split=table["split"].where(~of_slide | (table["split"] != ""), of["split"]),
        side_px=table["side_px"].where(~of_slide | table["side_px"].notna(), float(patch_px)),
        slide_mpp=of["mpp"].where(of_slide),
    )
