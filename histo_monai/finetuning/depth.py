"""Selection of the encoder depth by a linear model of the labels.

After minutes of pretraining, the last stages serve the pretext task, and tens of labels do not change them; earlier
maps already separate textures. An encoder pretrained on millions of images is best at full depth.
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
"""Name of the features at full depth; features of a smaller depth have the name of the last stage."""
MOST_LABELS = 2000
"""Labels of the selection: more labels take minutes and give equal depths."""
MOST_WORSE = 2.0
"""Standard errors by which a smaller depth may be behind the best."""

DepthFeatures = Mapping[str, NDArray[np.float32]]
"""Name of a depth, `WHOLE` first -> Shape (n, D)."""


def depth_features(encoder: Encoder, task: Task, loader: Iterable[Any]) -> DepthFeatures:
    """Features of unaugmented patches at every depth of the encoder, in the order of the loader.

    Args:
        encoder: at full depth; moved to the task's device.
        loader: batches of (patches, anything), at least one.

    Raises:
        InputError: features are not finite.
    """
    widths: list[int] = []

    def stages(patches: torch.Tensor) -> torch.Tensor:
        parts = encoder.stage_features(patches)
        widths[:] = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    together = over_patches(encoder, stages, task, loader).numpy()
    if not np.isfinite(together).all():
        raise InputError(
            "encoder: features of a patch are not finite, so its weights diverged. Fix: run the stage pretrain again, "
            "with a lower learning rate (lr) if the error returns."
        )
    *ends, whole = np.split(together, np.cumsum(widths)[:-1], axis=1)
    return {WHOLE: whole, **dict(zip(encoder.ends, ends, strict=True))}


def choose_depth(
    features: DepthFeatures, targets: NDArray, groups: NDArray, num_classes: int | None
) -> Chosen:
    """Linear model at the smallest depth that is as good as the best, by cross-validation.

    As good: its held-out errors exceed the best depth's by at most `MOST_WORSE` standard errors of the difference, with
    whole patients (as in the one-standard-error rule of Breiman et al. 1984). Fewer layers have fewer weights to learn
    from few labels, and cost less.

    Args:
        features: of the labeled patches, `WHOLE` first, then from the smallest depth on.
        targets: class numbers, or scores; Shape (n,).
        groups: patient or slide of each patch; Shape (n,).
    """
    if len(targets) > MOST_LABELS:
        some = np.sort(np.random.default_rng(0).permutation(len(targets))[:MOST_LABELS])
        features = {name: rows[some] for name, rows in features.items()}
        targets, groups = targets[some], groups[some]
    whole, *earlier = features
    of_depths = [
        choose_model(features, targets, groups, num_classes, names=[name], learners=["linear"])
        for name in (*earlier, whole)
    ]
    if not of_depths[-1].num_folds:
        return of_depths[-1]
    best = min(of_depths, key=lambda chosen: chosen.errors.mean())
    worse = [chosen.errors - best.errors for chosen in of_depths]
    as_good = [x.mean() <= MOST_WORSE * _standard_error(x, groups[best.rows]) for x in worse]
    return of_depths[as_good.index(True)]


def _standard_error(values: NDArray[np.float64], groups: NDArray) -> float:
    """Standard error of the mean of values in independent groups."""
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
    """Number of encoder stages to use, by `choose_depth`.

    Args:
        model: with an encoder at full depth; moved to the task's device.
        groups: patient or slide of each patch; Shape (n,).
        statistics: patches for new batch-norm statistics (`take_statistics`). None: the model's own.

    Returns:
        Number of stages, None for full depth; and the cross-validated model, None without a selection: all labels of
        one class, or an encoder without stages.

    Raises:
        InputError: features are not finite.
    """
    ends = model.encoder.ends
    targets = labeled.targets.numpy()
    if not ends or (task.classes and len(np.unique(targets)) == 1):
        return None, None
    if statistics:
        take_statistics(model, task, statistics)
    chosen = choose_depth(
        depth_features(model.encoder, task, labeled.loader), targets, groups, task.num_classes
    )
    end = chosen.model.candidate.features
    return (None if end == WHOLE else ends.index(end) + 1), chosen
