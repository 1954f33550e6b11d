"""Stage `pretrain`: unlabeled slides -> encoder, curves, metrics."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib import image

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import ConcentricPatches
from histo_monai.data.loaders.resident import PatchLoader, repeated_batches
from histo_monai.data.tables.columns import read_centers, read_surveyed_slides
from histo_monai.models.checkpoint import save_model
from histo_monai.models.start import EncoderStart
from histo_monai.pipeline import paths
from histo_monai.pipeline.environment import Environment, read_environment
from histo_monai.pipeline.imports import stage_sha256
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.params.selection import selected
from histo_monai.pipeline.provenance import made_from, without_ids, write_metrics
from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.protocol import Pretext
from histo_monai.pretraining.settings import TrainedSettings
from histo_monai.pretraining.trainer import PretrainResult, pretrain
from histo_monai.training.events import Hyperparameters, write_end
from histo_monai.training.fit import Records
from histo_monai.training.ranks import run_in_ranks
from histo_monai.training.resume import fingerprint
from histo_monai.utils.process.precision import computes_in_bfloat16
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.ranks import num_ranks, this_rank
from histo_monai.utils.settings.reader import as_tree
from histo_monai.utils.storage import whole_folder

_LOG = logging.getLogger(__name__)

PARAM_NAMES = (
    "source",
    "pretraining_dataset",
    "corpora.${pretraining_dataset}",
    "patch_px",
    "encoder",
    "pretrain.augmentation",
    "pretrain.freeze_batchnorm",
    "pretrain.${item.method}",
)
"""Params of the stage in dvc.yaml."""


def run(method: str, encoder: int) -> None:
    """Write data/models/<method>-<encoder>: encoder and JSON, metrics, summary, curves.csv, answers.png."""
    params = load_params(paths.PARAMS)
    environment = read_environment()
    run_in_ranks(_train, method, encoder, params, environment, **environment.in_ranks)


def _train(device: torch.device, method: str, seed: int, params: Params, environment: Environment) -> None:
    environment.use_cpus(num_ranks())
    torch.manual_seed(derive_seed(seed, "initialisation"))
    pretext = build_pretext(method, params)
    slides, centers = read_surveyed_slides(paths.SLIDES_CSV), read_centers(paths.CENTERS_CSV)
    tables = [paths.SLIDES_CSV, paths.CENTERS_CSV]
    read = [*tables, *_weights_read(pretext, params), *PRETEXTS.own_files(method)]
    provenance = made_from(params, read, [slides]) if this_rank() == 0 else {}
    load = partial(
        _loader, method, slides, centers, pretext=pretext, seed=seed, params=params, environment=environment
    )
    stage = f"pretrain-{method}-{seed}"
    settings = params.pretrain.methods[method]
    training, validation = (load(split) if pretext.epochs else None for split in ("train", "validation"))
    result = pretrain(
        pretext,
        training,
        validation,
        seed=seed,
        device=device,
        records=Records(
            paths.tensorboard_folder("pretrain", f"{method}-{seed}"),
            paths.checkpoint_path(stage),
            fingerprint(
                [method, seed, selected(params, PARAM_NAMES, method), computes_in_bfloat16(device)],
                tables,
                stage_sha256("pretrain", PRETEXTS[method].__module__),
            ),
        ),
        rates=settings if isinstance(settings, TrainedSettings) else None,
        freezes_batchnorm=freezes_batchnorm(pretext, params),
    )
    if this_rank() == 0:
        num_validation = int((centers["split"] == "validation").sum()) if validation is not None else 0
        _write(method, seed, params, pretext, result, num_validation, provenance)
        paths.checkpoint_path(stage).unlink(missing_ok=True)


def build_pretext(method: str, params: Params) -> Pretext:
    """Pretraining method with its section of params."""
    return PRETEXTS[method](
        start=EncoderStart.of(params.encoder),
        patch_px=params.patch_px,
        mpps=params.corpus_section.mpps,
        augmentation_prob=params.pretrain.augmentation.prob,
        settings=params.pretrain.methods[method],
    )


def freezes_batchnorm(pretext: Pretext, params: Params) -> bool:
    """Whether batch-norms of the encoder keep their statistics in training."""
    given = params.pretrain.freeze_batchnorm
    return _has_weights(pretext) if given is None else given


def _has_weights(pretext: Pretext) -> bool:
    return pretext.description()["encoder"]["weights"] is not None


def _weights_read(pretext: Pretext, params: Params) -> list[Path]:
    """Encoder weights file, if the method starts from it."""
    return [Path(params.encoder.weights)] if _has_weights(pretext) and params.encoder.weights else []


def _loader(
    method: str,
    slides: pd.DataFrame,
    centers: pd.DataFrame,
    split: str,
    pretext: Pretext,
    seed: int,
    params: Params,
    environment: Environment,
) -> PatchLoader:
    dataset = ConcentricPatches(
        slides,
        centers[centers["split"] == split],
        mpps=pretext.mpps,
        patch_px=params.patch_px,
        offsets=params.pretrain.methods[method].offsets,
    )
    batches = EpochBatches(
        len(dataset),
        pretext.batch_size,
        seed=seed if split == "train" else None,
        rank=this_rank(),
        world_size=num_ranks(),
        slides=dataset.slides_to_mix,
    )
    return repeated_batches(dataset, batches, workers=environment.workers, device=environment.device)


def _write(
    method: str,
    seed: int,
    params: Params,
    pretext: Pretext,
    result: PretrainResult,
    num_validation: int,
    provenance: dict[str, Any],
) -> None:
    metrics = {
        **{f"validation_{name}": round(value, 6) for name, value in result.validation.items()},
        "best_epoch": result.best_epoch,
        "num_validation": num_validation,
    }
    description = {
        "kind": "encoder",
        "method": method,
        "seed": seed,
        **pretext.description(),
        "source": params.source,
        "corpus": params.pretraining_dataset,
        "metrics": metrics,
        "params": as_tree(params.pretrain),
        "provenance": without_ids(provenance),
    }
    target = paths.encoder_folder(method, seed)
    with whole_folder(target) as folder:
        save_model(folder / paths.ENCODER, pretext.encoder_state(), description)
        columns = [
            "epoch",
            "lr",
            *(f"{part}_{name}" for part in ("train", "validation") for name in pretext.MEASURES),
        ]
        paths.write_curves(folder / paths.CURVES, result.curves, columns)
        image.imsave(folder / paths.ANSWERS, result.picture)
        write_metrics(folder, metrics, provenance, summary=metrics)
    write_end(
        paths.tensorboard_folder("pretrain", f"{method}-{seed}"),
        Hyperparameters("pretrain", params.pretraining_dataset, method, seed, params.patch_px).with_schedule(
            params.pretrain.methods[method]
        ),
        metrics,
    )
    values = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    _LOG.info("pretrain: output=%s %s", target, values)
