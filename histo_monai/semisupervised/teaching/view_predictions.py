"""Predictions of weak and strong views before training, to detect strong views that change the class."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.semisupervised.protocol import Batch, SemiSupervised
from histo_monai.training.device import precision, to_device
from histo_monai.training.task import Task
from histo_monai.utils.randomness import Step

NUM_PATCHES = 256
"""Unlabeled patches whose views are predicted."""

_BATCH = 32


def predicted_by_views(
    method: SemiSupervised, task: Task, patches: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """Class proportions, or score mean and spread, of predictions of weak and strong views.

    Args:
        patches: shape (n, 1, 3, H, H), uint8.

    Returns:
        Class -> fraction of weak and of strong views predicted as the class. For scores: "mean" and "spread" (standard
        deviation).
    """
    to_device(method.network, task.device)
    weak: list[NDArray[np.float32]] = []
    strong: list[NDArray[np.float32]] = []
    none = torch.empty(0, dtype=torch.int64 if task.classes else torch.float32, device=task.device)
    for number, part in enumerate(patches.split(_BATCH)):
        images = part.to(task.device)
        with precision(task.device):
            pairs = method.pairs(Batch(images, none, images, Step(0, epoch=0, iteration=number)))
        weak.append(pairs[2])
        strong.append(pairs[3])
    of_weak, of_strong = (_figures(np.concatenate(parts), task) for parts in (weak, strong))
    return {name: (value, of_strong[name]) for name, value in of_weak.items()}


def _figures(predictions: NDArray[np.float32], task: Task) -> dict[str, float]:
    if task.classes is None:
        return {"mean": float(predictions.mean()), "spread": float(predictions.std())}
    counts = np.bincount(predictions.argmax(axis=1), minlength=len(task.classes))
    return {name: float(count) / len(predictions) for name, count in zip(task.classes, counts, strict=True)}
