"""Command `label`: suggested regions -> a page to label them on; labels saved there -> patches.csv."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.manifests import check_classes, first_row, read_numbers, read_table
from histo_monai.pipeline import paths
from histo_monai.pipeline.suggestions.merging import SUGGESTIONS, check_table, merge_labels
from histo_monai.pipeline.suggestions.squares import TABLE
from histo_monai.reports.labeling.answers import SUFFIX, Answers
from histo_monai.reports.labeling.page import mark_of, page, page_key, slide_picture, square_pictures
from histo_monai.reports.site.server import serve_page
from histo_monai.slides import Slide, open_slide
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import OutputError, claim, read_json, whole_file, write_json

_LOG = logging.getLogger(__name__)

_NEEDED = ("slide_id", "path", "y", "x", "side_px", "mpp", "patch_px", "slide_mpp")
CLASSES = "classes.json"
"""Beside the pages: the classes of the last one, in the order of their keys."""
_LABELS = ("label", "other_label")
"""Of squares that are labeled already: their label, and a likelier one."""


def run(
    folder: str | None,
    classes: Sequence[str],
    output: str | None,
    read: Sequence[str],
    into: str | None,
    serve: bool,
    port: int | None,
) -> None:
    """Write the page of a folder of suggestions, or add the labels that were saved on it to patches.csv.

    Args:
        folder: output of `suggest`; None: data/suggestions/first.
        classes: names to begin with, beside those of patches.csv.
        output: the page; None: beside the folder, named by it and the squares.
        read: files that the page saved.
        into: the table to add labels to; None: patches.csv of the own data.
        serve: serve the page until Ctrl-C, and save each answer beside it as it is given.
        port: of `serve`; None: a free one.

    Raises:
        InputError: a file cannot be used, or two labels of one square differ.
        OutputError: a file cannot be written, or another process serves the page.
    """
    table = Path(into) if into else own_table()
    if serve and into:
        raise InputError(
            f"--into {into}: `histo-monai next` adds all answers of --serve to {own_table()}. Fix: label the page from "
            "disk, without --serve, and add its file by --read and --into"
        )
    if read:
        merged = merge_labels([Path(path) for path in read], table)
        _LOG.info(
            "label: output=%s labels_added=%d labels_known=%d answers_without_label=%d labels_corrected=%d",
            table, *merged,
        )  # fmt: skip
        return
    target, patches, _ = write_page(Path(folder) if folder else SUGGESTIONS / "first", classes, output, table)
    if not serve:
        _LOG.info("label: open the page in a browser, or run `histo-monai label --serve`")
        return
    answers = target.with_suffix(SUFFIX)
    with claim(answers, answers.with_name(f".{answers.name}.lock"), replaces=False):
        saved = Answers(answers, patches)
        try:
            serve_page(target, port, saved.reply)
        finally:
            read_by = f"`histo-monai next`, or `histo-monai label --read {answers}`"
            _LOG.info("label: squares_answered=%d. Next: run %s", saved.num_answered, read_by)


def own_table() -> Path:
    """Labels of the own data."""
    return paths.dataset_folder("raw", "own") / "patches.csv"


def write_page(
    folder: Path, classes: Sequence[str], output: str | None, table: Path, others: Collection[str] = ()
) -> tuple[Path, list[dict[str, Any]], list[str]]:
    """Write the page of a folder of suggestions; the page, its squares, and its classes in the order of their keys.

    Args:
        classes: names to begin with.
        others: further names, beside those of the table and of the page before; such as classes of outlines.

    Raises:
        InputError: a file cannot be used.
        OutputError: the page cannot be written.
    """
    source = folder.absolute()
    before = check_table(table)
    known = before["label"] if "label" in before else pd.Series(dtype=str)
    check_classes(Path("--classes"), pd.Series(list(classes), dtype=str, name="class"))
    patches, slides = _pictures(source / TABLE)
    shown = {patch[name] for patch in patches for name in _LABELS if name in patch}
    key = page_key(patches, os.path.relpath(table))  # the project may move
    target = Path(output) if output else source.with_name(f"{source.name}-{key[:6]}.html")
    _check_target(target, key)
    names = _in_order(
        target.with_name(CLASSES), [name.strip() for name in classes], {*known, *shown, *others}
    )
    with whole_file(target) as draft:
        draft.write_text(page(patches, slides, names, key), encoding="utf-8")
    write_json(target.with_name(CLASSES), {"classes": names})
    _LOG.info("label: output=%s patches=%d slides=%d", target, len(patches), len(slides))
    return target, patches, names


def _in_order(path: Path, given: Sequence[str], others: Collection[str]) -> list[str]:
    """Classes in the order of their keys: given ones, then as on the page before, so that a key keeps its class."""
    before = read_json(path, f"remove {path}", {"classes": [str]})["classes"] if path.exists() else []
    return list(dict.fromkeys(name for name in (*given, *before, *sorted(others)) if name))


def _check_target(target: Path, key: str) -> None:
    """Refuse to replace anything but the page of the same squares.

    Raises:
        OutputError: Another file lies there, or the name does not end in .html.
    """
    if target.suffix.lower() != ".html":
        raise OutputError(f"{target}: a page needs the suffix .html. Fix: name it so")
    if os.path.lexists(target) and not (target.is_file() and mark_of(key) in target.read_bytes()[:4096]):
        raise OutputError(f"{target}: is no page of these squares. Fix: move it, or name another --output")


def _pictures(path: Path) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """Patches and slides of a page, by the rank of the suggestions."""
    if not path.is_file():
        raise InputError(
            f"{path}: not found. Fix: run `histo-monai suggest --first`, or name a folder of suggestions."
        )
    table = read_table(path, needed=_NEEDED, key=())
    for name in ("y", "x", "side_px"):
        table[name] = read_numbers(path, table[name], 0.0, 2**31, "level-0 pixels, 0 or more")
    for name in ("mpp", "slide_mpp"):
        table[name] = read_numbers(path, table[name], 0.05, 64.0, "µm/px, 0.05 to 64")
    table["patch_px"] = read_numbers(
        path, table["patch_px"], 1, 2**20, "a whole number of pixels", whole=True
    )
    for name in _LABELS:
        if name in table:
            check_classes(path, table[name])
    side_um, field_um = table["side_px"] * table["slide_mpp"], table["patch_px"] * table["mpp"]
    larger = side_um > 1.01 * field_um
    if larger.any():
        row = first_row(larger)
        raise InputError(
            f"{path}, row {row}: a square of {side_um[row]:.0f} µm, and a patch has {field_um[row]:.0f}. "
            "Fix: suggest without --side-um, or label larger squares in QuPath."
        )
    table = _by_cluster(path, table).reset_index(drop=True)
    patches: dict[int, dict[str, Any]] = {}
    slides: dict[str, dict[str, Any]] = {}
    for (slide_id, file, mpp), of_slide in table.groupby(["slide_id", "path", "slide_mpp"], sort=False):
        name = str(slide_id)
        with open_slide(str(file), float(str(mpp))) as slide:
            slides[name] = {
                "size_yx": slide.size_yx, "bounds_yx": slide.bounds_yx, "picture": slide_picture(slide),
            }  # fmt: skip
            patches |= _of_slide(slide, name, of_slide)
    return [patches[number] for number in sorted(patches)], slides


def _by_cluster(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Squares of one cluster side by side, with the number of their group; without clusters each is alone."""
    if "cluster" not in table:
        return table.assign(group=range(len(table)))
    clusters = read_numbers(path, table["cluster"], 0, 2**31, "a whole number, 0 or more", whole=True)
    group = pd.Series(pd.factorize(clusters)[0], index=table.index)
    return table.assign(group=group).sort_values("group", kind="stable")


def _of_slide(slide: Slide, slide_id: str, squares: pd.DataFrame) -> dict[int, dict[str, Any]]:
    """Row of the table -> patch of a page."""
    picture_of = {
        number: picture
        for side_um, of_side in squares.groupby(squares["patch_px"] * squares["mpp"])
        for number, picture in zip(
            of_side.index, square_pictures(slide, of_side, float(side_um)), strict=True
        )
    }
    pictures = [picture_of[number] for number in squares.index]
    columns = (squares[name] for name in ("y", "x", "mpp", "patch_px", "side_px", "group"))
    names = [name for name in _LABELS if name in squares]
    labels = [{name: text for name, text in one.items() if text} for one in squares[names].to_dict("records")]
    rows = zip(squares.index, *columns, pictures, labels, strict=True)
    return {
        int(number): {
            "slide_id": slide_id, "y": float(y), "x": float(x), "mpp": float(mpp), "side_px": int(patch_px),
            "level0_side": float(side), "group": int(group), "picture": picture, **of_square,
        }
        for number, y, x, mpp, patch_px, side, group, picture, of_square in rows
    }  # fmt: skip
