"""Metrics with intervals of several models on common patches (method, section 7)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch
from torch import nn

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.data.tables.tasks import dependence_groups, task_targets
from histo_monai.evaluation.comparison.paired import mean_difference
from histo_monai.evaluation.metrics import (
    Estimate,
    classification_estimates,
    human_estimates,
    regression_estimates,
    score_estimates,
)
from histo_monai.training.prediction import predict
from histo_monai.training.task import Task
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import STUDENT

Predictions = dict[str, np.ndarray]
"""Name of a model -> Shape (n, K): class probabilities, or the score."""

Estimates = dict[str, dict[str, Estimate]]
"""Name of a model -> name of a metric -> value and interval."""


def predict_splits(
    models: Mapping[str, nn.Module], task: Task, loaders: Mapping[str, LabeledLoader]
) -> dict[str, Predictions]:
    """Predictions of every model, by split.

    Args:
        models: patches -> outputs, by name.
        loaders: by split, in the order of its table.

    Raises:
        InputError: a prediction is not finite.
    """
    predictions: dict[str, Predictions] = {
        split: {name: predict(model, task, loader.loader).numpy() for name, model in models.items()}
        for split, loader in loaders.items()
    }
    for split, by_model in predictions.items():
        for name, values in by_model.items():
            if not np.isfinite(values).all():
                raise InputError(
                    f"{name} model: prediction of a patch of {split} is not finite, so its weights diverged. Fix: run "
                    "the stage that makes it again, with a lower learning rate (lr) if the error returns."
                )
    return predictions


def estimate(task: Task, rows: pd.DataFrame, predictions: Predictions, *, seed: int) -> Estimates:
    """Metrics of every model with 95 % intervals over patients or slides; ICC intervals by the F distribution.

    Where two pathologists rated the patches, "human" is the second's agreement with the first: the ceiling.
    """
    groups = dependence_groups(rows)
    if task.classes:
        labels = pd.Index(task.classes).get_indexer(pd.Index(rows["label"]))
        return {
            name: classification_estimates(labels, values, groups, seed=seed)
            for name, values in predictions.items()
        }
    a, b = (rows[f"rater_{rater}"].to_numpy() for rater in "ab")
    if np.isnan(a).any():
        score = rows["score"].to_numpy()
        return {
            name: score_estimates(score, values[:, 0], groups, seed=seed)
            for name, values in predictions.items()
        }
    return {
        **{
            name: regression_estimates(a, b, values[:, 0], groups, seed=seed)
            for name, values in predictions.items()
        },
        "human": human_estimates(a, b, groups, seed=seed),
    }


def differences(task: Task, rows: pd.DataFrame, predictions: Predictions, *, seed: int) -> Estimates:
    """Paired differences of accuracy, or of negative squared error: student minus each other model.

    Intervals are those of `mean_difference`.
    """
    targets = task_targets(rows, task.classes)
    goodness = {
        name: task.objective.right(torch.tensor(values), targets).double().numpy()
        for name, values in predictions.items()
    }
    measure = "accuracy" if task.classes else "negative_squared_error"
    groups = dependence_groups(rows)
    return {
        f"{STUDENT}_minus_{name}": {
            measure: mean_difference(goodness[STUDENT], other, groups, seed=seed),
        }
        for name, other in goodness.items()
        if name != STUDENT
    }
