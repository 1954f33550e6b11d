"""Training and predictions of the fast baselines on the patches of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.evaluation.baselines.colors import color_features
from histo_monai.evaluation.baselines.models import COLOR, ENCODER, LEARNED, MAJORITY, STACKED, stacked
from histo_monai.evaluation.estimates import Predictions
from histo_monai.finetuning.depth import choose_depth, depth_features
from histo_monai.finetuning.learners import Chosen, Features, choose_model
from histo_monai.models.encoder import Encoder
from histo_monai.training.task import Task
from histo_monai.utils.roles import STUDENT


@dataclass(frozen=True)
class BaselinePredictions:
    """Predictions of the baselines, and their selected models.

    Attributes:
        predictions: by split, of every baseline; for classes also `MAJORITY`.
        chosen: name of a trained baseline -> model selected by cross-validation.
    """

    predictions: dict[str, Predictions]
    chosen: dict[str, Chosen]


def predict_baselines(
    encoder: Encoder,
    task: Task,
    labeled: LabeledLoader,
    groups: np.ndarray,
    loaders: Mapping[str, LabeledLoader],
    networks: Mapping[str, Predictions],
    depth: str = "",
) -> BaselinePredictions:
    """Train every baseline on the network's labels, and predict every split.

    Baselines do not use validation patches, whose labels are labels too.

    Args:
        encoder: as pretrained, or with the batch statistics at the start of fine-tuning.
        labeled: the labeled training patches, in order.
        groups: patient or slide of each patch; Shape (n,).
        loaders: by split, in the order of its table.
        networks: by split, predictions of the student among others.
        depth: depth of the fine-tuned encoder, a name of `depth_features`; empty: the labels select it.

    Raises:
        InputError: features are not finite.
    """
    targets = labeled.targets.numpy()
    num_classes = task.num_classes
    by_depth = depth_features(encoder, task, labeled.loader)
    selected_depth = depth or choose_depth(by_depth, targets, groups, num_classes).model.candidate.features
    features: Features = {**color_features(labeled.loader), selected_depth: by_depth[selected_depth]}
    chosen = {
        name: choose_model(
            features,
            targets,
            groups,
            num_classes,
            names=[selected_depth if of == ENCODER else of for of in baseline.features],
            learners=baseline.learners,
        )
        for name, baseline in LEARNED.items()
    }
    predictions: dict[str, Predictions] = {}
    for split, loader in loaders.items():
        of_split: Features = {
            **color_features(loader.loader),
            selected_depth: depth_features(encoder, task, loader.loader)[selected_depth],
        }
        predictions[split] = {name: one.model.predict(of_split) for name, one in chosen.items()}
        predictions[split][STACKED] = stacked(
            networks[split][STUDENT], predictions[split][COLOR], are_classes=num_classes is not None
        )
        if num_classes is not None:
            proportions = np.bincount(targets, minlength=num_classes) / len(targets)
            predictions[split][MAJORITY] = np.tile(proportions, (len(loader.targets), 1))
    return BaselinePredictions(predictions, chosen)
