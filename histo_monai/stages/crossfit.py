"""Stage `crossfit --method METHOD --seed SEED`: models that have not seen a fold of the training slides, for each fold.

The slides that a slide-level classifier learns from are those that the patch model has learned from. Its own maps of
them are better than any it will make of a new slide, and a classifier taught by them expects too much. So each training
slide is mapped by a model that was fine-tuned, and whose student was taught, without any patch of its fold.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from histo_monai import artifacts
from histo_monai.engines.fit import Records
from histo_monai.engines.labeled import LabeledTask
from histo_monai.engines.resume import fingerprint
from histo_monai.engines.semisupervised import train_student
from histo_monai.engines.supervised import Training, finetune_encoder
from histo_monai.environment import read_environment
from histo_monai.errors import InputError
from histo_monai.imports import stage_sha256
from histo_monai.networks.checkpoint import save_model
from histo_monai.networks.task_model import describe_task_model
from histo_monai.params import Params, load_params
from histo_monai.params.selection import selected
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed, generator
from histo_monai.semisupervised import METHODS
from histo_monai.storage import whole_folder
from histo_monai.tables.columns import read_whole_slides
from histo_monai.tables.folds import COLUMNS, assign_folds, slides_to_fold
from histo_monai.tables.patches import read_patches
from histo_monai.tables.splits import labeled_rows
from histo_monai.tables.tasks import split_rows

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "whole_slides",
    "alpha",
    "mu",
    "n_aug",
    "patch_px",
    "crossfit",
    "finetune.${dataset}",
    "consistency.method",
    "consistency.methods.${consistency.method}",
    "consistency.${dataset}",
    "evaluate.batch_size",
)
"""What decides the result, as in dvc.yaml."""


def run(method: str, seed: int) -> None:
    """Write data/models/<method>-<seed>/folds: folds.csv, finetuned-<fold> and student-<fold>, metrics.json.

    Where the slides bear no labels there is nothing to diagnose: folds.csv holds no row, and there are no models.

    Raises:
        InputError: there are too few slides of a label, or the labels of a fold's rest lack a class.
    """
    params = load_params(artifacts.PARAMS)
    environment = read_environment()
    environment.use_cpus()
    patches = read_patches(artifacts.PATCHES_CSV)
    slides = slides_to_fold(read_whole_slides(artifacts.WHOLE_SLIDES_CSV), patches)
    if params.heatmap_section is None:
        slides = slides.iloc[:0]
    folds = slides.assign(fold=_folds(slides, params.crossfit.num_folds, seed))[list(COLUMNS)]
    build = partial(
        LabeledTask,
        patches,
        patch_px=params.patch_px,
        workers=environment.workers,
        device=environment.device,
    )
    encoder = artifacts.model_folder(method) / artifacts.ENCODER
    used = [split_rows(patches, split) for split in ("train", "validation")]
    tables = [artifacts.PATCHES_CSV, artifacts.WHOLE_SLIDES_CSV]
    provenance = made_from(params, [*tables, encoder], used)
    metrics = {}
    with whole_folder(artifacts.folds_folder(method, seed)) as draft:
        folds.to_csv(draft / artifacts.FOLDS_CSV, index=False)
        for fold, held_out in folds.groupby("fold")["slide_id"]:
            metrics[f"fold_{fold}"] = _train_fold(
                draft, method, seed, fold, set(held_out), build(), params, provenance
            )
        write_metrics(draft, metrics, provenance)
    for path in _checkpoints(method, seed, params.crossfit.num_folds):
        path.unlink(missing_ok=True)
    _LOG.info("%s written: %d slides in folds", artifacts.folds_folder(method, seed), len(folds))


def _folds(slides: pd.DataFrame, num_folds: int, seed: int) -> pd.Series:
    if slides.empty:
        return pd.Series(dtype=int)
    return assign_folds(slides, num_folds, generator(seed, "folds"))


def _train_fold(
    folder: Path,
    method: str,
    seed: int,
    fold: Any,
    held_out: set[str],
    task: LabeledTask,
    params: Params,
    provenance: Mapping[str, Any],
) -> dict[str, float]:
    """Fine-tuned model and student without the slides held out; what validation says of them."""
    known = task.patches[~task.patches["slide_id"].isin(held_out)].reset_index(drop=True)
    try:
        labeled = labeled_rows(known, params.alpha)
    except InputError as error:
        raise InputError(
            f"fold {fold}, without {', '.join(sorted(held_out))}: {error}; or map no slides (whole_slides: false)"
        ) from None
    unlabeled = split_rows(known, "train")
    validation = split_rows(task.patches, "validation")
    encoder = artifacts.model_folder(method) / artifacts.ENCODER
    decided_by = [method, seed, fold, sorted(held_out), selected(params, PARAM_NAMES)]
    code = stage_sha256("crossfit", METHODS[params.consistency.method].__module__)
    key = fingerprint(
        decided_by,
        [artifacts.PATCHES_CSV, encoder],
        code,
    )
    finetuned_point, student_point = _points(method, seed, fold)
    training = partial(Training.of, predict_batch_size=params.evaluate.batch_size)
    model, description, finetuned = finetune_encoder(
        encoder,
        task,
        labeled,
        validation,
        training(
            **dataclasses.asdict(params.finetune_section), seed=derive_seed(seed, "fold", fold, "finetune")
        ),
        picture=_no_picture,
        records=Records(resume=finetuned_point, fingerprint=key),
    )
    described = {
        **describe_task_model(description, classes=task.classes, patch_px=params.patch_px, mpp=task.mpp),
        "stage": "crossfit",
        "dataset": params.dataset,
        "alpha": params.alpha,
        "seed": seed,
        "fold": fold,
        "not_seen": sorted(held_out),
        "provenance": without_ids(provenance),
    }
    save_model(folder / f"finetuned-{fold}.safetensors", model.state_dict(), described)
    student = train_student(
        METHODS[params.consistency.method](
            model=model,
            objective=task.objective,
            patch_px=params.patch_px,
            n_aug=params.n_aug,
            settings=params.student_settings,
        ),
        task,
        labeled,
        unlabeled,
        validation,
        training(
            **dataclasses.asdict(params.consistency_section),
            seed=derive_seed(seed, "fold", fold, "consistency"),
        ),
        mu=params.mu,
        picture=_no_picture,
        records=Records(resume=student_point, fingerprint=key),
    )
    save_model(folder / f"student-{fold}.safetensors", model.state_dict(), described)
    quality = task.objective.MEASURES[1]
    _LOG.info(
        "fold %d: without %d slides, %d labels: validation %s %.3f, student %.3f",
        *(
            fold,
            len(held_out),
            len(labeled),
            quality,
            finetuned.validation[quality],
            student.validation[quality],
        ),
    )
    return {
        f"{name}_{quality}": round(result.validation[quality], 6)
        for name, result in (("finetuned", finetuned), ("student", student))
    }


def _no_picture(*_: object) -> np.ndarray:
    """Nobody looks at the course of a fold."""
    return np.full((1, 1, 3), 255, np.uint8)


def _points(method: str, seed: int, fold: int) -> tuple[Path, Path]:
    name = f"crossfit-{method}-{seed}-{fold}"
    return artifacts.checkpoint_path(f"{name}-finetuned"), artifacts.checkpoint_path(f"{name}-student")


def _checkpoints(method: str, seed: int, num_folds: int) -> list[Path]:
    return [path for fold in range(num_folds) for path in _points(method, seed, fold)]
