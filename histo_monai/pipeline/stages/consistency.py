"""Stage `consistency`: fine-tuned model and unlabeled patches -> student."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib import image

from histo_monai.data.tables.label_folds import LabelFolds, read_folds
from histo_monai.data.tables.predictions import read_predictions
from histo_monai.evaluation.choice import Choice, choose
from histo_monai.evaluation.conformal import calibration
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.models.checkpoint import save_model
from histo_monai.models.sharing.folds import WholeModel
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import (
    Assembly,
    TrainingRows,
    label_counts,
    run_training,
    validation_metrics,
    write_fold_models,
)
from histo_monai.pipeline.frozen import HeadTraining
from histo_monai.pipeline.params import Params, load_params, needs_fold_models
from histo_monai.pipeline.params.selection import selected
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import made_from, without_ids, write_metrics
from histo_monai.pipeline.references import references
from histo_monai.pipeline.skip import NO_PATCHES, has_patches, leave_empty
from histo_monai.semisupervised import METHODS
from histo_monai.training.device import tensors_on
from histo_monai.training.events import write_end
from histo_monai.training.pictures.predictions import weak_and_strong
from histo_monai.training.resume import fingerprint
from histo_monai.utils.process.garbage import lasting
from histo_monai.utils.process.precision import computes_in_bfloat16
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.ranks import this_rank
from histo_monai.utils.roles import FINETUNED, STUDENT
from histo_monai.utils.storage import whole_folder, write_json

if TYPE_CHECKING:  # Importing what trains networks takes seconds, which heads on stored features save.
    from histo_monai.pipeline.teaching import Teaching
    from histo_monai.semisupervised.teaching.neighbors import NeighborWeights

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "mu",
    "n_aug",
    "patch_px",
    "cross_validation",
    "slide_level",
    "finetune.mode",
    "finetune.head",
    "consistency.recipe",
    "consistency.strong",
    "consistency.methods.${item.student}",
    "consistency.paper",
    "evaluate",
    "features.depth",
    "features.field",
)
"""Params of the stage in dvc.yaml."""
_FILES = (paths.MODEL, paths.CHOICE, paths.CURVES, paths.PAIRS)


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/models/<run>/student: model, folds/, choice, metrics, summary, curves.csv, pairs.png.

    Without separate validation patches, cross-validation in the folds of the fine-tuning selects; each student starts
    from the model of its fold. The outputs are empty if no patch is labeled. With `finetune.mode: head` the student is
    a head on data/features, too.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(paths.PARAMS)
    if not has_patches():
        leave_empty(of_run.student_folder, params, NO_PATCHES, files=_FILES, folders=(paths.FOLDS,))
        return
    run_training(_train, of_run, params)


def _start_path(run: Run, fold: int | None) -> Path:
    return run.models[FINETUNED] if fold is None else run.folds[FINETUNED] / paths.fold_model(fold)


def _train(device: torch.device, of_run: Run, params: Params) -> None:
    """Train in each process; process 0 selects and writes."""
    assembly = Assembly.of(params, device)
    rows = assembly.rows(of_run.derived_seed, with_unlabeled=True)
    folds_csv = of_run.folds[FINETUNED] / paths.FOLDS_CSV
    folds = read_folds(folds_csv)
    is_counted = rows.validation.empty
    is_mapped = of_run.student in params.slide_level.semisupervised_methods
    if not is_counted and not (is_mapped and needs_fold_models(params, of_run.method)):
        folds = LabelFolds({})
    starts = [_start_path(of_run, fold) for fold in (None, *range(folds.num))]
    read = [paths.PATCHES_CSV, paths.UNLABELED_CSV, folds_csv, *starts]
    read += METHODS.own_files(of_run.student)
    training: Teaching | HeadTraining
    if params.finetune.mode == "head":
        training = HeadTraining.of_run(assembly, of_run, rows, folds, of_run.student)
        training.stored.check_model(starts[0])
        read += training.read[1:]
    else:
        training = _teaching(assembly, of_run, rows, folds, read)
    folds = training.folds
    provenance = made_from(params, read, [rows.unlabeled, rows.validation])
    if not isinstance(training, HeadTraining):
        training = training.weighed()
    validated, described = training.cross_validate()
    model, description, result = training.train(candidate=training.candidate(validated))
    if this_rank() > 0:
        return
    course = validated if validated and is_counted else result
    choice = _choose(training, of_run, model, validated)
    metrics = {
        **validation_metrics(course.validation),
        **label_counts(rows, training.diagnoses if isinstance(training, HeadTraining) else None),
        "num_unlabeled": len(rows.unlabeled),
        "num_folds": len(described),
        "interpolation_weight": float(at.start_weight if (at := result.interpolation) else result.is_start),
        "student_chosen": int(choice.chosen == STUDENT),
    }
    about = _about(assembly, of_run, metrics, provenance)
    with whole_folder(of_run.student_folder) as folder:
        reference = references(training if isinstance(training, HeadTraining) else assembly)
        state = {**model.state_dict(), **reference(model, rows.labeled)}
        names = assembly.task.classes
        whole = description | about | calibration(rows.labeled, validated, names)
        save_model(folder / paths.MODEL, state, whole)
        of_folds = [{**of_fold, **about} for of_fold in described]
        write_fold_models(
            folder / paths.FOLDS, STUDENT, folds, rows.labeled, validated, of_folds, model, names, reference
        )
        write_json(
            folder / paths.CHOICE,
            choice.as_dict() | {"interpolation_weight": metrics["interpolation_weight"]},
        )
        paths.write_curves(folder / paths.CURVES, course.curves, _columns(course))
        image.imsave(folder / paths.PAIRS, result.picture)
        write_metrics(folder, metrics, provenance, summary=metrics)
    write_end(_events(of_run), assembly.hyperparameters(of_run), metrics)
    for fold in (None, *range(folds.num)):
        _checkpoint(of_run, fold).unlink(missing_ok=True)
    in_words = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    _LOG.info("consistency: output=%s %s", of_run.student_folder, in_words)


def _teaching(
    assembly: Assembly, of_run: Run, rows: TrainingRows, folds: LabelFolds, read: list[Path]
) -> Teaching:
    """All trainings of the run; `read`: input files for the provenance."""
    with lasting():
        from histo_monai.pipeline.teaching import Teaching, student_code
        from histo_monai.training.fit import Records

    values = [*of_run, selected(assembly.params, PARAM_NAMES, of_run.method, of_run.student)]
    values += [computes_in_bfloat16(assembly.task.device)]

    def records(fold: int | None, candidate: float | None, weighing: NeighborWeights | None) -> Records:
        key = [*values, fold, candidate, weighing]
        code = student_code("consistency", of_run.student)
        return Records(_events(of_run, fold), _checkpoint(of_run, fold), fingerprint(key, read, code))

    is_frozen = assembly.params.finetune.mode != "all"
    whole = (
        WholeModel.read(_start_path(of_run, None), partial(tensors_on, device=assembly.task.device))
        if is_frozen
        else None
    )
    return Teaching(
        assembly,
        of_run.student,
        lambda fold: assembly.load(_start_path(of_run, fold), whole),
        rows,
        folds,
        derive_seed(of_run.derived_seed, "consistency"),
        partial(weak_and_strong, classes=assembly.task.classes),
        records,
    )


def _about(
    assembly: Assembly, of_run: Run, metrics: Mapping[str, float], provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """JSON description of a student, beyond the fine-tuned model's."""
    params = assembly.params
    settings = dataclasses.asdict(params.consistency.methods[of_run.student])
    return {
        "stage": "consistency",
        "mu": params.mu,
        "n_aug": params.n_aug,
        "metrics": metrics,
        "params": dataclasses.asdict(assembly.student_section(of_run.student)),
        "semisupervised": {"method": of_run.student, **settings},
        "provenance": without_ids(provenance),
    }


