"""Linear probing: the head's last layer is solved for, before all layers train (Kumar et al. 2022)."""

from __future__ import annotations

import numpy as np
import torch

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.finetuning.learners import Chosen, choose_model
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import over_patches, take_statistics
from histo_monai.training.task import Task

_SEEN = "seen"
_LEARNER = "linear"


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
    before = over_patches(model, lambda x: model.head.before_linear(model.encoder(x)), task, labeled.loader)
    seen = {_SEEN: before.numpy()}
    chosen = choose_model(seen, targets, groups, task.num_classes, names=[_SEEN], learners=[_LEARNER])
    weights, biases = chosen.model.layer()
    linear = model.head.linear
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
        linear.bias.copy_(torch.from_numpy(biases))
    return chosen
