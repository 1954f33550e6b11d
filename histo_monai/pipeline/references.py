"""Labeled training patches that a model's file holds, so that maps state how far a patch is from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import grouping_key
from histo_monai.models.reference import TrainingReference
from histo_monai.models.task_model import TaskModel

_LOG = logging.getLogger(__name__)


def reference_tensors(
    features: Callable[[TaskModel, pd.DataFrame], NDArray[np.float32]],
    model: TaskModel,
    labeled: pd.DataFrame,
) -> Mapping[str, torch.Tensor]:
    """Tensors of labeled patches for a model's file; none, with a line in the log, for labels of one patient.

    Args:
        features: model and rows -> features that its head reads, Shape (n, D).
        labeled: rows with the labels of the training.
    """
    rows = labeled.reset_index(drop=True)
    patients = grouping_key(rows).to_numpy(str)
    if rows.empty or len(set(patients)) < 2:
        _LOG.info("model: labels of one patient: maps have no distance to the training patches")
        return {}
    reference = TrainingReference.fit(features(model, rows), patients)
    return reference.tensors() if reference else {}
