"""Command `map SLIDE ... --model MODEL --folder FOLDER`: any slides, one model -> scores, TIFF, GeoJSON, overlays."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from histo_monai import artifacts
from histo_monai.engines.heatmap import MapSettings, SlideJob, map_slides, patches_mpp
from histo_monai.environment import read_environment
from histo_monai.networks import from_task_model
from histo_monai.params import load_params
from histo_monai.reports.slide_maps import MapStyle, SlidePicture, write_slide_maps
from histo_monai.slides import SlideError, open_slide
from histo_monai.storage import write_json
from histo_monai.wholeslide.heatmap import read_heatmap

_LOG = logging.getLogger(__name__)

COLUMN = "model"
ABOUT = "map.json"


def run(
    slides: Sequence[str],
    model: str,
    folder: str,
    stride_um: float | None,
    mpp: float | None,
    positive: str | None,
) -> None:
    """Write `folder`: <slide>.csv and .json, .tif, .geojson and .png for every slide, and map.json, what was asked for.

    Tissue, detections and pictures are as params.yaml says in `index` and `heatmap`. Slides whose scores are there
    already are not mapped again.

    Raises:
        ValueError: the model or a slide cannot be used, two slides have one name, or the folder holds other maps.
    """
    params = load_params(artifacts.PARAMS)
    environment = read_environment()
    environment.use_cpus()
    _, description = from_task_model(Path(model))
    its_mpp, patch_px = patches_mpp(description, Path(model)), description["patch_px"]
    settings = MapSettings(
        patch_px=patch_px,
        mpp=its_mpp,
        stride_um=stride_um or patch_px * its_mpp,
        tissue_mpp=params.index.tissue_mpp,
        min_tissue_fraction=params.heatmap.min_tissue_fraction,
        batch_size=params.evaluate.batch_size,
    )
    positive = _positive(model, description["classes"], positive)
    jobs = _jobs(slides, Path(model), mpp)
    for job in jobs:
        _check_slide(job)
    out = Path(folder)
    _keep_apart(out, settings, positive, Path(model))
    map_slides(
        jobs,
        settings,
        positive,
        out,
        device=environment.device,
        workers=environment.workers,
        ranks=environment.ranks,
    )
    section = params.heatmap
    style = MapStyle(positive, section.overlay_mpp, section.region_threshold, **asdict(section.detection))
    for job in jobs:
        heatmap = read_heatmap(out / f"{job.slide_id}.csv")
        picture = SlidePicture.read(job.path, heatmap, style, [])
        write_slide_maps(out, job.slide_id, job.slide_id, heatmap, COLUMN, picture, style)
        _LOG.info("%s: %d cells of %g µm", job.slide_id, len(heatmap.cells), settings.stride_um)


def _positive(model: str, classes: list[str] | None, asked: str | None) -> str | None:
    if classes is None or asked is not None:
        return asked
    if "tumor" in classes:
        return "tumor"
    raise ValueError(f"{model}: its classes are {', '.join(classes)}; say with --positive which one to map")


def _jobs(slides: Sequence[str], model: Path, mpp: float | None) -> list[SlideJob]:
    jobs: dict[str, SlideJob] = {}
    for name in slides:
        path = Path(name)
        if path.stem in jobs:
            raise ValueError(
                f"{path} and {jobs[path.stem].path} have one name, and so would their maps; use two folders"
            )
        jobs[path.stem] = SlideJob(path.stem, path, mpp, {COLUMN: model})
    return list(jobs.values())


def _check_slide(job: SlideJob) -> None:
    """Open it, so that a slide which cannot be read is known before the first is mapped."""
    try:
        open_slide(job.path, job.mpp).close()
    except SlideError as error:
        hint = "; --mpp tells it for all slides of a call" if job.mpp is None and "mpp" in str(error) else ""
        raise ValueError(f"{error}{hint}") from None


def _keep_apart(folder: Path, settings: MapSettings, positive: str | None, model: Path) -> None:
    """Maps of one folder are of one model and one way to look."""
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    about = {"model_sha256": digest, "positive": positive, **asdict(settings)}
    path = folder / ABOUT
    if path.is_file() and any(folder.glob("*.csv")):
        before = json.loads(path.read_text(encoding="utf-8"))
        odd = [name for name in about if before.get(name) != about[name]]
        if odd:
            raise ValueError(
                f"{folder}: holds maps with {odd[0]} {before.get(odd[0])!r}, now {about[odd[0]]!r}; name another folder"
            )
    write_json(path, about)
