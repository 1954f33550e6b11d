"""The pretrained encoder as fine-tuning starts from it, for the baselines on its features."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.loaders.streams import for_statistics
from histo_monai.models.batchnorm import has_batchnorm, patches_for_statistics
from histo_monai.models.encoder import Encoder
from histo_monai.models.task_model import from_encoder, load_encoder
from histo_monai.training.prediction import take_statistics
from histo_monai.training.task import Task


def starts_from_file(encoder: Path, batchnorm_patches: int | None) -> bool:
    """Whether fine-tuning starts from the encoder's file as it is: it keeps or lacks batch-norm statistics.

    Args:
        encoder: encoder.safetensors of a pretraining.
        batchnorm_patches: param of the fine-tuning.

    Raises:
        InputError: the encoder cannot be used.
    """
    network, _ = load_encoder(encoder)
    num = patches_for_statistics(batchnorm_patches, has_weights=network.weights is not None)
    return num == 0 or not has_batchnorm(network)


def frozen_encoder(
    encoder: Path,
    task: Task,
    reading: PatchReading,
    train: pd.DataFrame,
    batchnorm_patches: int | None,
    batch_size: int,
    *,
    seed: int,
) -> Encoder:
    """Pretrained encoder with the batch-norm statistics that fine-tuning starts from.

    Args:
        encoder: encoder.safetensors of a pretraining.
        train: rows of all training patches.
        batchnorm_patches: param of the fine-tuning.
        seed: of the fine-tuning.

    Raises:
        InputError: the encoder cannot be used.
    """
    model, _ = from_encoder(encoder, task.num_outputs)
    num = patches_for_statistics(batchnorm_patches, has_weights=model.encoder.weights is not None)
    statistics = for_statistics(reading, train, num, batch_size, seed)
    if statistics:
        take_statistics(model, task, statistics)
    return model.encoder