def _choose(
    training: Teaching | HeadTraining,
    of_run: Run,
    model: TaskModel,
    validated: CrossValidated[TaskModel, Any] | None,
) -> Choice:
    """Selected model, student or fine-tuned, by separate validation patches or cross-validation."""
    assembly, rows = training.assembly, training.rows
    task, seed = assembly.task, assembly.params.evaluate.seed
    if len(rows.validation):
        load = None if isinstance(training, HeadTraining) else training.start
        start, _ = load(None) if load else assembly.load(of_run.models[FINETUNED])
        before, after = (training.predictions(one, rows.validation) for one in (start, model))
        return choose(before, after, task, rows.validation, seed=seed)
    if validated is None:
        return Choice(FINETUNED, "", None, "the labels cannot be cross-validated")
    table = read_predictions(of_run.folds[FINETUNED] / paths.PREDICTIONS)
    finetuned = table.predictions[FINETUNED].reshape(len(table.rows), -1).astype(np.float32)
    return choose(finetuned, validated.predictions, task, rows.labeled, seed=seed)


def _events(of_run: Run, fold: int | None = None) -> Path:
    return paths.tensorboard_folder("consistency", paths.training_name(of_run, fold))


def _checkpoint(of_run: Run, fold: int | None = None) -> Path:
    return paths.checkpoint_path(f"consistency-{paths.training_name(of_run, fold)}")


def _columns(course: Any) -> list[str] | None:
    """Column names of curves without an epoch; None otherwise."""
    return None if course.curves else ["epoch", "lr", *(f"validation_{name}" for name in course.validation)]
