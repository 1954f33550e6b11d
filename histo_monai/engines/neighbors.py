"""What a model says of patches and of all that touch them in their slides."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from histo_monai.engines.device import precision, to_device
from histo_monai.engines.last_layer.shares import keep_shares, shares_of
from histo_monai.engines.prediction import predict, single_view, take_statistics
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader, PatchReading
from histo_monai.networks.task_model import TaskModel

FIELD = 3
"""Sides of a patch that a field has: the patch and its eight neighbors."""
_LEAST = 1e-4
"""Probabilities below it are one: no single neighbor rules a class out."""


def adapt(model: TaskModel, task: Task, statistics: LabeledLoader, *, keeps_shares: bool) -> None:
    """Statistics of batch-norms from patches whose labels are not looked at; shares of them as they were, if asked.

    Args:
        model: changed.
        task: what is predicted, and where.
        statistics: shuffled patches, see `take_statistics`.
        keeps_shares: see `last_layer.shares`.
    """
    shares = shares_of(model, task, statistics) if keeps_shares else None
    take_statistics(model, task, statistics)
    if shares is not None:
        keep_shares(model, task, statistics, shares)


def guesses_of_neighbors(
    model: TaskModel, task: Task, reading: PatchReading, rows: pd.DataFrame, batch_size: int
) -> torch.Tensor:
    """Guess of each patch: of classes the normalized geometric mean of the probabilities over its field, of scores the
    mean. Patches that are images, not squares of slides, have no neighbors, and are guessed from themselves.

    Args:
        model: moved to the task's device.
        task: what is predicted, and where.
        reading: rows -> loaders.
        rows: of a table of patches.
        batch_size: patches that go through the network at a time.

    Returns:
        Shape (n, K), float32, on the CPU: probabilities of classes, or the score in 0..1.
    """
    is_square = rows["y"].notna().to_numpy()
    guesses = torch.empty(len(rows), task.num_outputs)
    if is_square.any():
        fields = reading.fields(rows[is_square], FIELD, max(1, batch_size // FIELD**2))
        guesses[torch.from_numpy(np.flatnonzero(is_square))] = _over_fields(model, task, fields)
    if not is_square.all():
        images = reading.in_order(rows[~is_square], batch_size)
        guesses[torch.from_numpy(np.flatnonzero(~is_square))] = predict(model, task, images.loader)
    return guesses


def _over_fields(model: TaskModel, task: Task, fields: LabeledLoader) -> torch.Tensor:
    to_device(model, task.device)
    model.eval()
    found = []
    for pixels, _ in fields.loader:
        side = pixels.shape[-1] // FIELD
        cut = pixels.unflatten(-2, (FIELD, side)).unflatten(
            -1, (FIELD, side)
        )  # (n, 1, 3, rows, P, columns, P)
        patches = cut.permute(0, 3, 5, 1, 2, 4, 6).flatten(0, 2)
        with torch.no_grad(), precision(task.device):
            outputs = model(single_view(patches, task.patch_px, task.device))
        seen = task.objective.predictions(outputs).float().unflatten(0, (len(pixels), FIELD**2))
        if task.objective.classes is None:
            found.append(seen.mean(dim=1).cpu())
        else:
            found.append(seen.clamp(min=_LEAST).log().mean(dim=1).softmax(dim=1).cpu())
    return torch.cat(found)
