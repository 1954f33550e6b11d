"""Survey of slides by thumbnail: digest, fingerprint and readability."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.index.images import digest_of
from histo_monai.data.leakage.fingerprints import fingerprint
from histo_monai.data.tables.manifests import first_five
from histo_monai.slides import open_slide, tissue_mask
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes
from histo_monai.utils.storage import identify_slide

_THUMBNAIL_MPP = 32.0


def look_at_slides(files: pd.DataFrame, processes: int) -> pd.DataFrame:
    """Facts of every slide from its thumbnail, read once per file on disk.

    Args:
        files: `path`, and `mpp` (missing where the file states it); paths may repeat.
        processes: Slides read in parallel.

    Returns:
        Index `path`; `digest`, equal for thumbnails with equal pixels; `fingerprint` of the tissue, hexadecimal;
        `problem`, why the slide cannot be read; `content`, a digest of samples of its files. Missing texts are empty.
    """
    files = files.drop_duplicates("path")
    real = [os.path.realpath(path) for path in files["path"]]
    each = files.assign(real=real).drop_duplicates("real")
    mpps = [None if np.isnan(mpp) else float(mpp) for mpp in each["mpp"]]
    work = partial(map_over_processes, processes=processes, title="thumbnails", unit="slide")
    thumbnails = list(work(_look, list(each["path"]), mpps))
    table = pd.DataFrame(
        thumbnails, columns=["digest", "fingerprint", "problem", "content"], index=each["real"], dtype=str
    )
    return table.loc[real].set_axis(pd.Index(files["path"], name="path"))


def readable(
    whole_slides: pd.DataFrame, looks: pd.DataFrame, skip_bad_slides: bool
) -> tuple[pd.DataFrame, list[str]]:
    """The readable slides, and a line for each unreadable one.

    Args:
        whole_slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS`.
        skip_bad_slides: Continue without unreadable slides.

    Raises:
        InputError: A slide cannot be read, and `skip_bad_slides` is not set.
    """
    problem = looks["problem"].reindex(whole_slides["path"]).to_numpy()
    lines = [line for line in problem if line]
    if lines and not skip_bad_slides:
        raise InputError(
            f"{len(lines)} of {len(whole_slides)} whole slides cannot be read: {first_five(lines)}. "
            "index.skip_bad_slides: true leaves such slides out."
        )
    return whole_slides[problem == ""].reset_index(drop=True), [f"left out: {line}" for line in lines]


def refuse_unreadable(looks: pd.DataFrame, paths: pd.Series) -> None:
    """Refuse unreadable slides that training needs.

    Raises:
        InputError: A slide cannot be read; names up to five.
    """
    lines = [line for line in looks["problem"].reindex(paths.unique()) if line]
    if lines:
        raise InputError(
            f"{len(lines)} slides cannot be read: {first_five(lines)}. Fix: repair or remove them."
        )


def _look(path: str, mpp: float | None) -> tuple[str, str, str, str]:
    try:
        with open_slide(path, mpp) as slide:
            pixels = slide.thumbnail(max(_THUMBNAIL_MPP, slide.mpp))
        content = identify_slide(Path(path)).sample_sha256
    except (InputError, OSError) as error:
        return "", "", str(error), ""
    return digest_of(pixels), fingerprint(tissue_of(pixels)).hex(), "", content


def tissue_of(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The thumbnail cropped to its tissue, because another scan of the slide begins elsewhere."""
    rows, columns = np.nonzero(tissue_mask(pixels))
    if not len(rows):
        return pixels
    return pixels[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
