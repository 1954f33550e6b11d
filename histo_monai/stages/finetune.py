"""Stage `finetune --method METHOD --seed SEED`: an encoder and a fraction of the labels -> a model of the task."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial

from matplotlib import image

from histo_monai import artifacts
from histo_monai.engines.fit import Records
from histo_monai.engines.labeled import LabeledTask
from histo_monai.engines.resume import fingerprint
from histo_monai.engines.supervised import Training, finetune_encoder
from histo_monai.environment import read_environment
from histo_monai.imports import stage_sha256
from histo_monai.networks.checkpoint import save_model
from histo_monai.networks.task_model import describe_task_model
from histo_monai.params import load_params
from histo_monai.params.selection import selected
from histo_monai.pictures.predictions import answers
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed
from histo_monai.storage import whole_folder
from histo_monai.tables.patches import read_patches
from histo_monai.tables.splits import labeled_rows
from histo_monai.tables.tasks import split_rows

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "patch_px",
    "finetune.${dataset}",
    "evaluate.batch_size",
)
"""What decides the result, as in dvc.yaml."""


def run(method: str, seed: int) -> None:
    """Write data/models/<method>-<seed>/finetuned: model, metrics.json, summary.json, curves.csv, answers.png."""
    params = load_params(artifacts.PARAMS)
    section = params.finetune_section
    environment = read_environment()
    environment.use_cpus()
    task = LabeledTask(
        read_patches(artifacts.PATCHES_CSV),
        patch_px=params.patch_px,
        workers=environment.workers,
        device=environment.device,
    )
    labeled, validation = labeled_rows(task.patches, params.alpha), split_rows(task.patches, "validation")
    encoder = artifacts.model_folder(method) / artifacts.ENCODER
    provenance = made_from(params, [artifacts.PATCHES_CSV, encoder], [labeled, validation])
    stage = f"finetune-{method}-{seed}"
    decided_by = [method, seed, selected(params, PARAM_NAMES)]
    model, description, result = finetune_encoder(
        encoder,
        task,
        labeled,
        validation,
        Training.of(
            **dataclasses.asdict(section),
            predict_batch_size=params.evaluate.batch_size,
            seed=derive_seed(seed, "finetune"),
        ),
        picture=partial(answers, classes=task.classes),
        records=Records(
            artifacts.tensorboard_folder(stage),
            artifacts.checkpoint_path(stage),
            fingerprint(decided_by, [artifacts.PATCHES_CSV, encoder], stage_sha256("finetune")),
        ),
    )
    metrics = {
        **{f"validation_{name}": round(value, 6) for name, value in result.validation.items()},
        "best_epoch": result.best_epoch,
        "num_labeled": len(labeled),
        "num_validation": len(validation),
    }
    described = {
        **describe_task_model(description, classes=task.classes, patch_px=params.patch_px, mpp=task.mpp),
        "stage": "finetune",
        "dataset": params.dataset,
        "alpha": params.alpha,
        "seed": seed,
        "metrics": metrics,
        "params": dataclasses.asdict(section),
        "provenance": without_ids(provenance),
    }
    with whole_folder(artifacts.finetuned_folder(method, seed)) as folder:
        save_model(folder / artifacts.MODEL, model.state_dict(), described)
        artifacts.write_curves(folder / artifacts.CURVES, result.curves)
        image.imsave(folder / artifacts.ANSWERS, result.picture)
        write_metrics(folder, metrics, provenance, summary=metrics)
    artifacts.checkpoint_path(stage).unlink(missing_ok=True)
    told = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    _LOG.info("%s written: %s", artifacts.finetuned_folder(method, seed), told)
