"""Command `features SLIDE ... --model MODEL --output FOLDER`: slides, encoder -> HDF5 for CLAM and TRIDENT."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from histo_monai.data.tables.manifests import first_five
from histo_monai.models.task_model import load_encoder
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import read_environment, torchrun_rank
from histo_monai.pipeline.params import Params, load_params
from histo_monai.slides.resolution import PLAUSIBLE_MPP
from histo_monai.slides.tiles.blocks import whole_stride
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils import storage
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.origin import MADE_FROM, Origins
from histo_monai.wsi.inference.features import FeatureWork, sight_of
from histo_monai.wsi.inference.jobs import SlideJob, files_read, listed_slides, named_jobs, usable_jobs
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.patch_features import ENCODER, FeatureFile
from histo_monai.wsi.inference.slides import over_slides, without_bad

_LOG = logging.getLogger(__name__)

LOCK, UNFINISHED = ".features.lock", ".features.unfinished"
RECORD = ".features.json"
"""Suffix of the record of a slide's file."""


class Look(NamedTuple):
    """Settings of features from params.yaml; these defaults apply in a folder without params.yaml.

    Attributes:
        tissue: `index.tissue_mpp` and `index.artefacts`.
        min_tissue_fraction: `heatmap.min_tissue_fraction`.
        batch_size: `evaluate.batch_size`.
    """

    tissue: TissueRules = TissueRules()
    min_tissue_fraction: float = 0.5
    batch_size: int = 256

    @classmethod
    def of(cls, params: Params) -> Self:
        """Settings from params."""
        index = params.index
        rules = TissueRules(index.tissue_mpp, index.artefacts)
        return cls(rules, params.heatmap.min_tissue_fraction, params.evaluate.batch_size)


class Asked(NamedTuple):
    """Patches requested on the command line; None: as in the encoder's training.

    Attributes:
        patch_px: side, px.
        patch_mpp: resolution, µm/px.
        stride_um: distance between patches, µm; None: side by side.
    """

    patch_px: int | None
    patch_mpp: float | None
    stride_um: float | None


def run(
    slides: Sequence[str],
    model: str,
    folder: str,
    manifest: str | None,
    mpp: float | None,
    patch_px: int | None,
    patch_mpp: float | None,
    stride_um: float | None,
) -> None:
    """Write <slide>.h5 (`wsi.inference.patch_features`) and <slide>.features.json (provenance) for every slide.

    A slide with features from an equal slide, encoder and settings is skipped; else the log names the difference. An
    interrupted call resumes after its last slide. An unusable slide does not stop the others.

    Raises:
        InputError: the encoder cannot be used, two slides have one name, or some slides are unusable (raised after all
            others are finished).
        OutputError: a target was not written by this command, is not writable, or is locked by another process.
    """
    if not folder.strip():
        raise InputError("--output: empty. Fix: name an output folder")
    look = Look.of(load_params(paths.PARAMS)) if paths.PARAMS.exists() else Look()
    plan = _plan(Path(model), look, Asked(patch_px, patch_mpp, stride_um))
    named = [*((name, mpp) for name in slides), *listed_slides(manifest, mpp)]
    asked = named_jobs(named, {ENCODER: Path(model)}, "")
    jobs, bad = usable_jobs(asked, plan)
    inputs = [paths.PARAMS, Path(model), Path(model).with_suffix(".json"), *files_read(asked)]
    inputs += [Path(manifest)] if manifest else []
    environment = read_environment()
    environment.use_cpus()
    out, work = Path(folder), FeatureWork(plan)
    is_first = torchrun_rank() == 0  # Under torchrun, process 0 checks and writes.
    with storage.claim_users_folder(out, LOCK, UNFINISHED) if is_first else contextlib.nullcontext():
        for job in jobs:
            record = _record(out, job)
            storage.check_outputs([_file(out, job, work), record], inputs, storage.written_before(record))
        left = _left_to_do(out, jobs, work, work.origins(environment.device))
        see = partial(
            over_slides,
            work=work,
            folder=out / UNFINISHED,
            **environment.sharing,
        )
        done, damaged = without_bad(left, see)
        if is_first:
            for job in done:
                _publish(out, job, work, inputs)
            with contextlib.suppress(OSError):  # It may hold finished slides of a killed call.
                (out / UNFINISHED).rmdir()
    bad += damaged
    if bad:
        raise InputError(
            f"slides: {len(bad)} of {len(asked)} failed, the others have features: {first_five(bad)}"
        )


def _plan(model: Path, look: Look, asked: Asked) -> MapPlan:
    low, high = PLAUSIBLE_MPP
    if asked.patch_px is not None and not 32 <= asked.patch_px <= 2048:
        raise InputError(f"--patch-px: {asked.patch_px} px is out of range. Fix: give 32 to 2048")
    if asked.patch_mpp is not None and not low <= asked.patch_mpp <= high:
        raise InputError(
            f"--patch-mpp: {asked.patch_mpp:g} µm/px is implausible. Fix: give {low:g} to {high:g}"
        )
    encoder, description = load_encoder(model)
    if len(encoder.depths) > 1 or encoder.field > 1:
        raise InputError(
            f"{model}: reads several depths, color or the field around a patch. Fix: name the encoder.safetensors in "
            "data/features"
        )
    sight = sight_of(description)
    mpp = asked.patch_mpp or sight.mpp
    if mpp is None:
        raise InputError(f"{model}: states no µm/px of its patches. Fix: give --patch-mpp")
    patch_px = asked.patch_px or sight.patch_px
    if patch_px != encoder.img_px and not encoder.any_size:
        raise InputError(
            f"--patch-px: {patch_px} px, but {model} accepts only {encoder.img_px} px. Fix: give {encoder.img_px}"
        )
    stride_um = asked.stride_um or patch_px * mpp
    try:
        whole_stride(stride_um, mpp)
    except InputError as error:
        raise InputError(f"--stride-um: {error}") from None
    return MapPlan(patch_px, mpp, stride_um, *look)


def _file(folder: Path, job: SlideJob, work: FeatureWork) -> Path:
    return folder / f"{job.slide_id}{work.suffix}"


def _record(folder: Path, job: SlideJob) -> Path:
    return folder / f"{job.slide_id}{RECORD}"


def _left_to_do(
    folder: Path, jobs: Sequence[SlideJob], work: FeatureWork, origins: Origins
) -> list[SlideJob]:
    """Slides without features, or with features from another slide, encoder or settings."""
    left = []
    for job in jobs:
        record = storage.read_record(_record(folder, job))
        there = record is not None and _file(folder, job, work).is_file()
        odd = origins.of(job.path, job.mpp, job.models).differences(record[MADE_FROM]) if record else []
        if there and not odd:
            _LOG.info("features: slide=%s skipped, features exist", job.path)
            continue
        if record is not None:
            _LOG.info(
                "features: slide=%s encoded again: %s", job.path, ", ".join(odd) or "features are missing"
            )
        left.append(job)
    return left


def _publish(folder: Path, job: SlideJob, work: FeatureWork, inputs: Sequence[Path]) -> None:
    draft = _file(folder / UNFINISHED, job, work)
    with FeatureFile(draft) as file:
        origin, num, width = file.made_from(), file.num_patches, file.num_features
    content = {MADE_FROM: dict(origin), "num_patches": num, "num_features": width}
    storage.publish([draft], _record(folder, job), content, inputs)
    _LOG.info("features: file=%s patches=%d features=%d", _file(folder, job, work), num, width)
