"""Stage `consistency`: model and unlabeled patches -> a student."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial

import ignite.distributed as idist
import torch
from matplotlib import image

from histo_monai import artifacts
from histo_monai.artifacts import Run
from histo_monai.assembly import Assembly, validation_metrics
from histo_monai.engines.events import write_end
from histo_monai.engines.fit import Records
from histo_monai.engines.ranks import run_in_ranks
from histo_monai.engines.resume import fingerprint
from histo_monai.engines.students.training import StudentResult
from histo_monai.environment import read_environment
from histo_monai.evaluation.choice import choose
from histo_monai.idle import NO_PATCHES, has_patches, leave_empty
from histo_monai.networks.checkpoint import save_model
from histo_monai.params import Params, load_params
from histo_monai.params.selection import selected
from histo_monai.pictures.predictions import weak_and_strong
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed
from histo_monai.roles import FINETUNED, STUDENT
from histo_monai.storage import whole_folder, write_json
from histo_monai.teaching import student_code, teach_student

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "mu",
    "n_aug",
    "patch_px",
    "consistency.recipe",
    "consistency.strong",
    "consistency.methods.${item.student}",
    "consistency.${dataset}",
    "evaluate",
)
"""What decides the result, as in dvc.yaml."""
_FILES = (artifacts.MODEL, artifacts.CHOICE, artifacts.CURVES, artifacts.PAIRS)


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/models/<run>/student: model, choice, metrics, summary, curves.csv, pairs.png.

    Empty where no patch is labeled.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(artifacts.PARAMS)
    if not has_patches():
        leave_empty(of_run.student_folder, params, NO_PATCHES, files=_FILES)
        return
    run_in_ranks(_train, of_run, params, **read_environment().in_ranks)


def _train(device: torch.device, of_run: Run, params: Params) -> None:
    """In each process; the first chooses and writes."""
    student = of_run.student
    assembly = Assembly.of(params, device)
    rows = assembly.rows(of_run.derived_seed, with_unlabeled=True)
    start = of_run.models[FINETUNED]
    tables = [artifacts.PATCHES_CSV, artifacts.UNLABELED_CSV]
    provenance = made_from(params, [*tables, start], [rows.unlabeled, rows.validation])
    model, description = assembly.load(start)
    stage = f"consistency-{of_run.name}"
    events = artifacts.tensorboard_folder("consistency", of_run.name)
    decided_by = [*of_run, selected(params, PARAM_NAMES, of_run.method, student)]
    result = teach_student(
        assembly,
        student,
        model,
        rows,
        seed=derive_seed(of_run.derived_seed, "consistency"),
        picture=partial(weak_and_strong, classes=assembly.task.classes),
        records=Records(
            events,
            artifacts.checkpoint_path(stage),
            fingerprint(decided_by, [*tables, start], student_code("consistency", student)),
        ),
    )
    if idist.get_rank() > 0:
        return
    choice = choose(
        assembly.load(start)[0],
        model,
        assembly.task,
        rows.validation,
        assembly.in_order(rows.validation),
        seed=params.evaluate.seed,
    )
    metrics = {
        **validation_metrics(result.validation),
        **{f"num_{name}": len(getattr(rows, name)) for name in ("labeled", "unlabeled", "validation")},
        "start_share": result.start_share,
        "student_chosen": int(choice.chosen == STUDENT),
    }
    described = {
        **description,
        "stage": "consistency",
        "mu": params.mu,
        "n_aug": params.n_aug,
        "metrics": metrics,
        "params": dataclasses.asdict(params.student_section(student, assembly.task.kind)),
        "semisupervised": {"method": student, **dataclasses.asdict(params.consistency.methods[student])},
        "provenance": without_ids(provenance),
    }
    with whole_folder(of_run.student_folder) as folder:
        save_model(folder / artifacts.MODEL, model.state_dict(), described)
        write_json(folder / artifacts.CHOICE, choice.as_dict() | {"start_share": result.start_share})
        artifacts.write_curves(folder / artifacts.CURVES, result.curves, _columns(result))
        image.imsave(folder / artifacts.PAIRS, result.picture)
        write_metrics(folder, metrics, provenance, summary=metrics)
    write_end(events, assembly.hyperparameters(of_run), metrics)
    artifacts.checkpoint_path(stage).unlink(missing_ok=True)
    _LOG.info("%s written: %s", of_run.student_folder, ", ".join(f"{k} {v:g}" for k, v in metrics.items()))


def _columns(result: StudentResult) -> list[str] | None:
    """Those of curves without an epoch; others bring their own."""
    return None if result.curves else ["epoch", "lr", *(f"validation_{name}" for name in result.validation)]
