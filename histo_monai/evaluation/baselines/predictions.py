"""Training and predictions of the fast baselines on the patches of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.evaluation.baselines.colors import color_features
from histo_monai.evaluation.baselines.models import COLOR, ENCODER, LEARNED, MAJORITY, STACKED, stacked
from histo_monai.evaluation.estimates import Predictions
from histo_monai.finetuning.depth import choose_end, end_features
from histo_monai.finetuning.learners import Chosen, Features, choose_model
from histo_monai.models.encoder import Encoder
from histo_monai.training.task import Task
from histo_monai.utils.roles import STUDENT


@dataclass(frozen=True)
class Arms:
    """Predictions of the baselines, and their selected models.

    Attributes:
        predictions: by split, of every baseline; for classes also `MAJORITY`.
        chosen: name of a trained baseline -> model selected by cross-validation.
    """

    predictions: dict[str, Predictions]
    chosen: dict[str, Chosen]


def predict_arms(
    encoder: Encoder,
    task: Task,
    labeled: LabeledLoader,
    groups: np.ndarray,
    loaders: Mapping[str, LabeledLoader],
    networks: Mapping[str, Predictions],
    depth: str = "",
) -> Arms:
    """Train every baseline on the network's labels, and predict every split.

    Baselines do not use validation patches, whose labels are labels too.

    Args:
        encoder: as pretrained, or with the batch statistics at the start of fine-tuning.
        labeled: the labeled training patches, in order.
        groups: patient or slide of each patch; Shape (n,).
        loaders: by split, in the order of its table.
        networks: by split, predictions of the student among others.
        depth: depth of the fine-tuned encoder, a name of `end_features`; empty: the labels select it.

    Raises:
        InputError: features are not finite.
    """
    targets = labeled.targets.numpy()
    num_classes = task.num_classes
    ends = end_features(encoder, task, labeled.loader)
    end = depth or choose_end(ends, targets, groups, num_classes).model.candidate.features
    features: Features = {**color_features(labeled.loader), end: ends[end]}
    chosen = {
        arm: choose_model(
            features,
            targets,
            groups,
            num_classes,
            names=[end if name == ENCODER else name for name in of_arm.features],
            learners=of_arm.learners,
        )
        for arm, of_arm in LEARNED.items()
    }
    predictions: dict[str, Predictions] = {}
    for split, loader in loaders.items():
        of_split: Features = {
            **color_features(loader.loader),
            end: end_features(encoder, task, loader.loader)[end],
        }
        predictions[split] = {name: arm.model.predict(of_split) for name, arm in chosen.items()}
        predictions[split][STACKED] = stacked(
            networks[split][STUDENT], predictions[split][COLOR], are_classes=num_classes is not None
        )
        if num_classes is not None:
            proportions = np.bincount(targets, minlength=num_classes) / len(targets)
            predictions[split][MAJORITY] = np.tile(proportions, (len(loader.targets), 1))
    return Arms(predictions, chosen)
