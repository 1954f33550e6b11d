"""Features of an encoder, and predictions of several models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.models.shared_backbone import SharedBackbone
from histo_monai.models.task_model import TaskModel
from histo_monai.training.device import precision, to_device
from histo_monai.training.prediction import single_view
from histo_monai.training.task import Task
from histo_monai.utils.process.progress import progress


@dataclass(frozen=True)
class Embedding:
    """Features and predictions of patches.

    Attributes:
        features: Shape (n, D), float32, of one model's encoder.
        predictions: model name -> shape (n, K), float32: class probabilities, or the score in 0..1.
    """

    features: NDArray[np.float32]
    predictions: Mapping[str, NDArray[np.float32]]


def embed(
    loader: Iterable[Any], models: Mapping[str, TaskModel], task: Task, *, features_of: str
) -> Embedding:
    """Features and predictions of patches; models with a common backbone run it once.

    Args:
        loader: batches of (patches, anything), at least one.
        features_of: name of the model with the features.
    """
    network = SharedBackbone(models)
    to_device(network, task.device)
    features: list[torch.Tensor] = []
    predictions: dict[str, list[torch.Tensor]] = {name: [] for name in models}
    for patches, _ in progress(loader, title="patches", unit="batch"):
        with torch.inference_mode(), precision(task.device):
            by_model = network.features(single_view(patches, task.patch_px, task.device))
            for name, head in zip(models, network.heads, strict=True):
                predictions[name].append(task.objective.predictions(head(by_model[name])).cpu())
        features.append(by_model[features_of].float().cpu())
    return Embedding(
        torch.cat(features).numpy(), {name: torch.cat(parts).numpy() for name, parts in predictions.items()}
    )
