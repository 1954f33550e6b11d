"""Stage `consistency --method METHOD --seed SEED`: a fine-tuned model and unlabeled patches -> a student."""

from __future__ import annotations

import dataclasses
import logging
from functools import partial

from matplotlib import image

from histo_monai import artifacts
from histo_monai.engines.choice import choose
from histo_monai.engines.fit import Records
from histo_monai.engines.labeled import LabeledTask
from histo_monai.engines.resume import fingerprint
from histo_monai.engines.semisupervised import train_student
from histo_monai.engines.supervised import Training
from histo_monai.environment import read_environment
from histo_monai.imports import stage_sha256
from histo_monai.networks.checkpoint import save_model
from histo_monai.networks.task_model import from_task_model
from histo_monai.params import load_params
from histo_monai.params.selection import selected
from histo_monai.pictures.predictions import weak_and_strong
from histo_monai.provenance import made_from, without_ids, write_metrics
from histo_monai.randomness import derive_seed
from histo_monai.semisupervised import METHODS
from histo_monai.storage import whole_folder, write_json
from histo_monai.tables.patches import read_patches
from histo_monai.tables.splits import labeled_rows
from histo_monai.tables.tasks import split_rows

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "dataset",
    "alpha",
    "mu",
    "n_aug",
    "patch_px",
    "consistency.method",
    "consistency.methods.${consistency.method}",
    "consistency.${dataset}",
    "evaluate",
)
"""What decides the result, as in dvc.yaml."""


def run(method: str, seed: int) -> None:
    """Write data/models/<method>-<seed>/student: model, choice, metrics, their summary, curves.csv, pairs.png."""
    params = load_params(artifacts.PARAMS)
    section = params.consistency_section
    environment = read_environment()
    environment.use_cpus()
    task = LabeledTask(
        read_patches(artifacts.PATCHES_CSV),
        patch_px=params.patch_px,
        workers=environment.workers,
        device=environment.device,
    )
    labeled, unlabeled = labeled_rows(task.patches, params.alpha), split_rows(task.patches, "train")
    validation = split_rows(task.patches, "validation")
    path = artifacts.finetuned_folder(method, seed) / artifacts.MODEL
    provenance = made_from(params, [artifacts.PATCHES_CSV, path], [unlabeled, validation])
    model, description = from_task_model(path)
    task.check_fits(description, path)
    stage = f"consistency-{method}-{seed}"
    settings = dataclasses.asdict(params.student_settings)
    code = stage_sha256("consistency", METHODS[params.consistency.method].__module__)
    decided_by = [method, seed, selected(params, PARAM_NAMES)]
    result = train_student(
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
        Training.of(
            **dataclasses.asdict(section),
            predict_batch_size=params.evaluate.batch_size,
            seed=derive_seed(seed, "consistency"),
        ),
        mu=params.mu,
        picture=partial(weak_and_strong, classes=task.classes),
        records=Records(
            artifacts.tensorboard_folder(stage),
            artifacts.checkpoint_path(stage),
            fingerprint(
                decided_by,
                [artifacts.PATCHES_CSV, path],
                code,
            ),
        ),
    )
    choice = choose(
        from_task_model(path)[0],
        model,
        task,
        validation,
        task.in_order(validation, params.evaluate.batch_size),
        seed=params.evaluate.seed,
    )
    metrics = {
        **{f"validation_{name}": round(value, 6) for name, value in result.validation.items()},
        "num_labeled": len(labeled),
        "num_unlabeled": len(unlabeled),
        "num_validation": len(validation),
        "student_chosen": int(choice.chosen == "student"),
    }
    described = {
        **description,
        "stage": "consistency",
        "mu": params.mu,
        "n_aug": params.n_aug,
        "metrics": metrics,
        "params": dataclasses.asdict(section),
        "semisupervised": {"method": params.consistency.method, **settings},
        "provenance": without_ids(provenance),
    }
    with whole_folder(artifacts.student_folder(method, seed)) as folder:
        save_model(folder / artifacts.MODEL, model.state_dict(), described)
        write_json(folder / artifacts.CHOICE, choice.as_dict())
        artifacts.write_curves(folder / artifacts.CURVES, result.curves)
        image.imsave(folder / artifacts.PAIRS, result.picture)
        write_metrics(folder, metrics, provenance, summary=metrics)
    artifacts.checkpoint_path(stage).unlink(missing_ok=True)
    told = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    _LOG.info("%s written: %s", artifacts.student_folder(method, seed), told)
