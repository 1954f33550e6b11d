"""Pseudo labels from a patch and its neighbors, weighted by validation patches.

Pseudo labels of classes: softmax of `own` x log probabilities of the patch + `around` x mean log probabilities of its
eight neighbors. Pseudo scores: the patch's score + `around` x (mean of neighbors - score). A grid search on validation
patches sets both weights by the lowest loss. So pseudo labels are calibrated. Neighbors have weight 0 where lesions are
as small as patches, or where validation patches have no neighbors.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from histo_monai.data.loaders.labeled import LabeledLoader, PatchReading
from histo_monai.data.tables.tasks import task_targets
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import predict
from histo_monai.training.task import Task

FIELD = 3
"""Side of a field in patches: the patch and its eight neighbors."""
OWN = (0.0, 0.125, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
AROUND = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
_AROUND_OF_SCORES = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEAST = 1e-4
"""Floor of probabilities, so that no single neighbor excludes a class."""


class NeighborWeights(NamedTuple):
    """Weights of the patch itself and of its neighbors."""

    own: float
    around: float


class PatchesAndNeighbors(NamedTuple):
    """Log probabilities of classes, or scores, of patches and means over their neighbors; (n, K) each.

    Where patches are images, not squares of a slide, both are equal.
    """

    own: torch.Tensor
    around: torch.Tensor


def fit_weights(
    labeled: Sequence[tuple[TaskModel, pd.DataFrame]], task: Task, reading: PatchReading, batch_size: int
) -> NeighborWeights:
    """Weights of patches and neighbors, selected by labels that the models were not trained on.

    Args:
        labeled: models and rows of labeled patches. Without rows the patch alone counts.
    """
    labeled = [(model, rows) for model, rows in labeled if len(rows)]
    if not labeled:
        return NeighborWeights(own=1.0, around=0.0)
    parts = [patches_and_neighbors(model, task, reading, rows, batch_size) for model, rows in labeled]
    known = PatchesAndNeighbors(*(torch.cat(of_all) for of_all in zip(*parts, strict=True)))
    rows = pd.concat([rows for _, rows in labeled], ignore_index=True)
    has_neighbors = bool(rows["y"].notna().any())
    return search_weights(known, task_targets(rows, task.classes), has_neighbors=has_neighbors)


def combine(
    predictions: PatchesAndNeighbors, weights: NeighborWeights, classes: list[str] | None
) -> torch.Tensor:
    """Pseudo labels (n, K): class probabilities, or scores."""
    if classes is None:
        return (predictions.own + weights.around * (predictions.around - predictions.own)).clamp(0, 1)
    return (weights.own * predictions.own + weights.around * predictions.around).softmax(dim=1)


def search_weights(
    predictions: PatchesAndNeighbors, targets: torch.Tensor, *, has_neighbors: bool
) -> NeighborWeights:
    """Weights of the lowest loss on a grid: cross-entropy of classes, squared error of scores.

    Args:
        targets: (n,), class numbers int64, or scores float32.
        has_neighbors: False: neighbors have weight 0.
    """
    if targets.is_floating_point():
        grid = [NeighborWeights(1.0, around) for around in _AROUND_OF_SCORES]
        losses = [(combine(predictions, one, None).squeeze(1) - targets).square().mean() for one in grid]
    else:
        grid = [NeighborWeights(own, around) for own, around in itertools.product(OWN, AROUND)]
        logits = [one.own * predictions.own + one.around * predictions.around for one in grid]
        losses = [F.cross_entropy(x, targets) for x in logits]
    allowed = [n for n, one in enumerate(grid) if has_neighbors or one.around == 0]
    return grid[min(allowed, key=lambda n: float(losses[n]))]


def patches_and_neighbors(
    model: TaskModel, task: Task, reading: PatchReading, rows: pd.DataFrame, batch_size: int
) -> PatchesAndNeighbors:
    """Predictions of patches and of their neighbors; float32, on the CPU."""
    is_square = rows["y"].notna().to_numpy()
    found = torch.empty(2, len(rows), task.num_outputs)
    if is_square.any():
        fields = reading.fields(rows[is_square], FIELD, max(1, batch_size // FIELD**2))
        found[:, torch.from_numpy(np.flatnonzero(is_square))] = _over_fields(model, task, fields)
    if not is_square.all():
        images = reading.in_order(rows[~is_square], batch_size)
        found[:, torch.from_numpy(np.flatnonzero(~is_square))] = _log_probabilities(
            predict(model, task, images.loader), task
        )
    return PatchesAndNeighbors(*found)


def _over_fields(model: TaskModel, task: Task, fields: LabeledLoader) -> torch.Tensor:
    """Predictions of patches and means of their neighbors, Shape (2, n, K)."""
    predictions = predict(model, task, ((_patches_of(pixels), rows) for pixels, rows in fields.loader))
    words = _log_probabilities(predictions, task).unflatten(0, (-1, FIELD**2))
    own = words[:, FIELD**2 // 2]
    return torch.stack([own, (words.sum(dim=1) - own) / (FIELD**2 - 1)])


def _patches_of(fields: torch.Tensor) -> torch.Tensor:
    """Patches (9 n, 1, 3, P, P) of fields (n, 1, 3, 3 P, 3 P), row by row."""
    side = fields.shape[-1] // FIELD
    cut = fields.unflatten(-2, (FIELD, side)).unflatten(-1, (FIELD, side))  # (n, 1, 3, rows, P, columns, P)
    return cut.permute(0, 3, 5, 1, 2, 4, 6).flatten(0, 2)


def _log_probabilities(predictions: torch.Tensor, task: Task) -> torch.Tensor:
    """Log probabilities of classes, or scores."""
    return predictions if task.classes is None else predictions.clamp(min=_LEAST).log()
