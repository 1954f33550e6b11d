"""Your own data: a folder with `slides.csv`, and where you have labels `patches.csv`, `annotations/`, or both."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.data.readers.own.bounds import squares_on_canvas
from histo_monai.data.readers.own.named_files import by_slide, list_files
from histo_monai.data.readers.own.regions import (
    ANNOTATIONS,
    RegionPlacement,
    annotation_files,
    region_patches,
)
from histo_monai.data.readers.own.slides import MPP, YES, check_origin, check_split, read_slides, with_columns
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
)

_SQUARE = ("slide_id", "y", "x", "mpp", "side_px")


def pretraining_slides(root: Path) -> pd.DataFrame:
    """The slides that `slides.csv` names, without those whose split is `test`.

    Columns: `slide_id`, `path` (absolute, or relative to the folder of slides.csv), and where you have them
    `patient_id`, `mpp` (µm per pixel of the full resolution: needed where the file holds none), `label`, `split`
    (train, validation or test: for all rows, or left out for all and drawn by patient), `annotation_origin` (bounds or
    canvas: origin of the outlines, if it differs from their program's), `exhaustive` (yes or
    no: see `whole_slides`), `sha256` (of the file, see `own_slides.check_sha256`).

    If `coordinates/<slide_id>.h5` (CLAM, `histo-monai features`) or `<slide_id>_patches.h5` (TRIDENT) exists,
    pretraining samples its patches from that file.

    Returns:
        See `data.tables.columns.CORPUS_COLUMNS`.

    Raises:
        InputError: the file or a needed column is missing, a column is unknown, an id comes twice, or a value is not
            what its column holds; names file and row. Or coordinates are of no slide.
    """
    table = read_slides(root)
    paths, others = list_files(root / COORDINATES, (".h5",))
    for one in others:
        log_left_out(one)
    files = by_slide(paths, table["slide_id"], _ENDINGS)
    table = table.assign(coordinates=[str(files.get(name, "")) for name in table["slide_id"]])
    rows: list[dict[str, Any]] = table[table["split"] != "test"].to_dict("records")  # type: ignore[assignment]
    return corpus_table(rows)


COORDINATES = "coordinates"
_ENDINGS = ("", "_patches")
"""TRIDENT writes <slide_id>_patches.h5."""


def whole_slides(root: Path) -> tuple[pd.DataFrame, list[str]]:
    """All slides of `slides.csv`, with their `label` where it tells one, to be mapped and, with labels, diagnosed.

    Outlines are taken to be some of what there is, unless the column `exhaustive` says yes: then a slide without any
    has nothing of the class that is mapped, and detections outside of them are wrong.

    Returns:
        `data.tables.columns.WHOLE_SLIDE_COLUMNS`, `split` empty if slides.csv gives none, with the outlines in
        `annotations/<slide_id>.geojson` or `.xml` if there are any, and a warning of other files there.

    Raises:
        InputError: see `pretraining_slides`.
    """
    table = read_slides(root)
    paths, others = annotation_files(root)
    drawn = by_slide(paths, table["slide_id"])
    table["annotation"] = [str(drawn.get(slide_id, "")) for slide_id in table["slide_id"]]
    table["exhaustive"] = table["exhaustive"] == YES
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
    """The patches that `patches.csv` names, and those of the regions that `annotations/` outlines.

    A row of patches.csv with `path` is an image file (absolute, or relative to the folder of patches.csv; through a zip
    as if that were a folder), its `y` and `x` only state its origin. A row with `slide_id` is a square of a
    slide of slides.csv around `y`, `x` (center, level-0 pixels, from the corner of the canvas, or with `origin`
    bounds from the corner of the slide's bounds, as in QuPath), read at `mpp`; its patient, and its split where
    patches.csv has none, are the slide's. All rows have a `label`, or all a `score` in 0..1. `split` is given for all
    rows, or only as `test`, and train and validation are drawn.

    `annotations/<slide_id>.geojson` (QuPath) or `.xml` (ASAP) outlines regions of a slide of slides.csv: each gives
    squares of its class, see `own_regions.region_patches`; patient and split are the slide's.

    Args:
        patch_px: side of a square of a slide, where the column side_px does not tell.
        region_mpp: resolution of the squares of regions, µm/px.
        min_region_fraction: least part of such a square that is inside its region, above 0, up to 1.
        num_per_region: most squares of one region.
        ignored_classes: classes of regions that give no square, in addition to classes that end in "*".
        innermost: whether to cut regions of another class out of the region around them; else refuse the overlap.
        processes: slides opened at the same time.

    Returns:
        `side_px` of image files is 0 where patches.csv does not tell it: the whole image, whatever its size. Warnings
        name regions that give no patch.

    Raises:
        InputError: there are neither patches.csv nor annotations, or they give no patch; a needed value is missing, a
            value is not what its column holds, a slide is not in slides.csv, or a patch reaches outside its slide; the
            same square has two answers; an annotation cannot be read, or regions of different classes overlap; names
            file and row or region. Then logs what it left out of annotations.
    """
    path = root / "patches.csv"
    if not is_labeled(root):
        raise InputError(
            f"{path}: not found; list your labeled patches there: "
            "path|slide_id,y,x[,mpp,label|score,patient_id,split], "
            f"or outline regions in {root / ANNOTATIONS}/<slide_id>.geojson"
            + "".join(f"; {one}" for one in annotation_files(root)[1])
        )
    listed = _listed_patches(path, patch_px, processes) if os.path.lexists(path) else pd.DataFrame()
    drawn, warnings = pd.DataFrame(), list[str]()
    if annotation_files(root)[0]:
        placement = RegionPlacement(
            patch_px, region_mpp, min_region_fraction, num_per_region, ignored_classes, innermost
        )
        drawn, warnings = region_patches(root, read_slides(root), placement, processes)
    try:
        return LabeledDataset(_one_table(root, listed, drawn), tuple(warnings))
    except InputError:
        for line in warnings:
            _LOG.warning("%s", line)
        raise


def _one_table(root: Path, listed: pd.DataFrame, drawn: pd.DataFrame) -> pd.DataFrame:
    """The patches of patches.csv and those of annotations, checked against each other."""
    if len(drawn) and len(listed) and listed["score"].notna().any():
        raise InputError(
            f"{root / 'patches.csv'}: holds scores, but {root / ANNOTATIONS} gives labels; keep one kind"
        )
    table = pd.concat([part for part in (listed, drawn) if len(part)] or [listed], ignore_index=True)
    if table.empty:
        raise InputError(
            f"{root / ANNOTATIONS}: gives no patch; the warnings above name what is left out. Fix: give regions a "
            "class and the size of a patch (labels.own.regions), or list squares in patches.csv"
        )
    _check_mixture(root, table, listed.index)
    table = labeled_table(table)
    _check_one_answer(root, table, listed.index)
    return table


def _listed_patches(path: Path, patch_px: int, processes: int) -> pd.DataFrame:
    """All rows of patches.csv, completed from the table of slides."""
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
    return table.drop(columns="origin").assign(side_px=table["side_px"].fillna(0))


def _checked(path: Path) -> pd.DataFrame:
    """All of patches.csv, each value what its column holds."""
    table = with_columns(read_table(path, needed=(), known=LABELED_COLUMNS, key=()), LABELED_COLUMNS)
    ambiguous = (table["slide_id"] != "") == (table["path"] != "")
    if ambiguous.any():
        row = first_row(ambiguous)
        given = "both" if table.loc[row, "path"] else "neither"
        raise InputError(f"{path}, row {row}: expected a path or a slide_id, got {given}")
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
    """Whether there is a patches.csv, or a file of annotations."""
    return os.path.lexists(root / "patches.csv") or bool(
        annotation_files(root)[0]
    )  # a link to nowhere is an error


def _check_mixture(root: Path, table: pd.DataFrame, listed: pd.Index) -> None:
    """The first rows are those of patches.csv, whose lines are `listed`, the others of annotations."""
    bare = table["split"] == ""
    if bare.any() and table["split"].isin(["train", "validation"]).any():
        where = _where(root, table, listed, int(bare.to_numpy().argmax()))
        raise InputError(
            f"{where}: no split, while other rows are for training or validation; "
            "fill the column split, or leave all but test empty"
        )


def _check_one_answer(root: Path, table: pd.DataFrame, listed: pd.Index) -> None:
    """Refuse a square that is there twice, with two labels or two scores; `listed` as in `_check_mixture`."""
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
        raise InputError(f"{one} and {other}: the same square with two answers; keep one of them")


def _where(root: Path, table: pd.DataFrame, listed: pd.Index, place: int) -> str:
    """What a row of patches.csv or of annotations came from, see `_check_mixture`."""
    if place < len(listed):
        return f"{root / 'patches.csv'}, row {listed[place]}"
    return f"{root / 'slides.csv'}, slide {table['slide_id'].iloc[place]!r}"


def _check_labels(path: Path, table: pd.DataFrame) -> None:
    check_classes(path, table["label"])
    has_label, has_score = table["label"] != "", table["score"].notna()
    if has_label.any() and has_score.any():
        row = first_row(has_label if has_score.iloc[0] else has_score)
        raise InputError(f"{path}, row {row}: labels and scores in one table; keep one kind")
    bare = ~(has_label | has_score)
    if bare.any():
        raise InputError(f"{path}, row {first_row(bare)}: neither label nor score; every row needs one")


def _with_slides(path: Path, table: pd.DataFrame, slides: pd.DataFrame, patch_px: int) -> pd.DataFrame:
    """Fills in what the slides know of their patches."""
    of_slide = table["slide_id"] != ""
    slide_row = pd.Index(slides["slide_id"]).get_indexer(pd.Index(table["slide_id"]))
    unknown = of_slide & (slide_row < 0)
    if unknown.any():
        row = first_row(unknown)
        raise InputError(
            f"{path}, row {row}: slide {table.loc[row, 'slide_id']!r} is not in {path.parent}/slides.csv"
        )
    for name in ("y", "x", "mpp"):
        bare = of_slide & table[name].isna()
        if bare.any():
            raise InputError(
                f"{path}, row {first_row(bare)}: {name} is empty; a patch of a slide needs y, x, mpp"
            )
    of = slides.iloc[slide_row].set_axis(table.index)
    given = table["patient_id"] != ""
    differs = of_slide & given & (of["patient_id"] != "") & (table["patient_id"] != of["patient_id"])
    if differs.any():
        row = first_row(differs)
        raise InputError(
            f"{path}, row {row}: patient {table.loc[row, 'patient_id']!r}, "
            f"but slides.csv says {of.loc[row, 'patient_id']!r} of this slide"
        )
    return table.assign(
        path=table["path"].where(~of_slide, of["path"].map(str)),
        patient_id=table["patient_id"].where(~of_slide | given, of["patient_id"]),
        split=table["split"].where(~of_slide | (table["split"] != ""), of["split"]),
        side_px=table["side_px"].where(~of_slide | table["side_px"].notna(), float(patch_px)),
        slide_mpp=of["mpp"].where(of_slide),
    )
