"""Survey of patch images before training: integrity, size, and equal pixels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.leakage.fingerprints import fingerprint
from histo_monai.data.tables.manifests import first_five
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import MAX_ASPECT, read_image
from histo_monai.utils.process.processes import map_over_processes

MIN_SIDE_PX = 8
"""Least side of an image."""

_NUM_AT_A_TIME = 64


@dataclass(frozen=True)
class ImageFacts:
    """Facts of one image file, or the reason why it is unusable (`problem`).

    Attributes:
        digest: Equal for images with equal pixels; empty for an image of one color, such as empty glass.
        fingerprint: Hexadecimal perceptual hash, similar for copies; empty for an image with too little content.
        side_px: Shorter side.
        problem: One line that names the file; else empty.
    """

    digest: str = ""
    fingerprint: str = ""
    side_px: int = 0
    problem: str = ""


def survey_images(table: pd.DataFrame, processes: int) -> pd.DataFrame:
    """Digest, fingerprint and side of every image file in a table of labeled patches.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS`; squares of slides are skipped. A `side_px` other than 0 must match
            the image.
        processes: Images read in parallel.

    Returns:
        Columns `digest`, `fingerprint` and `side_px` by row of `table`; empty and unchanged for squares of slides.

    Raises:
        InputError: A file is missing or damaged, not square, or of another size; names up to five.
    """
    facts = table[["side_px"]].assign(digest="", fingerprint="")
    images = table[table["y"].isna()]
    if images.empty:
        return facts
    parts = np.array_split(np.arange(len(images)), -(-len(images) // _NUM_AT_A_TIME))
    paths, sides = images["path"].to_numpy(dtype=object), images["side_px"].to_numpy()
    jobs = ([paths[part].tolist() for part in parts], [sides[part].tolist() for part in parts])
    surveyed = map_over_processes(
        _survey_some,
        *jobs,
        processes=processes,
        title="images",
        unit="image",
        sizes=[len(part) for part in parts],
    )
    rows = [row for some in surveyed for row in some]
    problems = [row.problem for row in rows if row.problem]
    if problems:
        raise InputError(f"{len(problems)} of {len(rows)} images cannot be used: {first_five(problems)}")
    facts.loc[images.index, "digest"] = [row.digest for row in rows]
    facts.loc[images.index, "fingerprint"] = [row.fingerprint for row in rows]
    facts.loc[images.index, "side_px"] = np.array([row.side_px for row in rows], np.int32)
    return facts


def _survey_some(paths: list[str], sides: list[int]) -> list[ImageFacts]:
    return [_survey(path, side) for path, side in zip(paths, sides, strict=True)]


def _survey(path: str, side_px: int) -> ImageFacts:
    try:
        pixels = read_image(Path(path))
    except InputError as error:
        return ImageFacts(problem=str(error))
    height, width = pixels.shape[:2]
    if max(height, width) > MAX_ASPECT * min(height, width):
        return ImageFacts(problem=f"{path}: {height} × {width} px. Fix: use a square, to within a tenth")
    if min(height, width) < MIN_SIDE_PX:
        return ImageFacts(
            problem=f"{path}: {height} × {width} px. Fix: use an image of {MIN_SIDE_PX} px a side or more"
        )
    if side_px and min(height, width) != side_px:
        return ImageFacts(
            problem=f"{path}: {height} × {width} px. Fix: use {side_px} × {side_px}, or correct the table"
        )
    return ImageFacts(digest_of(pixels), fingerprint(pixels).hex(), min(height, width))


def digest_of(pixels: np.ndarray) -> str:
    """A digest of an image's pixels; empty for an image of one color."""
    if bool((pixels == pixels[:1, :1]).all()):
        return ""
    shape = str(pixels.shape).encode()
    return hashlib.blake2b(shape + np.ascontiguousarray(pixels).tobytes(), digest_size=16).hexdigest()
