"""Linear probing: the head's last layer is solved for before all layers train (Kumar et al. 2022)."""

from __future__ import annotations

import numpy as np
import torch

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.finetuning.learners import Chosen, choose_model
from histo_monai.models.task_model import TaskModel
from histo_monai.training.prediction import over_patches, take_statistics
from histo_monai.training.task import Task

_FEATURES = "features"
_LEARNER = "linear"


def probe_head(
    model: TaskModel,
    task: Task,
    labeled: LabeledLoader,
    groups: np.ndarray,
    statistics: LabeledLoader | None = None,
) -> Chosen | None:
    """Set the head's last layer to a linear model: logistic regression of classes, ridge regression of scores.

    Its input is the layers below on unaugmented patches. Cross-validation on the labels, patients apart, selects its
    penalty. Training from this layer moves pretrained features less than from a random layer with its noisy first
    gradients.

    Args:
        model: its last layer is set; moved to the task's device.
        labeled: labeled patches, in order.
        groups: patient or slide of each patch; Shape (n,).
        statistics: patches for new batch-norm statistics (`take_statistics`), as a pretraining's are of augmented
            patches at several resolutions. None: the model's own.

    Returns:
        The cross-validated model; None, with an unchanged layer, where all labels are of one class.
    """
    if statistics:
        take_statistics(model, task, statistics)
    targets = labeled.targets.numpy()
    if task.classes and len(np.unique(targets)) == 1:
        return None
    before = over_patches(model, lambda x: model.head.before_linear(model.encoder(x)), task, labeled.loader)
    chosen = choose_model(
        {_FEATURES: before.numpy()},
        targets,
        groups,
        task.num_classes,
        names=[_FEATURES],
        learners=[_LEARNER],
    )
    weights, biases = chosen.model.layer()
    linear = model.head.linear
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
        linear.bias.copy_(torch.from_numpy(biases))
    return chosen
