"""Command `map SLIDE ... [--model MODEL] --output FOLDER`: slides -> scores, TIFF, GeoJSON, overlays, DICOM."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from histo_monai.data.tables.manifests import first_five
from histo_monai.evaluation.conformal import Abstention
from histo_monai.evaluation.recommendation import read_recommendation
from histo_monai.models.reference import has_reference
from histo_monai.models.task_model import from_task_model
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import Environment, read_environment, torchrun_rank
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.params.slide_sections import DetectionParams
from histo_monai.pipeline.provenance import made_from, portable
from histo_monai.reports.maps.slide_maps import MapStyle, SlidePicture, write_slide_maps
from histo_monai.slides import SlideError
from histo_monai.slides.annotations import BOUNDS
from histo_monai.slides.tiles.blocks import whole_stride
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils import storage
from histo_monai.utils.errors import InputError
from histo_monai.wsi.export.dicom import check_slide, write_segmentation
from histo_monai.wsi.heatmaps.heatmap import (
    ABSTAINS,
    UNLIKE,
    Heatmap,
    read_heatmap,
    unlike_slides,
    write_heatmap,
)
from histo_monai.wsi.heatmaps.origin import MADE_FROM, ORIGIN_SHAPE, Origins, slide_identity
from histo_monai.wsi.inference.heatmaps import MapWork, map_slides
from histo_monai.wsi.inference.jobs import SlideJob, files_read, listed_slides, named_jobs, usable_jobs
from histo_monai.wsi.inference.models import MapPlan, mapped_classes, model_plan
from histo_monai.wsi.inference.slides import without_bad

_LOG = logging.getLogger(__name__)

COLUMN = "model"
MARK = ".map"
"""Part of every output name before the suffix; no slide has it."""

DRAWN_AS = "drawn_as"
_SHAPE = {MADE_FROM: ORIGIN_SHAPE, DRAWN_AS: {str: object}}
LOCK, UNFINISHED = ".map.lock", ".map.unfinished"


class Look(NamedTuple):
    """Settings of a map from params.yaml; these defaults apply in a folder without params.yaml."""

    tissue: TissueRules = TissueRules()
    min_tissue_fraction: float = 0.5
    batch_size: int = 256
    overlay_mpp: float = 8.0
    region_threshold: float = 0.5
    detection: DetectionParams = DetectionParams(threshold=0.2, radius_um=150.0, smoothing_um=64.0)

    @classmethod
    def of(cls, params: Params) -> Self:
        """Settings from params."""
        of = params.heatmap
        return cls(
            TissueRules(params.index.tissue_mpp, params.index.artefacts),
            of.min_tissue_fraction,
            params.evaluate.batch_size,
            of.overlay_mpp,
            of.region_threshold,
            of.detection,
        )


def run(
    slides: Sequence[str],
    model: str | None,
    folder: str,
    manifest: str | None,
    stride_um: float | None,
    mpp: float | None,
    positive_class: str | None,
    abstain: float | None = None,
    dicom: bool = False,
) -> None:
    """Write <slide>.map.csv, .tif, .geojson, .png and .json (provenance) for every slide.

    Without `model` it uses the model that `compare` recommends. Tissue, detections and overlays follow `index` and
    `heatmap` of params.yaml, or the defaults of `Look`. A slide with a map from an equal slide, model and settings is
    skipped; else the log names the difference. An interrupted call resumes after its last slide. An unusable slide does
    not stop the others. `abstain`: error rate; cells whose set of classes is not one class have no class. `dicom`: also
    write .map.dcm; slides that are not in DICOM are unusable.

    Raises:
        InputError: the model cannot be used or has no such error rate, two slides have one name, the folder holds maps
            of other slides with other settings, or some slides are unusable (raised after all others are mapped).
        OutputError: a target was not written by this command, is not writable, or is locked by another process.
    """
    if not folder.strip():
        raise InputError("--output: empty. Fix: name an output folder")
    if model is None:
        model = read_recommendation(paths.CHOSEN)["model"]
        _LOG.info("map: model=%s, recommended by %s", model, paths.CHOSEN)
    params = load_params(paths.PARAMS) if paths.PARAMS.exists() else None
    look = Look() if params is None else Look.of(params)
    settings, classes = _settings(look, Path(model), stride_um, positive_class)
    has_distance = has_reference(Path(model))
    if not has_distance:
        _LOG.info("map: model=%s holds no labeled patches, so maps have no distance to them", model)
    style = MapStyle(
        classes,
        look.overlay_mpp,
        look.region_threshold,
        **asdict(look.detection),
        has_distance=has_distance,
        abstention=None if abstain is None else Abstention.read(Path(model), abstain, classes),
        dicom=dicom,
    )
    named = [*((name, mpp) for name in slides), *listed_slides(manifest, mpp)]
    asked = named_jobs(named, {COLUMN: Path(model)}, MARK)
    check = partial(check_slide, classes=list(style.columns(COLUMN))) if dicom else None
    jobs, bad = usable_jobs(asked, settings, check)
    inputs = [paths.PARAMS, Path(model), Path(model).with_suffix(".json"), *files_read(asked)]
    inputs += [Path(manifest)] if manifest else []
    environment = read_environment()
    environment.use_cpus()
    origins = MapWork(settings, classes).origins(environment.device)
    out = Path(folder)
    is_first = torchrun_rank() == 0  # under torchrun, process 0 checks and writes
    with storage.claim_users_folder(out, LOCK, UNFINISHED) if is_first else contextlib.nullcontext():
        _check_one_look(out, jobs, origins)
        for job in jobs:
            _check_outputs(out, job, inputs, style)
        to_map, to_draw = _left_to_do(out, jobs, origins, style)
        mapped, damaged = _mapped(to_map, settings, classes, out / UNFINISHED, environment)
        if is_first:
            provenance = made_from(params, inputs[1:3])
            _finish(out, mapped, to_draw, inputs, style, provenance)
    bad += damaged
    if bad:
        raise InputError(
            f"slides: {len(bad)} of {len(asked)} failed, the others are mapped: {first_five(bad)}"
        )


def _mapped(
    jobs: Sequence[SlideJob],
    settings: MapPlan,
    classes: tuple[str, ...],
    folder: Path,
    environment: Environment,
) -> tuple[list[SlideJob], list[str]]:
    """Map the slides; mapped jobs, and one error line per failed slide."""

    def see(left: Sequence[SlideJob]) -> None:
        map_slides(
            left,
            settings,
            classes,
            folder,
            **environment.sharing,
        )

    return without_bad(jobs, see)


def _finish(
    out: Path,
    mapped: Sequence[SlideJob],
    to_draw: Sequence[SlideJob],
    inputs: Sequence[Path],
    style: MapStyle,
    provenance: Mapping[str, Any],
) -> None:
    work = out / UNFINISHED
    for job in to_draw:
        work.mkdir(exist_ok=True)
        shutil.copy(_record(out, job).with_suffix(".csv"), work)
        shutil.copy(_record(out, job), work)
    for job in (*mapped, *to_draw):
        _publish(out, job, inputs, style, provenance)
    with contextlib.suppress(OSError):  # It holds finished slides of an interrupted call.
        work.rmdir()


def _settings(
    look: Look, model: Path, stride_um: float | None, positive_class: str | None
) -> tuple[MapPlan, tuple[str, ...]]:
    _, description = from_task_model(model)
    settings = model_plan(
        description,
        model,
        stride_um,
        tissue=look.tissue,
        min_tissue_fraction=look.min_tissue_fraction,
        batch_size=look.batch_size,
    )
    try:
        whole_stride(settings.stride_um, settings.mpp)
    except InputError as error:
        raise InputError(f"--stride-um: {error}") from None
    try:
        return settings, mapped_classes(description["classes"], positive_class)
    except InputError as error:
        raise InputError(f"--positive-class: {model}: {error}") from None


def _check_outputs(folder: Path, job: SlideJob, inputs: Sequence[Path], style: MapStyle) -> None:
    record = _record(folder, job)
    outputs = [folder / name for name in _files(job, style)]
    storage.check_outputs([*outputs, record], inputs, storage.written_before(record))


def _drawn_as(style: MapStyle) -> dict[str, Any]:
    """Style settings as JSON returns them; maps of earlier models have no distance, few an abstention or DICOM."""
    settings = {**asdict(style), "classes": list(style.classes), "origin": BOUNDS}
    for name in ("has_distance", "abstention", "dicom"):
        if not settings[name]:
            del settings[name]
    return settings


def _files(job: SlideJob, style: MapStyle) -> list[str]:
    return [f"{job.slide_id}.csv", *style.files(job.slide_id)]


def _record(folder: Path, job: SlideJob) -> Path:
    return folder / f"{job.slide_id}.json"


def _left_to_do(
    folder: Path, jobs: Sequence[SlideJob], origins: Origins, style: MapStyle
) -> tuple[list[SlideJob], list[SlideJob]]:
    """Slides to map, and mapped slides whose pictures are missing or have other settings."""
    to_map, to_draw = [], []
    for job in jobs:
        path = _record(folder, job)
        record = storage.read_record(path, _SHAPE)
        if record is None:
            to_map.append(job)
            continue
        odd = origins.of(job.path, job.mpp, job.models).differences(record[MADE_FROM])
        missing = [name for name in record["files"] if not (folder / name).is_file()]
        if odd or path.with_suffix(".csv").name in missing:
            _LOG.info("map: slide=%s mapped again: %s", job.path, ", ".join(odd) or "scores are missing")
            to_map.append(job)
        elif missing or record[DRAWN_AS] != _drawn_as(style):
            to_draw.append(job)
        else:
            _LOG.info("map: slide=%s skipped, map exists", job.path)
    return to_map, to_draw


def _check_one_look(folder: Path, jobs: Sequence[SlideJob], origins: Origins) -> None:
    """Refuse a folder that would keep maps of other slides by another model or other settings."""
    ours = {_record(folder, job).name for job in jobs}
    now = origins.of(jobs[0].path, jobs[0].mpp, jobs[0].models)
    for path in sorted(folder.glob(f"*{MARK}.json")):
        record = storage.read_record(path, _SHAPE) if path.name not in ours else None
        odd = now.other_look(record[MADE_FROM]) if record else []
        if odd:
            raise InputError(
                f"{folder}: maps of other slides differ: {path.name} {', '.join(odd)}. Fix: name another folder, or "
                "give all its slides"
            )


def _publish(
    folder: Path, job: SlideJob, inputs: Sequence[Path], style: MapStyle, provenance: Mapping[str, Any]
) -> None:
    """Draw a mapped slide and move its files into the folder."""
    work = folder / UNFINISHED
    csv = work / f"{job.slide_id}.csv"
    heatmap, about = _with_answers(read_heatmap(csv), style), _about(csv)
    if heatmap.answers is not None or about.get("answers"):
        write_heatmap(csv, heatmap, about[MADE_FROM])
        about = _about(csv)
    picture = SlidePicture.read(job.path, heatmap, style, [])
    title = job.slide_id.removesuffix(MARK)
    write_slide_maps(work, job.slide_id, title, heatmap, COLUMN, picture, style)
    if style.dicom:
        named = portable(job.models[COLUMN]), about[MADE_FROM]["model_sha256"][COLUMN]
        columns, settings = style.columns(COLUMN), about[MADE_FROM]["settings"]
        write_segmentation(work / f"{job.slide_id}.dcm", job.path, heatmap, columns, named, settings)
    slide = slide_identity(job.path)
    if slide.sample_sha256 != about[MADE_FROM]["slide_sample_sha256"]:
        raise SlideError(job.path, "the file changed during mapping. Fix: run again once it is complete")
    drafts = [work / name for name in _files(job, style)]
    unlike = heatmap.unlike_training(COLUMN)
    content = {**about, "slide": slide.as_dict(), DRAWN_AS: _drawn_as(style), "provenance": provenance}
    if np.isfinite(unlike):
        content |= {UNLIKE: round(unlike, 4)}
    abstains = heatmap.abstains()
    if style.abstention:
        content |= {ABSTAINS: round(abstains, 4)}
    storage.publish(drafts, _record(folder, job), content, inputs)
    (work / f"{job.slide_id}.json").unlink()
    _LOG.info("map: slide=%s cells=%d stride=%g µm", job.path, len(heatmap.cells), heatmap.grid.stride_um)
    if style.abstention:
        rate, accuracy = style.abstention.error_rate, style.abstention.accuracy
        words = "" if accuracy is None else f"; right in cross-validation: {accuracy:.0%} of the answers"
        _LOG.info("map: slide=%s error_rate=%g abstains=%.0f %%%s", job.path, rate, 100 * abstains, words)
    for line in unlike_slides({title: unlike}):
        _LOG.warning("map: %s", line)


def _about(csv: Path) -> dict[str, Any]:
    fix = f"remove {csv.parent}"
    about: dict[str, Any] = storage.read_json(csv.with_suffix(".json"), fix, {MADE_FROM: ORIGIN_SHAPE})
    return about


def _with_answers(heatmap: Heatmap, style: MapStyle) -> Heatmap:
    """The map with the class of each cell, or without classes where none was asked for."""
    if style.abstention is None:
        return replace(heatmap, answers=None)
    probabilities = {name: heatmap.values[heatmap.column(COLUMN, name)] for name in style.classes}
    return replace(heatmap, answers=style.abstention.answers(probabilities))
