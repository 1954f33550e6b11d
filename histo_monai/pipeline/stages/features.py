"""Stage `features`: encoder, tables of patches and whole slides -> features of every patch."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from histo_monai.data.features.store import read_features
from histo_monai.data.features.tables import source_digests
from histo_monai.data.index.candidates import outlines_by_slide
from histo_monai.data.index.preflight import without_field
from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.slide_classes import classes_to_learn
from histo_monai.models.batchnorm import has_batchnorm, patches_for_statistics
from histo_monai.models.checkpoint import load_model, read_description
from histo_monai.models.task_model import describe_file, load_encoder
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import Environment, read_environment, torchrun_rank
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.provenance import check_slides, made_from, write_metrics
from histo_monai.pipeline.skip import leave_empty
from histo_monai.pipeline.stored_features import PATCHES, features_code_sha256
from histo_monai.slides.tiles.blocks import whole_stride
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.ranks import run_in_ranks
from histo_monai.training.resume import fingerprint
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_sha256, whole_file, whole_folder
from histo_monai.wsi.heatmaps.origin import numeric_settings
from histo_monai.wsi.inference.encoding import Encoding
from histo_monai.wsi.inference.features import FeatureWork, sight_of
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.patch_features import ENCODER
from histo_monai.wsi.inference.slides import Batch, over_batches
from histo_monai.wsi.inference.statistics import (
    BATCHNORM,
    MADE_FROM,
    write_adapted,
    write_adapted_to_rows,
)
from histo_monai.wsi.inference.table_features import TableWork, table_jobs

_LOG = logging.getLogger(__name__)

NO_SLIDES = "no_slides"
"""Key of metrics.json: the reason why whole slides have no features."""
NOT_ASKED = "slide_level.pretraining_methods or slide_level.num_encoders excludes this encoder"
_PLACES = ("patch_id", "slide_id", "path", "y", "x", "mpp", "side_px", "slide_mpp")
"""Columns of a table of patches or slides that decide pixels."""
NOTHING = "no patch, and no usable slide label"


def run(method: str, encoder: int) -> None:
    """Write data/features/<method>-<encoder>: <slide_id>.h5, patches/, metrics.json, summary.json.

    <slide_id>.h5 holds the tissue of a whole slide; none is written where `slide_level` does not name the encoder, or
    neither a label of a slide is learned from nor a head maps slides (`finetune.mode: head`). patches/ holds the
    labeled and unlabeled patches. The encoder takes its batch-norm statistics from slides or patches that are not
    tested on, and is written beside them. An interrupted run resumes after its last finished file. Files whose slide,
    patches, encoder and settings are unchanged stay.

    Raises:
        InputError: the encoder, a slide or a patch cannot be used.
    """
    params = load_params(paths.PARAMS)
    slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
    rows = pd.concat([read_patches(paths.PATCHES_CSV), read_patches(paths.UNLABELED_CSV)], ignore_index=True)
    folder = paths.features_folder(method, encoder)
    is_named = params.learns_from_slides(method, encoder)
    _, why = classes_to_learn(slides) if is_named else ([], NOT_ASKED)
    if why and rows.empty:
        reason = f"{NOTHING}: {why}"
        leave_empty(
            folder, params, reason, read=paths.WHOLE_SLIDES_CSV, files=(paths.ENCODER,), folders=(PATCHES,)
        )
        return
    learned = slides[:0] if why else slides
    if not (is_named and params.finetune.mode == "head"):  # such heads map slides from features
        slides = learned
    path = paths.encoder_folder(method, encoder) / paths.ENCODER
    code = features_code_sha256()
    asked = _asked(params, path, code, method)
    for problem in without_field(rows, params.features.field):
        raise InputError(problem)
    environment = read_environment()
    environment.use_cpus()
    stage = f"features-{method}-{encoder}"
    tables = [paths.WHOLE_SLIDES_CSV, paths.PATCHES_CSV, paths.UNLABELED_CSV]
    key = fingerprint(asked.settings, [*tables, path], code)
    done = paths.unfinished_folder(stage) / key[:16]
    check_slides([slides, rows])
    _take_over(folder, done)
    looking = _adapted(asked, learned, rows, path, done, encoder, environment, folder)
    jobs = _jobs(slides, {ENCODER: looking})
    of_tables = table_jobs([rows], {ENCODER: looking}) if len(rows) else []
    work = TableWork(asked.plan.patch_px, params.evaluate.batch_size, asked.encoding, done / PATCHES)
    batches = [
        Batch(jobs, FeatureWork(asked.plan, asked.encoding), done),
        Batch(of_tables, work, done / PATCHES),
    ]
    over_batches(batches, **environment.sharing)
    if torchrun_rank() > 0:  # Under torchrun, process 0 writes.
        return
    provenance = made_from(params, [*tables, path], [slides, rows], rows if len(rows) else None)
    with whole_folder(folder) as draft:
        counts = {"slides": len(jobs), "patches": _publish(jobs, done, draft)}
        (draft / PATCHES).mkdir()
        counts["patches_of_tables"] = _publish(of_tables, done / PATCHES, draft / PATCHES)
        about = {**counts, "settings": asked.settings, **({NO_SLIDES: why} if why else {})}
        for file_of in (looking, looking.with_suffix(".json")):
            _link(file_of, draft / file_of.name)
        if asked.batchnorm_patches:
            about[BATCHNORM] = read_description(looking.with_suffix(".json"))[BATCHNORM]
        write_metrics(draft, about, provenance, summary=counts)
    shutil.rmtree(paths.unfinished_folder(stage), ignore_errors=True)
    _LOG.info("features: output=%s %s", folder, " ".join(f"{name}={value}" for name, value in counts.items()))


class Asked(NamedTuple):
    """Settings of the stage from params.

    Attributes:
        plan: places of the patches of whole slides.
        encoding: settings of the features.
        batchnorm_patches: number of patches for new batch-norm statistics; 0: statistics of the pretraining.
    """

    plan: MapPlan
    encoding: Encoding
    batchnorm_patches: int

    @property
    def settings(self) -> dict[str, Any]:
        """Content for metrics.json."""
        return {
            **self.plan.settings,
            **dataclasses.asdict(self.encoding),
            "batchnorm_patches": self.batchnorm_patches,
        }


def _asked(params: Params, path: Path, code: str, method: str) -> Asked:
    """Params of a pretraining's encoder; warns where they replace the statistics of given weights."""
    description = describe_file(path)
    has_weights = description["encoder"]["weights"] is not None
    num = patches_for_statistics(params.features.batchnorm_patches, has_weights=has_weights)
    if num and not has_batchnorm(load_encoder(path)[0]):
        num = 0
    asked = Asked(_plan(params, description), _encoding(params, code), num)
    if asked.batchnorm_patches and method == "pretrained":
        _LOG.warning(
            "features: %d patches replace the batch-norm statistics of the weights file, which can cost much accuracy. "
            "Fix: set features.batchnorm_patches: null",
            asked.batchnorm_patches,
        )
    return asked


