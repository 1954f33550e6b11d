"""Command `label`: suggested regions -> a page to label them on; labels saved there -> patches.csv."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.data.tables.manifests import read_numbers, read_table
from histo_monai.pipeline import paths
from histo_monai.pipeline.suggestions.merging import merge_labels
from histo_monai.pipeline.suggestions.squares import TABLE
from histo_monai.reports.labeling.page import page, slide_picture, square_pictures
from histo_monai.slides import Slide, open_slide
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import whole_file

_LOG = logging.getLogger(__name__)

_FIRST = "first"
_NEEDED = ("slide_id", "path", "y", "x", "side_px", "mpp")


def run(
    folder: str | None, classes: Sequence[str], output: str | None, read: Sequence[str], into: str | None
) -> None:
    """Write the page of a folder of suggestions, or add the labels that were saved on it to patches.csv.

    Args:
        folder: output of `suggest`; None: data/suggestions/first.
        classes: names to begin with, beside those of patches.csv.
        output: the page; None: beside the folder, with the suffix .html.
        read: files that the page saved.
        into: the table to add labels to; None: patches.csv of the own data.

    Raises:
        InputError: a file cannot be used, or two labels of one square differ.
        OutputError: a file cannot be written.
    """
    table = Path(into) if into else paths.dataset_folder("raw", "own") / "patches.csv"
    if read:
        merged = merge_labels([Path(path) for path in read], table)
        _LOG.info("label: output=%s labels_added=%d labels_known=%d answers_without_label=%d", table, *merged)
        return
    source = Path(folder) if folder else paths.DATA / "suggestions" / _FIRST
    target = Path(output) if output else source.with_name(f"{source.name}.html")
    known = (
        read_rows(table)["label"] if table.exists() and "label" in read_rows(table) else pd.Series(dtype=str)
    )
    names = dict.fromkeys([*classes, *sorted(set(known) - {""})])
    patches, slides = _pictures(source / TABLE)
    with whole_file(target) as draft:
        draft.write_text(page(patches, slides, list(names)), encoding="utf-8")
    _LOG.info(
        "label: output=%s patches=%d slides=%d; open it in a browser", target, len(patches), len(slides)
    )


def _pictures(path: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Patches and slides of a page, by the rank of the suggestions."""
    if not path.is_file():
        raise InputError(
            f"{path}: not found. Fix: run `histo-monai suggest --first`, or name a folder of suggestions."
        )
    table = read_table(path, needed=_NEEDED, key=())
    for name in ("y", "x", "side_px"):
        table[name] = read_numbers(path, table[name], 0.0, 2**31, "level-0 pixels, 0 or more")
    table["mpp"] = read_numbers(path, table["mpp"], 0.05, 64.0, "µm/px, 0.05 to 64")
    table = table.reset_index(drop=True)
    mpps = _slide_mpps()
    patches: dict[int, dict[str, Any]] = {}
    slides: dict[str, dict[str, Any]] = {}
    for (slide_id, file), of_slide in table.groupby(["slide_id", "path"], sort=False):
        name = str(slide_id)
        with open_slide(str(file), mpps.get(name)) as slide:
            slides[name] = {
                "size_yx": slide.size_yx, "bounds_yx": slide.bounds_yx, "picture": slide_picture(slide),
            }  # fmt: skip
            patches |= _of_slide(slide, name, of_slide)
    return [patches[number] for number in sorted(patches)], slides


def _of_slide(slide: Slide, slide_id: str, squares: pd.DataFrame) -> dict[int, dict[str, Any]]:
    """Row of the table -> patch of a page; all squares of a table have one side in µm."""
    side_um = float((squares["side_px"] * slide.mpp).median())
    pictures = square_pictures(slide, squares, side_um)
    rows = zip(squares.index, squares["y"], squares["x"], squares["mpp"], pictures, strict=True)
    return {
        int(number): {
            "slide_id": slide_id, "y": float(y), "x": float(x), "mpp": float(mpp), "side_px": round(side_um / mpp),
            "level0_side": side_um / slide.mpp, "picture": picture,
        }
        for number, y, x, mpp, picture in rows
    }  # fmt: skip


def _slide_mpps() -> dict[str, float]:
    """slide_id -> µm/px as the index has it, for files that state none."""
    if not paths.SLIDES_CSV.is_file():
        return {}
    table = pd.read_csv(
        paths.SLIDES_CSV, dtype={"slide_id": str}, keep_default_na=False, na_values={"mpp": [""]}
    )
    return {name: float(mpp) for name, mpp in zip(table["slide_id"], table["mpp"], strict=True) if mpp == mpp}
