"""Command `features SLIDE ... --model MODEL --output FOLDER`: slides, an encoder -> HDF5 as CLAM and TRIDENT read."""

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
"""Ends the name of the record of a slide's file."""


class Look(NamedTuple):
    """What of params.yaml features depend on beside the encoder; the values of a folder without that file.

    Attributes:
        tissue_mpp: `index.tissue_mpp`.
        min_tissue_fraction: `heatmap.min_tissue_fraction`.
        batch_size: `evaluate.batch_size`.
    """

    tissue_mpp: float = 16.0
    min_tissue_fraction: float = 0.5
    batch_size: int = 256

    @classmethod
    def of(cls, params: Params) -> Self:
        """As params say."""
        return cls(params.index.tissue_mpp, params.heatmap.min_tissue_fraction, params.evaluate.batch_size)


class Asked(NamedTuple):
    """What the command line asks of patches; None for what the encoder was trained with.

    Attributes:
        patch_px: side, px.
        patch_mpp: resolution, µm/px.
        stride_um: from one to the next, µm; None for side by side.
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
    """Write `folder`: <slide>.h5 (`wsi.inference.patch_features`) and <slide>.features.json, the record of it.

    A slide whose features are there already, made from the same slide, encoder and settings, is not looked at again. A
    call that was killed goes on after its last slide. A slide that cannot be used does not stop the others.

    Raises:
        InputError: the encoder cannot be used, or two slides have one name; or some slides cannot be used, and all
            others are done.
        OutputError: a file would be overwritten that this command did not write, or the folder cannot be written to,
            or another process writes to it.
    """
    if not folder.strip():
        raise InputError("--output is empty; name the folder to write to")
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
    is_first = torchrun_rank() == 0  # where torchrun started it, the first process checks and writes
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
            with contextlib.suppress(OSError):  # It holds what another call, that was killed, was done with.
                (out / UNFINISHED).rmdir()
    bad += damaged
    if bad:
        raise InputError(
            f"{len(bad)} of {len(asked)} slides have no features, all others have: {first_five(bad)}"
        )


def _plan(model: Path, look: Look, asked: Asked) -> MapPlan:
    low, high = PLAUSIBLE_MPP
    if asked.patch_px is not None and not 32 <= asked.patch_px <= 2048:
        raise InputError(f"--patch-px is {asked.patch_px}; expected a side of 32 to 2048 px")
    if asked.patch_mpp is not None and not low <= asked.patch_mpp <= high:
        raise InputError(
            f"--patch-mpp is {asked.patch_mpp:g}; expected the µm per pixel of a microscope, {low:g} to {high:g}"
        )
    encoder, description = load_encoder(model)
    sight = sight_of(description)
    mpp = asked.patch_mpp or sight.mpp
    if mpp is None:
        raise InputError(f"{model}: does not say at what µm/px it sees patches; give --patch-mpp")
    patch_px = asked.patch_px or sight.patch_px
    if patch_px != encoder.img_px and not encoder.any_size:
        raise InputError(f"--patch-px is {patch_px}, but {model} sees patches of {encoder.img_px} px alone")
    stride_um = asked.stride_um or patch_px * mpp
    try:
        whole_stride(stride_um, mpp)
    except InputError as error:
        raise InputError(f"--stride-um: {error}") from None
    return MapPlan(patch_px, mpp, stride_um, look.tissue_mpp, look.min_tissue_fraction, look.batch_size)


def _file(folder: Path, job: SlideJob, work: FeatureWork) -> Path:
    return folder / f"{job.slide_id}{work.suffix}"


def _record(folder: Path, job: SlideJob) -> Path:
    return folder / f"{job.slide_id}{RECORD}"


def _left_to_do(
    folder: Path, jobs: Sequence[SlideJob], work: FeatureWork, origins: Origins
) -> list[SlideJob]:
    """The slides whose features are not there, or were made from something else."""
    left = []
    for job in jobs:
        record = storage.read_record(_record(folder, job))
        there = record is not None and _file(folder, job, work).is_file()
        odd = origins.of(job.path, job.mpp, job.models).differences(record[MADE_FROM]) if record else []
        if there and not odd:
            _LOG.info("%s: has its features already", job.path)
            continue
        if record is not None:
            _LOG.info("%s: looked at again, %s", job.path, ", ".join(odd) or "its features are gone")
        left.append(job)
    return left


def _publish(folder: Path, job: SlideJob, work: FeatureWork, inputs: Sequence[Path]) -> None:
    draft = _file(folder / UNFINISHED, job, work)
    with FeatureFile(draft) as file:
        origin, num, width = file.made_from(), file.num_patches, file.num_features
    content = {MADE_FROM: dict(origin), "num_patches": num, "num_features": width}
    storage.publish([draft], _record(folder, job), content, inputs)
    _LOG.info("%s: %d patches, %d features each", _file(folder, job, work), num, width)
