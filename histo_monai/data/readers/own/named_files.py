"""Files named after their slides: in `annotations/`, `coordinates/` and `masks/`."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.slides import open_slide
from histo_monai.slides.annotations import BOUNDS, CANVAS, LeftOut, log_left_out
from histo_monai.slides.annotations.geojson import states_origin
from histo_monai.slides.tiles.usable import read_outlines
from histo_monai.utils.errors import InputError

MASKS = "masks"
"""Folder of outlines of tissue and artefacts."""


def list_files(folder: Path, suffixes: Sequence[str]) -> tuple[list[Path], list[LeftOut]]:
    """Paths with one of the suffixes, sorted by name, and the other paths in the folder.

    Ignores hidden files. A missing folder gives two empty results.

    Raises:
        InputError: The path is no folder, or cannot be read.
    """
    if not os.path.lexists(folder):
        return [], []
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be read as a folder ({error.strerror}). "
            f"Fix: make a folder with a file <slide_id>{suffixes[0]} for each slide."
        ) from None
    paths = [folder / name for name in names if Path(name).suffix.lower() in suffixes]
    others = tuple(name for name in names if Path(name).suffix.lower() not in suffixes)
    why = f"without the ending {' or '.join(suffixes)}"
    return paths, [LeftOut(folder, "file", why, others)] if others else []


def by_slide(
    paths: Iterable[Path], slide_ids: Collection[str], endings: Sequence[str] = ("",)
) -> dict[str, Path]:
    """slide_id -> its file, in the order of the paths.

    A file belongs to the slide whose id equals its name without suffix. Otherwise it belongs to the slide whose id is
    the same text in Unicode's other spelling of accents: some disks write "é" as one character, others as two.

    Args:
        slide_ids: Ids in slides.csv.
        endings: Texts allowed between slide_id and suffix.

    Raises:
        InputError: A file belongs to no slide, or two files belong to one slide.
    """
    exact, composed = set(slide_ids), {_composed(slide_id): slide_id for slide_id in slide_ids}
    files: dict[str, Path] = {}
    for path in paths:
        names = [path.stem.removesuffix(ending) for ending in endings if path.stem.endswith(ending)]
        matches = [name if name in exact else composed.get(_composed(name)) for name in names]
        slide_id = next((match for match in matches if match is not None), None)
        if slide_id is None:
            raise InputError(
                f"{path}: slides.csv has no slide_id {path.stem!r}. Fix: name the file as its slide or remove it."
            )
        if slide_id in files:
            raise InputError(
                f"{path}: a second file for slide {slide_id!r}, beside {files[slide_id].name}. Fix: remove one."
            )
        files[slide_id] = path
    return files


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def outlines_of(root: Path, table: pd.DataFrame) -> list[str]:
    """Checked `masks/<slide_id>.geojson` of each slide, or empty.

    Raises:
        InputError: A file is no outlines of tissue or artefacts, or may count from another corner than its slide's.
    """
    files, others = list_files(root / MASKS, (".geojson",))
    for one in others:
        log_left_out(one)
    for path in files:
        read_outlines(path, None)
    of_slide = by_slide(files, table["slide_id"])
    of_canvas = table[(table["annotation_origin"] == CANVAS) & table["slide_id"].isin(list(of_slide))]
    for slide_id, path, mpp in of_canvas[["slide_id", "path", "mpp"]].itertuples(index=False, name=None):
        mask = of_slide[slide_id]
        if not states_origin(mask) and _has_bounds(Path(path), mpp):
            raise InputError(
                f"{mask}: annotation_origin of this slide is {CANVAS}, and the file does not state whether it counts "
                f"from {BOUNDS} (QuPath) or {CANVAS}. Fix: write it again by `histo-monai convert --origin {BOUNDS} "
                f"--slide SLIDE SOURCE TARGET`, or with --origin {CANVAS}"
            )
    return [str(of_slide.get(slide_id, "")) for slide_id in table["slide_id"]]


def _has_bounds(path: Path, mpp: float) -> bool:
    """Whether the image of a slide does not begin at the corner of its canvas; False if it cannot be opened."""
    try:
        with open_slide(path, None if np.isnan(mpp) else mpp) as slide:
            return slide.bounds_yx != (0, 0)
    except InputError:  # the index names it
        return False