def _encoding(params: Params, code: str) -> Encoding:
    section = params.features
    return Encoding(section.depths, section.views, section.precision, code)


def _adapted(
    asked: Asked,
    slides: pd.DataFrame,
    rows: pd.DataFrame,
    path: Path,
    done: Path,
    seed: int,
    environment: Environment,
    before: Path,
) -> Path:
    """Path of the encoder with batch-norm statistics of slides, or of patches if there are no slides.

    The encoder in the folder `before` is reused if equal slides, patches and settings decide its statistics.
    """
    num = asked.batchnorm_patches
    if not num:
        return path
    target = done / paths.ENCODER
    in_ranks = environment.in_ranks
    in_ranks["ranks"] = 1
    plan = dataclasses.replace(asked.plan, patch_px=asked.plan.patch_px // asked.encoding.field)
    shown = slides if len(slides) else rows
    shown = shown[shown["split"] != "test"]
    key = _statistics_sha256(asked, shown, path, seed, environment)
    if _made_from(before / paths.ENCODER) == key:
        target.parent.mkdir(parents=True, exist_ok=True)
        for name in (target, target.with_suffix(".json")):
            if not name.exists():
                _link(before / name.name, name)
    elif len(slides):
        jobs = _jobs(shown, {})
        run_in_ranks(write_adapted, path, target, jobs, plan, num, seed, key, **in_ranks)
    else:
        sizes = (plan.patch_px, plan.batch_size, num)
        run_in_ranks(write_adapted_to_rows, path, target, shown, *sizes, seed, key, **in_ranks)
    return target


def _statistics_sha256(
    asked: Asked, shown: pd.DataFrame, path: Path, seed: int, environment: Environment
) -> str:
    """Digest of everything that decides batch-norm statistics; no labels.

    These are encoder, slides, the user's outlines of tissue, places, settings and code.
    """
    places = shown[[name for name in _PLACES if name in shown]].astype(str).to_numpy().tolist()
    if "outlines" in shown:
        of_slide = outlines_by_slide(shown)
        places += [[slide_id, file_sha256(Path(file))] for slide_id, file in of_slide.items()]
    slides = sorted((str(path), digest) for path, digest in source_digests(shown).items())
    settings = {**asked.settings, **numeric_settings(environment.device)}
    return fingerprint([settings, seed, sorted(places), slides], [path], asked.encoding.code_sha256)


def _made_from(path: Path) -> str:
    """Digest in an encoder's description; empty without an encoder."""
    try:
        description = load_model(path)[1]
    except InputError:
        return ""
    return str(description.get(MADE_FROM, ""))


def _plan(params: Params, description: Mapping[str, Any]) -> MapPlan:
    sight = sight_of(description)
    mpp = params.features.mpp or sight.mpp
    if mpp is None:  # An encoder of a pretraining always states it.
        raise InputError(
            "features.mpp: null, but the encoder states no µm/px of its training. Fix: set features.mpp"
        )
    stride_um = params.features.stride_um or params.patch_px * mpp
    try:
        whole_stride(stride_um, mpp)
    except InputError as error:
        raise InputError(f"features: {error}, or to null for the side of a patch") from None
    return MapPlan(
        patch_px=params.patch_px * params.features.field,
        mpp=mpp,
        stride_um=stride_um,
        tissue=TissueRules(params.index.tissue_mpp, params.index.artefacts),
        min_tissue_fraction=params.heatmap.min_tissue_fraction,
        batch_size=params.evaluate.batch_size,
    )


def _jobs(slides: pd.DataFrame, models: Mapping[str, Path]) -> list[SlideJob]:
    return [
        SlideJob(slide_id, Path(path), None if np.isnan(mpp) else float(mpp), models, outlines=outlines)
        for slide_id, path, mpp, outlines in slides[["slide_id", "path", "mpp", "outlines"]].itertuples(
            index=False, name=None
        )
    ]


def _publish(jobs: Sequence[SlideJob], done: Path, folder: Path) -> int:
    """Link the finished files into another folder; the number of their patches."""
    num = 0
    for job in jobs:
        source, target = (place / f"{job.slide_id}{FeatureWork.suffix}" for place in (done, folder))
        num += len(read_features(source).patch_id)
        target.parent.mkdir(parents=True, exist_ok=True)
        _link(source, target)
    return num


def _take_over(folder: Path, done: Path) -> None:
    """Link features of the previous run, which are reused if their origin is unchanged."""
    for path in folder.rglob(f"*{FeatureWork.suffix}"):
        target = done / path.relative_to(folder)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(path, target)


def _link(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it; a target that another process has linked meanwhile stays."""
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:
        with whole_file(target) as draft:
            shutil.copy(source, draft)
