"""Stage `finetune`: an encoder and a fraction of the labels -> a model of the task."""

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
from histo_monai.environment import read_environment
from histo_monai.finetuning import finetune_encoder
from histo_monai.idle import NO_PATCHES, has_patches, leave_empty
from histo_monai.imports import stage_sha256
from histo_monai.networks.checkpoint import save_model
from histo_monai.params import Params, load_params
from histo_monai.params.selection import selected
from histo_monai.pictures.predictions import answers
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed
from histo_monai.storage import whole_folder

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "patch_px",
    "finetune.recipe",
    "finetune.${dataset}",
    "evaluate.batch_size",
)
"""What decides the result, as in dvc.yaml."""


def run(method: str, encoder: int, seed: int) -> None:
    """Write data/models/<run>/finetuned: model, metrics.json, summary.json, curves.csv, answers.png.

    Empty where no patch is labeled.
    """
    of_run = Run(method, encoder, seed)
    params = load_params(artifacts.PARAMS)
    if not has_patches():
        files = (artifacts.MODEL, artifacts.CURVES, artifacts.ANSWERS)
        leave_empty(of_run.finetuned, params, NO_PATCHES, files=files)
        return
    run_in_ranks(_train, of_run, params, **read_environment().in_ranks)


def _train(device: torch.device, of_run: Run, params: Params) -> None:
    """In each process; the first writes."""
    assembly = Assembly.of(params, device)
    rows = assembly.rows(of_run.derived_seed, with_unlabeled=False)
    start = of_run.encoder_path
    provenance = made_from(params, [artifacts.PATCHES_CSV, start], [rows.labeled, rows.validation])
    stage = f"finetune-{of_run.name}"
    events = artifacts.tensorboard_folder("finetune", of_run.name)
    decided_by = [*of_run, selected(params, PARAM_NAMES)]
    model, description, result = finetune_encoder(
        assembly,
        start,
        rows,
        seed=derive_seed(of_run.derived_seed, "finetune"),
        picture=partial(answers, classes=assembly.task.classes),
        records=Records(
            events,
            artifacts.checkpoint_path(stage),
            fingerprint(decided_by, [artifacts.PATCHES_CSV, start], stage_sha256("finetune")),
        ),
    )
    if idist.get_rank() > 0:
        return
    metrics = {
        **validation_metrics(result.validation),
        "best_epoch": result.best_epoch,
        "num_labeled": len(rows.labeled),
        "num_validation": len(rows.validation),
    }
    described = {
        **description,
        "stage": "finetune",
        "encoder_seed": of_run.encoder,
        "seed": of_run.seed,
        "metrics": metrics,
        "params": dataclasses.asdict(params.finetune_section(assembly.task.kind)),
        "provenance": without_ids(provenance),
    }
    with whole_folder(of_run.finetuned) as folder:
        save_model(folder / artifacts.MODEL, model.state_dict(), described)
        artifacts.write_curves(folder / artifacts.CURVES, result.curves)
        image.imsave(folder / artifacts.ANSWERS, result.picture)
        write_metrics(folder, metrics, provenance, summary=metrics)
    write_end(events, assembly.hyperparameters(of_run), metrics)
    artifacts.checkpoint_path(stage).unlink(missing_ok=True)
    _LOG.info(
        "%s written: %s", of_run.finetuned, ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    )
