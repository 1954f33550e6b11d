"""Stage `embed`: an encoder and slides -> features of every patch of tissue."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.slide_classes import classes_to_learn
from histo_monai.models.checkpoint import read_description
from histo_monai.models.task_model import load_encoder
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import read_environment, torchrun_rank
from histo_monai.pipeline.imports import modules_sha256
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.provenance import check_slides, made_from, write_metrics
from histo_monai.pipeline.skip import leave_empty
from histo_monai.slides.tiles.blocks import whole_stride
from histo_monai.training.ranks import run_in_ranks
from histo_monai.training.resume import fingerprint
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import read_json, whole_folder
from histo_monai.wsi.inference.features import FeatureWork, sight_of
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.patch_features import ENCODER, FeatureFile
from histo_monai.wsi.inference.slides import over_slides
from histo_monai.wsi.inference.statistics import BATCHNORM, has_batchnorm, write_adapted

_LOG = logging.getLogger(__name__)

CODE = "code_of_features"
"""Key of metrics.json: digest of what looked at the slides."""
NOT_ASKED = "slide_level.pretraining_methods does not name it, or slide_level.num_encoders leaves it out"


def run(method: str, encoder: int) -> None:
    """Write data/features/<method>-<encoder>: <slide_id>.h5 of every whole slide, metrics.json, summary.json.

    Nothing where no label of a slide can be learned from, or `slide_level` does not ask for it. The encoder takes its
    batch-norm statistics from slides that are not tested on, and is written, too. A run that was killed goes on after
    its last finished slide.

    Raises:
        InputError: the encoder or a slide cannot be used.
    """
    params = load_params(paths.PARAMS)
    slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    folder = paths.features_folder(method, encoder)
    _, why = classes_to_learn(slides) if params.learns_from_slides(method, encoder) else ([], NOT_ASKED)
    if why:
        leave_empty(folder, params, why, read=paths.WHOLE_SLIDES_CSV)
        return
    path = paths.encoder_folder(method, encoder) / paths.ENCODER
    network, description = load_encoder(path)
    work = FeatureWork(_plan(params, description))
    num = params.embed.batchnorm_patches if has_batchnorm(network) else 0
    environment = read_environment()
    environment.use_cpus()
    stage = f"embed-{method}-{encoder}"
    code = modules_sha256(over_slides.__module__, type(work).__module__, write_adapted.__module__)
    decided_by = {**dataclasses.asdict(work.plan), "batchnorm_patches": num}
    key = fingerprint(decided_by, [paths.WHOLE_SLIDES_CSV, path], code)
    done = paths.unfinished_folder(stage) / key[:16]
    check_slides([slides])
    _take_over(folder, done, code)
    looking = path
    if num:
        looking = done / paths.ENCODER
        shown = _jobs(slides[slides["split"] != "test"], {})
        arguments = (path, looking, shown, work.plan, num, encoder)
        in_ranks = environment.in_ranks
        in_ranks["ranks"] = 1
        run_in_ranks(write_adapted, *arguments, **in_ranks)
    jobs = _jobs(slides, {ENCODER: looking})
    over_slides(
        jobs,
        work,
        done,
        **environment.sharing,
    )
    if torchrun_rank() > 0:  # Started by torchrun: the first process writes.
        return
    provenance = made_from(params, [paths.WHOLE_SLIDES_CSV, path], [slides])
    counts = {"slides": len(jobs), "patches": 0}
    with whole_folder(folder) as draft:
        for job in jobs:
            name = f"{job.slide_id}{work.suffix}"
            with FeatureFile(done / name) as file:
                counts["patches"] += file.num_patches
            _link(done / name, draft / name)
        about = {**counts, "plan": decided_by, CODE: code}
        if num:
            for file_of in (looking, looking.with_suffix(".json")):
                _link(file_of, draft / file_of.name)
            about[BATCHNORM] = read_description(looking.with_suffix(".json"))[BATCHNORM]
        write_metrics(draft, about, provenance, summary=counts)
    shutil.rmtree(paths.unfinished_folder(stage), ignore_errors=True)
    _LOG.info("%s written: %d slides, %d patches", folder, counts["slides"], counts["patches"])


def _plan(params: Params, description: Mapping[str, Any]) -> MapPlan:
    sight = sight_of(description)
    mpp = params.embed.mpp or sight.mpp
    if mpp is None:  # of no encoder of a pretraining
        raise InputError("embed.mpp is null, and the encoder does not say at what µm/px it was trained")
    stride_um = params.embed.stride_um or params.patch_px * mpp
    try:
        whole_stride(stride_um, mpp)
    except InputError as error:
        raise InputError(f"embed: {error}; or to null, the side of a patch") from None
    return MapPlan(
        patch_px=params.patch_px,
        mpp=mpp,
        stride_um=stride_um,
        tissue_mpp=params.index.tissue_mpp,
        min_tissue_fraction=params.heatmap.min_tissue_fraction,
        batch_size=params.evaluate.batch_size,
    )


def _jobs(slides: pd.DataFrame, models: Mapping[str, Path]) -> list[SlideJob]:
    return [
        SlideJob(slide_id, Path(path), None if np.isnan(mpp) else float(mpp), models)
        for slide_id, path, mpp in zip(slides["slide_id"], slides["path"], slides["mpp"], strict=True)
    ]


def _take_over(folder: Path, done: Path, code: str) -> None:
    """What the stage left before, by the same code: of slides that are as they were nothing is looked at again."""
    about = folder / paths.METRICS
    if not about.is_file() or read_json(about, "remove it", {f"{CODE}?": str}).get(CODE) != code:
        return
    done.mkdir(parents=True, exist_ok=True)
    for path in folder.glob(f"*{FeatureWork.suffix}"):
        if not (done / path.name).exists():
            _link(path, done / path.name)


def _link(source: Path, target: Path) -> None:
    """A second name where the disk knows these; else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
