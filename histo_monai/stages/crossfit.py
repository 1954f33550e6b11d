"""Stage `crossfit`: models without a fold of the training slides, each.

The slides that a slide-level classifier learns from are those that the patch model has learned from. Its own maps of
them are better than any it will make of a new slide, and a classifier taught by them expects too much. So each training
slide is mapped by a model that was fine-tuned, and whose student was taught, without any patch of its fold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from histo_monai import artifacts
from histo_monai.artifacts import Run
from histo_monai.environment import read_environment
from histo_monai.errors import InputError
from histo_monai.idle import NO_PATCHES, has_patches, leave_empty
from histo_monai.params import Params, load_params
from histo_monai.params.selection import selected
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed, generator
from histo_monai.roles import FINETUNED, STUDENT
from histo_monai.storage import whole_folder
from histo_monai.tables.columns import read_whole_slides
from histo_monai.tables.folds import COLUMNS, assign_folds, slides_to_fold
from histo_monai.tables.patches import read_patches
from histo_monai.tables.tasks import split_rows

if TYPE_CHECKING:  # takes seconds, which a run without folds spares
    import torch

    from histo_monai.assembly import Assembly, TrainingRows

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "whole_slides",
    "alpha",
    "mu",
    "n_aug",
    "patch_px",
    "crossfit",
    "finetune.recipe",
    "finetune.${dataset}",
    "consistency.recipe",
    "consistency.strong",
    "consistency.methods.${item.student}",
    "consistency.${dataset}",
    "evaluate.batch_size",
)
"""What decides the result, as in dvc.yaml."""


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/models/<run>/folds: folds.csv, finetuned-<fold>, student-<fold>, metrics.json.

    Where the slides bear no labels there is nothing to diagnose: folds.csv holds no row, and there are no models. Empty
    where no patch is labeled.

    Raises:
        InputError: there are too few slides of a label, or the labels of a fold's rest lack a class.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(artifacts.PARAMS)
    if not has_patches():
        leave_empty(of_run.folds, params, NO_PATCHES, files=(artifacts.FOLDS_CSV,))
        return
    patches = read_patches(artifacts.PATCHES_CSV)
    slides = slides_to_fold(read_whole_slides(artifacts.WHOLE_SLIDES_CSV), patches, params.positive)
    if not params.is_mapped_by(method, encoder, student):
        slides = slides.iloc[:0]
    folds = slides.assign(fold=_folds(slides, params.crossfit.num_folds, of_run.derived_seed))[list(COLUMNS)]
    used = [split_rows(patches, split) for split in ("train", "validation")]
    tables = [artifacts.PATCHES_CSV, artifacts.UNLABELED_CSV, artifacts.WHOLE_SLIDES_CSV]
    provenance = made_from(params, [*tables, of_run.encoder_path], used)
    if len(folds):
        from histo_monai.engines.ranks import run_in_ranks

        run_in_ranks(_train, of_run, params, folds, provenance, **read_environment().in_ranks)
    else:
        _write(of_run, folds, provenance, lambda folder: {})


def _train(
    device: torch.device, of_run: Run, params: Params, folds: pd.DataFrame, provenance: Mapping[str, Any]
) -> None:
    """In each process; the first writes."""
    import ignite.distributed as idist

    from histo_monai.assembly import Assembly

    assembly = Assembly.of(params, device)
    work = partial(
        _train_folds, of_run=of_run, folds=folds, assembly=assembly, provenance=without_ids(provenance)
    )
    if idist.get_rank() > 0:
        work(None)
        return
    _write(of_run, folds, provenance, work)
    for fold in range(params.crossfit.num_folds):
        for name in (FINETUNED, STUDENT):
            _checkpoint(of_run, fold, name).unlink(missing_ok=True)


def _write(
    of_run: Run,
    folds: pd.DataFrame,
    provenance: Mapping[str, Any],
    train: Callable[[Path], dict[str, Any]],
) -> None:
    """The folder of the folds: whole, or as it was."""
    with whole_folder(of_run.folds) as draft:
        folds.to_csv(draft / artifacts.FOLDS_CSV, index=False)
        write_metrics(draft, train(draft), provenance)
    _LOG.info("%s written: %d slides in folds", of_run.folds, len(folds))


def _folds(slides: pd.DataFrame, num_folds: int, seed: int) -> pd.Series:
    if slides.empty:
        return pd.Series(dtype=int)
    return assign_folds(slides, num_folds, generator(seed, "folds"))


def _train_folds(
    folder: Path | None, of_run: Run, folds: pd.DataFrame, assembly: Assembly, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """Models of every fold, in a folder, or None for processes that do not write; measures on validation."""
    return {
        f"fold_{fold}": _train_fold(folder, of_run, fold, set(held_out), assembly, provenance)
        for fold, held_out in folds.groupby("fold")["slide_id"]
    }


def _train_fold(
    folder: Path | None,
    run: Run,
    fold: Any,
    held_out: set[str],
    assembly: Assembly,
    provenance: Mapping[str, Any],
) -> dict[str, float]:
    """Fine-tuned model and student without the slides held out; their measures on validation."""
    from histo_monai.engines.fit import Records
    from histo_monai.engines.resume import fingerprint
    from histo_monai.finetuning import finetune_encoder
    from histo_monai.networks.checkpoint import save_model
    from histo_monai.teaching import student_code, teach_student

    rows = _rows(assembly, run, fold, held_out)
    selection = selected(assembly.params, PARAM_NAMES, run.method, run.student)
    key = fingerprint(
        [*run, fold, sorted(held_out), selection],
        [artifacts.PATCHES_CSV, artifacts.UNLABELED_CSV, run.encoder_path],
        student_code("crossfit", run.student),
    )

    model, description, finetuned = finetune_encoder(
        assembly,
        run.encoder_path,
        rows,
        seed=derive_seed(run.derived_seed, "fold", fold, "finetune"),
        picture=_no_picture,
        records=Records(resume=_checkpoint(run, fold, FINETUNED), fingerprint=key),
    )
    of_fold = {"encoder_seed": run.encoder, "seed": run.seed, "fold": fold, "not_seen": sorted(held_out)}
    described = {**description, "stage": "crossfit", **of_fold, "provenance": provenance}
    if folder is not None:
        save_model(folder / artifacts.fold_model(FINETUNED, fold), model.state_dict(), described)
    taught = teach_student(
        assembly,
        run.student,
        model,
        rows,
        seed=derive_seed(run.derived_seed, "fold", fold, "consistency"),
        picture=_no_picture,
        records=Records(resume=_checkpoint(run, fold, STUDENT), fingerprint=key),
    )
    if folder is not None:
        save_model(folder / artifacts.fold_model(STUDENT, fold), model.state_dict(), described)
    if folder is None:
        return {}
    quality = assembly.task.objective.MEASURES[1]
    measures = {FINETUNED: finetuned.validation[quality], STUDENT: taught.validation[quality]}
    _LOG.info(
        "fold %d: without %d slides, %d labels: validation %s %s",
        *(fold, len(held_out), len(rows.labeled), quality),
        ", ".join(f"{name} {value:.3f}" for name, value in measures.items()),
    )
    return {f"{name}_{quality}": round(value, 6) for name, value in measures.items()}


def _rows(assembly: Assembly, run: Run, fold: Any, held_out: set[str]) -> TrainingRows:
    """What is left to train on without the slides held out."""
    try:
        return assembly.rows(run.derived_seed, with_unlabeled=True, without_slides=held_out)
    except InputError as error:
        raise InputError(
            f"fold {fold}, without {', '.join(sorted(held_out))}: {error}; or map no slides (whole_slides.methods: [])"
        ) from None


def _no_picture(*_: object) -> np.ndarray:
    """Nobody looks at the course of a fold."""
    return np.full((1, 1, 3), 255, np.uint8)


def _checkpoint(run: Run, fold: int, model: str) -> Path:
    return artifacts.checkpoint_path(f"crossfit-{run.name}-{fold}-{model}")
