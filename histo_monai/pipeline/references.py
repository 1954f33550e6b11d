"""Labeled training patches that a model's file holds, so that maps state how far a patch is from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import grouping_key
from histo_monai.models.reference import TrainingReference, stored_rows
from histo_monai.models.task_model import TaskModel

_LOG = logging.getLogger(__name__)


class ReadsFeatures(Protocol):
    """What knows the features that a model's head reads."""

    def features(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Features of rows, Shape (n, D)."""


Reference = Callable[[TaskModel, pd.DataFrame], Mapping[str, torch.Tensor]]
"""Model and its labeled rows -> tensors of the labeled patches, for the model's file."""


def references(reader: ReadsFeatures) -> Reference:
    """Reference of a model by features that a head reads; without tensors, which the log states, for one patient."""

    def tensors(model: TaskModel, labeled: pd.DataFrame) -> Mapping[str, torch.Tensor]:
        rows = labeled.iloc[stored_rows(len(labeled))].reset_index(drop=True)
        patients = grouping_key(rows).to_numpy(str)
        if len(set(patients)) < 2:
            _LOG.info("model: labels of one patient: maps have no distance to the labeled patches")
            return {}
        reference = TrainingReference.fit(reader.features(model, rows), patients)
        return {} if reference is None else reference.tensors()

    return tensors
