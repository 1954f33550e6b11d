"""Slides to map, from the command line or a table, checked before the first is mapped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from histo_monai.data.tables.manifests import first_five, read_numbers, read_table
from histo_monai.slides import SlideError, open_slide
from histo_monai.slides.resolution import PLAUSIBLE_MPP
from histo_monai.slides.tiles.cells import slide_grid
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_name, slide_files
from histo_monai.wsi.heatmaps.origin import Origin, Origins
from histo_monai.wsi.inference.models import MapPlan

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SlideJob:
    """Slide to map.

    Attributes:
        slide_id: stem of the output files.
        path: slide file.
        mpp: µm per level-0 pixel; None: from the file.
        models: column of the csv -> model file.
        outlines: file of the user's outlines of tissue and artefacts; empty: none.
    """

    slide_id: str
    path: Path
    mpp: float | None
    models: Mapping[str, Path]
    outlines: str = field(default="", kw_only=True)

    def origin(self, origins: Origins) -> Origin:
        """Current origin of the job's result.

        Raises:
            SlideError: the slide cannot be opened.
        """
        return origins.of(self.path, self.mpp, self.models, self.outlines)


def listed_slides(manifest: str | None, mpp: float | None) -> list[tuple[str, float | None]]:
    """Path and µm/px of each slide of a csv with the columns path and, optionally, mpp.

    Args:
        manifest: csv file; None for no slides.
        mpp: µm/px of slides without a value in the csv; None: from the file.

    Raises:
        InputError: the file or a column is missing, or a value is no number; names file and row.
    """
    if manifest is None:
        return []
    path = Path(manifest)
    table = read_table(path, needed=("path",))
    mpps = read_numbers(path, table["mpp"], *PLAUSIBLE_MPP, "µm per pixel") if "mpp" in table else None
    given = [float("nan")] * len(table) if mpps is None else mpps.tolist()
    return [
        (str(path.parent / name), mpp if np.isnan(own) else own)
        for name, own in zip(table["path"], given, strict=True)
    ]


def named_jobs(
    slides: Sequence[tuple[str, float | None]], models: Mapping[str, Path], mark: str
) -> list[SlideJob]:
    """Job per slide, named by its file.

    Args:
        slides: path and µm/px (None: from the file).
        mark: suffix of map names, not allowed in slide names; empty for none.

    Raises:
        InputError: two slides have one name, or a name ends in the mark.
    """
    low, high = PLAUSIBLE_MPP
    jobs: dict[str, SlideJob] = {}
    for name, mpp in slides:
        if mpp is not None and not low <= mpp <= high:
            raise InputError(f"--mpp: {mpp:g} µm/px is implausible. Fix: give {low:g} to {high:g}")
        path = Path(name)
        if mark and path.stem.lower().endswith(mark):
            raise InputError(f"{path}: this name is a map's, not a slide's. Fix: give slides")
        check_name(path.stem, f"{name!r}: the slide's name")
        same = jobs.get(path.stem.casefold())
        if same is not None:
            raise InputError(f"{path}: equal name as {same.path}. Fix: use one output folder for each")
        jobs[path.stem.casefold()] = SlideJob(f"{path.stem}{mark}", path, mpp, models)
    return list(jobs.values())


def files_read(jobs: Sequence[SlideJob]) -> list[Path]:
    """All files of the slides, protected from overwriting; for an unusable slide only its named file."""
    files: list[Path] = []
    for job in jobs:
        try:
            files += slide_files(job.path)
        except (OSError, InputError):
            files.append(job.path)
    return files


def usable_jobs(
    jobs: Sequence[SlideJob], settings: MapPlan, check: Callable[[Path, Grid], object] | None = None
) -> tuple[list[SlideJob], list[str]]:
    """Open every slide before the first is mapped; usable jobs, and one logged error line per other slide.

    Args:
        check: raises SlideError for slides that are unusable for a further reason.

    Raises:
        InputError: no slide is usable, or an error of `check`.
    """
    usable, bad = [], []
    for job in jobs:
        try:
            with open_slide(job.path, job.mpp) as slide:
                grid = slide_grid(slide, settings.stride_um)
                slide.level_for(settings.mpp)
            if check is not None:
                check(job.path, grid)
            usable.append(job)
        except SlideError as error:
            is_bare = job.mpp is None and "mpp" in str(error)
            hint = " --mpp gives it for all slides of a call, --manifest for each." if is_bare else ""
            bad.append(f"{error}{hint}")
            _LOG.error("%s", bad[-1])
    if not usable:
        raise InputError(first_five(bad))
    return usable, bad
