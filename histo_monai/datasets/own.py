"""Your own data: a folder with `slides.csv`, and where you have labels `patches.csv`, `annotations/`, or both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.datasets.labeled import LabeledDataset, labeled_table
from histo_monai.datasets.own_regions import ANNOTATIONS, RegionPlacement, annotation_files, region_patches
from histo_monai.datasets.squares import check_inside
from histo_monai.datasets.tables import (
    SPLITS,
    corpus_table,
    first_row,
    read_numbers,
    read_table,
    whole_slide_table,
)

COLUMNS = ("slide_id", "path", "patient_id", "mpp", "label", "split")
LABELED_COLUMNS = (
    *("patch_id", "path", "slide_id", "y", "x", "mpp"),
    *("side_px", "label", "score", "patient_id", "split"),
)
_MPP = "µm per pixel, 0.05 to 64"


def pretraining_slides(root: Path) -> pd.DataFrame:
    """The slides that `slides.csv` names, without those whose split is `test`.

    Columns: `slide_id`, `path` (absolute, or relative to the folder of slides.csv), and where you have them
    `patient_id`, `mpp` (µm per pixel of the full resolution: needed where the file holds none), `label`, `split`
    (train, validation or test: for all rows, or left out for all and drawn by patient).

    Returns:
        See `tables.CORPUS_COLUMNS`.

    Raises:
        ValueError: the file or a needed column is missing, a column is unknown, an id comes twice, or a value is not
            what its column holds; names file and row.
    """
    table = _slides(root)
    rows: list[dict[str, Any]] = table[table["split"] != "test"].to_dict("records")  # type: ignore[assignment]
    return corpus_table(rows)


def _slides(root: Path) -> pd.DataFrame:
    """All of slides.csv, checked: `COLUMNS`."""
    manifest = root / "slides.csv"
    if not manifest.is_file():
        raise ValueError(
            f"{manifest}: not found; list your slides there: slide_id,path[,patient_id,mpp,label,split]"
        )
    table = _with_columns(read_table(manifest, needed=("slide_id", "path"), known=COLUMNS), COLUMNS)
    _check_split(manifest, table["split"])
    bare = table["split"] == ""
    if bare.any() and not bare.all():
        raise ValueError(
            f"{manifest}, row {first_row(bare)}: no split, while other rows have one; "
            "fill the column split, or remove it"
        )
    table["mpp"] = read_numbers(
        manifest, table["mpp"], 0.05, 64.0, f"{_MPP}, or nothing where the file knows it"
    )
    table["path"] = [root / path for path in table["path"]]
    return table


def whole_slides(root: Path) -> tuple[pd.DataFrame, list[str]]:
    """All slides of `slides.csv`, with their `label` where it tells one, to be mapped and, with labels, diagnosed.

    A slide without a split is of the training: what is tested must be named.

    Returns:
        `tables.WHOLE_SLIDE_COLUMNS`, with the outlines in `annotations/<slide_id>.geojson` or `.xml` where there are
        any, and no warning.

    Raises:
        ValueError: see `pretraining_slides`.
    """
    table = _slides(root)
    drawn = annotation_files(root)
    table["annotation"] = [str(drawn.get(slide_id, "")) for slide_id in table["slide_id"]]
    table["split"] = table["split"].where(table["split"] != "", "train")
    rows: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return whole_slide_table(rows), []


def labeled_patches(
    root: Path,
    *,
    patch_px: int,
    region_mpp: float,
    min_region_fraction: float,
    num_per_region: int,
    processes: int = 1,
) -> LabeledDataset:
    """The patches that `patches.csv` names, and those of the regions that `annotations/` outlines.

    A row of patches.csv with `path` is an image file (absolute, or relative to the folder of patches.csv; through a zip
    as if that were a folder), its `y` and `x` only tell where it came from. A row with `slide_id` is a square of a
    slide of slides.csv around `y`, `x` (center, level-0 pixels), read at `mpp`; its patient, and its split where
    patches.csv has none, are the slide's. All rows have a `label`, or all a `score` in 0..1. `split` is given for all
    rows, or only as `test`, and train and validation are drawn.

    `annotations/<slide_id>.geojson` (QuPath) or `.xml` (ASAP) outlines regions of a slide of slides.csv: each gives
    squares of its class, see `own_regions.region_patches`; patient and split are the slide's.

    Args:
        root: the folder.
        patch_px: side of a square of a slide, where the column side_px does not tell.
        region_mpp: resolution of the squares of regions, µm/px.
        min_region_fraction: least part of such a square that is inside its region, above 0, up to 1.
        num_per_region: most squares of one region.
        processes: slides opened at the same time.

    Returns:
        `side_px` of image files is 0 where patches.csv does not tell it: the whole image, whatever its size. Warnings
        name regions that give no patch.

    Raises:
        ValueError: there are neither patches.csv nor annotations, or they give no patch; a needed value is missing, a
            value is not what its column holds, a slide is not in slides.csv, or a patch reaches outside its slide; an
            annotation cannot be read, or regions of different classes overlap; names file and row or region.
    """
    path = root / "patches.csv"
    if not is_labeled(root):
        raise ValueError(
            f"{path}: not found; list your labeled patches there: "
            "path|slide_id,y,x[,mpp,label|score,patient_id,split], "
            f"or outline regions in {root / ANNOTATIONS}/<slide_id>.geojson"
        )
    listed = _listed_patches(path, patch_px, processes) if path.is_file() else pd.DataFrame()
    drawn, warnings = pd.DataFrame(), list[str]()
    if annotation_files(root):
        placement = RegionPlacement(patch_px, region_mpp, min_region_fraction, num_per_region)
        drawn, warnings = region_patches(root, _slides(root), placement, processes)
        if len(listed) and listed["score"].notna().any():
            raise ValueError(f"{path}: holds scores, but {root / ANNOTATIONS} gives labels; keep one kind")
    table = pd.concat([part for part in (listed, drawn) if len(part)] or [listed], ignore_index=True)
    if table.empty:
        raise ValueError(f"{root / ANNOTATIONS}: gives no patch ({'; '.join(warnings)})")
    _check_mixture(root, table, len(listed))
    return LabeledDataset(labeled_table(table), tuple(warnings))


def _listed_patches(path: Path, patch_px: int, processes: int) -> pd.DataFrame:
    """All of patches.csv, with what the slides know of their patches."""
    root = path.parent
    table = _checked(path)
    of_slide = table["slide_id"] != ""
    if of_slide.any():
        table = _with_slides(path, table, _slides(root), patch_px)
        check_inside(path, table, _slides(root), processes)
    rows = pd.Series([f"-row{number:07d}" for number in range(2, len(table) + 2)])
    names = table["path"].where(~of_slide, table["slide_id"] + rows)
    table["patch_id"] = table["patch_id"].where(table["patch_id"] != "", names)
    table.loc[~of_slide, "path"] = [str(root / name) for name in table.loc[~of_slide, "path"]]
    table.loc[~of_slide, ["y", "x"]] = np.nan
    return table.assign(side_px=table["side_px"].fillna(0))


def _checked(path: Path) -> pd.DataFrame:
    """All of patches.csv, each value what its column holds."""
    table = _with_columns(read_table(path, needed=(), known=LABELED_COLUMNS, key=()), LABELED_COLUMNS)
    ambiguous = (table["slide_id"] != "") == (table["path"] != "")
    if ambiguous.any():
        row = first_row(ambiguous)
        told = "both" if table["path"].iloc[row - 2] else "neither"
        raise ValueError(f"{path}, row {row}: expected a path or a slide_id, got {told}")
    for name, low, high, expected in (
        ("y", 0.0, np.inf, "level-0 pixels, 0 or more"),
        ("x", 0.0, np.inf, "level-0 pixels, 0 or more"),
        ("mpp", 0.05, 64.0, _MPP),
        ("side_px", 1, 2**20, "pixels, 1 or more"),
        ("score", 0.0, 1.0, "a fraction in 0..1"),
    ):
        table[name] = read_numbers(path, table[name], low, high, expected)
    _check_labels(path, table)
    _check_split(path, table["split"])
    return table


def is_labeled(root: Path) -> bool:
    """Whether there is a patches.csv, or a file of annotations."""
    return (root / "patches.csv").is_file() or bool(annotation_files(root))


def _with_columns(table: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    return table.reindex(columns=list(columns), fill_value="")


def _check_split(path: Path, split: pd.Series) -> None:
    wrong = ~split.isin(["", *SPLITS])
    if wrong.any():
        row = first_row(wrong)
        raise ValueError(
            f"{path}, row {row}: split is {split.iloc[row - 2]!r}; expected {', '.join(SPLITS)} or nothing"
        )


def _check_mixture(root: Path, table: pd.DataFrame, num_listed: int) -> None:
    """`num_listed` rows are those of patches.csv, the others of annotations."""
    bare = table["split"] == ""
    if bare.any() and table["split"].isin(["train", "validation"]).any():
        row = first_row(bare)
        where = f"{root / 'patches.csv'}, row {row}"
        if row - 2 >= num_listed:
            where = f"{root / 'slides.csv'}, slide {table['slide_id'].iloc[row - 2]!r}"
        raise ValueError(
            f"{where}: no split, while other rows are for training or validation; "
            "fill the column split, or leave all but test empty"
        )


def _check_labels(path: Path, table: pd.DataFrame) -> None:
    has_label, has_score = table["label"] != "", table["score"].notna()
    if has_label.any() and has_score.any():
        row = first_row(has_label if has_score.iloc[0] else has_score)
        raise ValueError(f"{path}, row {row}: labels and scores in one table; keep one kind")
    bare = ~(has_label | has_score)
    if bare.any():
        raise ValueError(f"{path}, row {first_row(bare)}: neither label nor score; every row needs one")


def _with_slides(path: Path, table: pd.DataFrame, slides: pd.DataFrame, patch_px: int) -> pd.DataFrame:
    """Fills in what the slides know of their patches."""
    of_slide = table["slide_id"] != ""
    slide_row = pd.Index(slides["slide_id"]).get_indexer(pd.Index(table["slide_id"]))
    unknown = of_slide & (slide_row < 0)
    if unknown.any():
        row = first_row(unknown)
        raise ValueError(
            f"{path}, row {row}: slide {table['slide_id'].iloc[row - 2]!r} is not in {path.parent}/slides.csv"
        )
    for name in ("y", "x", "mpp"):
        bare = of_slide & table[name].isna()
        if bare.any():
            raise ValueError(
                f"{path}, row {first_row(bare)}: {name} is empty; a patch of a slide needs y, x, mpp"
            )
    of = slides.iloc[slide_row].set_axis(table.index)
    given = table["patient_id"] != ""
    differs = of_slide & given & (of["patient_id"] != "") & (table["patient_id"] != of["patient_id"])
    if differs.any():
        row = first_row(differs)
        raise ValueError(
            f"{path}, row {row}: patient {table['patient_id'].iloc[row - 2]!r}, "
            f"but slides.csv says {of['patient_id'].iloc[row - 2]!r} of this slide"
        )
    return table.assign(
        path=table["path"].where(~of_slide, of["path"].map(str)),
        patient_id=table["patient_id"].where(~of_slide | given, of["patient_id"]),
        split=table["split"].where(~of_slide | (table["split"] != ""), of["split"]),
        side_px=table["side_px"].where(~of_slide | table["side_px"].notna(), float(patch_px)),
        slide_mpp=of["mpp"].where(of_slide),
    )
