"""How much of an encoder is of use: a linear model of the labels on what each of its stages sees.

A pretraining of minutes leaves in the last stages what its own task asked for, which tens of labels do not change; the
maps before them tell textures already. One of millions of images is best at its end. So the labels are asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.finetuning.learners import Chosen, choose_model
from histo_monai.models.encoder import Encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import over_patches, take_statistics
from histo_monai.training.task import Task
from histo_monai.utils.errors import InputError

WHOLE = "encoder"
"""Name of the features of all of it; those of an earlier end have the name of its last stage."""
MOST_LABELS = 2000
"""That the choice is made by: a linear model of more takes minutes, and chooses the same."""
MOST_WORSE = 2.0
"""Standard errors by which an earlier end may be behind the best."""

Ends = Mapping[str, NDArray[np.float32]]
"""Name of an end, `WHOLE` first -> Shape (n, D)."""


def end_features(encoder: Encoder, task: Task, loader: Iterable[Any]) -> Ends:
    """Features of patches that are not augmented, at every end that the encoder can have, in the order of the loader.

    Args:
        encoder: all of it; moved to the task's device.
        task: the size of its patches, and where.
        loader: batches of patches and anything beside them, at least one.

    Raises:
        InputError: the encoder gives NaN.
    """
    widths: list[int] = []

    def seen(patches: torch.Tensor) -> torch.Tensor:
        parts = encoder.stage_features(patches)
        widths[:] = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    together = over_patches(encoder, seen, task, loader).numpy()
    if not np.isfinite(together).all():
        raise InputError(
            "the pretrained encoder gives no number for a patch, so its weights are out of all range; run the pretrain "
            "stage again, with a lower rate where it comes to this again"
        )
    *ends, whole = np.split(together, np.cumsum(widths)[:-1], axis=1)
    return {WHOLE: whole, **dict(zip(encoder.ends, ends, strict=True))}


def choose_end(features: Ends, targets: NDArray, groups: NDArray, num_classes: int | None) -> Chosen:
    """The linear model of the labels at the earliest end that is as good as the best, by cross-validation.

    As good: its errors on rows held out are not larger than those of the best end by more than `MOST_WORSE` standard
    errors of the difference, patients taken whole (as the one-standard-error rule of Breiman et al. 1984 prefers small
    models). Fewer layers have less to learn from few labels, and cost less.

    Args:
        features: of the labeled patches, `WHOLE` first, then from the earliest end on.
        targets: classes by number, or scores; Shape (n,).
        groups: patient or slide of each; Shape (n,).
        num_classes: K; None for scores.
    """
    if len(targets) > MOST_LABELS:
        some = np.sort(np.random.default_rng(0).permutation(len(targets))[:MOST_LABELS])
        features = {name: rows[some] for name, rows in features.items()}
        targets, groups = targets[some], groups[some]
    whole, *earlier = features
    of_ends = [
        choose_model(features, targets, groups, num_classes, names=[name], learners=["linear"])
        for name in (*earlier, whole)
    ]
    if not of_ends[-1].num_folds:
        return of_ends[-1]
    best = min(of_ends, key=lambda chosen: chosen.errors.mean())
    worse = [chosen.errors - best.errors for chosen in of_ends]
    as_good = [x.mean() <= MOST_WORSE * _standard_error(x, groups[best.rows]) for x in worse]
    return of_ends[as_good.index(True)]


def _standard_error(values: NDArray[np.float64], groups: NDArray) -> float:
    """Of the mean of values whose groups are independent of each other."""
    _, numbers = np.unique(groups, return_inverse=True)
    totals = np.bincount(numbers, weights=values - values.mean())
    return float(np.sqrt(np.square(totals).sum()) / len(values))


def select_depth(
    model: TaskModel,
    task: Task,
    labeled: LabeledLoader,
    groups: NDArray,
    statistics: LabeledLoader | None = None,
) -> tuple[int | None, Chosen | None]:
    """After how many of its stages the encoder shall end, see `choose_end`.

    Args:
        model: with a whole encoder; moved to the task's device.
        task: what is predicted, and where.
        labeled: patches whose labels are given, in order.
        groups: patient or slide of each of them; Shape (n,).
        statistics: what the model takes the statistics of its batch-norms from first, see `take_statistics`. None: they
            stay.

    Returns:
        The number of stages, None for all of the encoder; and what cross-validation chose, None where there was nothing
        to choose: all labels of one class, or an encoder without stages.

    Raises:
        InputError: the encoder gives NaN.
    """
    ends = model.encoder.ends
    targets = labeled.targets.numpy()
    if not ends or (task.classes and len(np.unique(targets)) == 1):
        return None, None
    if statistics:
        take_statistics(model, task, statistics)
    chosen = choose_end(end_features(model.encoder, task, labeled.loader), targets, groups, task.num_classes)
    end = chosen.model.candidate.features
    return (None if end == WHOLE else ends.index(end) + 1), chosen
