"""Linear probing before all layers train (Kumar et al. 2022): how much of the encoder to keep, and the last layer."""

from __future__ import annotations

import numpy as np
import torch

from histo_monai.baselines.learners import Chosen, choose_model
from histo_monai.engines.prediction import over_patches, take_statistics
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader
from histo_monai.networks.encoder import architecture
from histo_monai.networks.task_model import TaskModel

_SEEN = "seen"
_LEARNER = "linear"


def choose_stages(
    model: TaskModel,
    task: Task,
    labeled: LabeledLoader,
    groups: np.ndarray,
    statistics: LabeledLoader | None = None,
) -> tuple[int | None, Chosen | None]:
    """After how many of its stages the encoder shall end: where a linear model of the labels is best.

    A pretraining of minutes leaves in its last stages what its own task asked for, and a few labels do not change that;
    the maps before them tell textures already. Cross-validation as in `probe_head`, of each end that the encoder can
    have and of all of it.

    Args:
        model: with a whole encoder; moved to the task's device.
        task: what is predicted, and where.
        labeled: patches whose labels are given, in order.
        groups: patient or slide of each of them; Shape (n,).
        statistics: see `probe_head`.

    Returns:
        The number of stages, None for all of the encoder; and what cross-validation chose, None where there was nothing
        to choose: all labels of one class, or an encoder without stages.
    """
    ends = architecture(model.encoder.name).stages
    targets = labeled.targets.numpy()
    if not ends or (task.classes and len(np.unique(targets)) == 1):
        return None, None
    if statistics:
        take_statistics(model, task, statistics)
    widths: list[int] = []

    def seen(patches: torch.Tensor) -> torch.Tensor:
        parts = model.encoder.stage_features(patches)
        widths[:] = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    together = over_patches(model, seen, task, labeled.loader).numpy()
    names = [*ends, _SEEN]
    features = dict(zip(names, np.split(together, np.cumsum(widths)[:-1], axis=1), strict=True))
    num_classes = len(task.classes) if task.classes else None
    chosen = choose_model(features, targets, groups, num_classes, names=names, learners=[_LEARNER])
    end = chosen.model.candidate.features
    return (None if end == _SEEN else ends.index(end) + 1), chosen


def probe_head(
    model: TaskModel,
    task: Task,
    labeled: LabeledLoader,
    groups: np.ndarray,
    statistics: LabeledLoader | None = None,
) -> Chosen | None:
    """Make the head's last layer the linear model of the labels: logistic regression of classes, ridge of scores.

    It sees what the layers below make of patches that are not augmented; its penalty is chosen by cross-validation on
    the labels, patients apart. Training from there moves pretrained features less than from a random layer, whose first
    gradients are noise.

    Args:
        model: its last layer is set; moved to the task's device.
        task: what is predicted, and where.
        labeled: patches whose labels are given, in order.
        groups: patient or slide of each of them; Shape (n,).
        statistics: what the model takes the statistics of its batch-norms from first, see `take_statistics`: those of
            a pretraining are of augmented patches, at several resolutions. None: they stay.

    Returns:
        What cross-validation chose; None, and the layer is left as it is, where all labels are of one class.
    """
    if statistics:
        take_statistics(model, task, statistics)
    targets = labeled.targets.numpy()
    if task.classes and len(np.unique(targets)) == 1:
        return None
    num_classes = len(task.classes) if task.classes else None
    before = over_patches(model, lambda x: model.head.before_linear(model.encoder(x)), task, labeled.loader)
    seen = {_SEEN: before.numpy()}
    chosen = choose_model(seen, targets, groups, num_classes, names=[_SEEN], learners=[_LEARNER])
    weights, biases = chosen.model.layer()
    linear = model.head.linear
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
        linear.bias.copy_(torch.from_numpy(biases))
    return chosen
