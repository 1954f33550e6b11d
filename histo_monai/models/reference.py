"""Labeled training patches in a model's file: how far a patch's features are from them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import numpy as np
import safetensors
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from histo_monai.models.heads.mixture import buffer
from histo_monai.utils.randomness import generator

PREFIX = "reference."
"""Of the tensors' names in a model's file."""
_ROWS, _THRESHOLD = f"{PREFIX}rows", f"{PREFIX}threshold"
QUANTILE = 0.95
"""Of labeled patches, as far from the labeled patches of other patients as the threshold, or nearer."""
MOST_ROWS = 1000
"""Number of labeled patches in a model's file (`stored_rows`)."""
SMALLEST_THRESHOLD = 1e-4
"""Rounding is far below it."""


def stored_rows(num: int) -> NDArray[np.int64]:
    """Numbers of the labeled patches to store, at random of more than `MOST_ROWS`; sorted."""
    if num <= MOST_ROWS:
        return np.arange(num)
    return np.sort(generator(0, "reference").permutation(num)[:MOST_ROWS])


class TrainingReference(nn.Module):
    """Distance to the nearest labeled training patch, as a multiple of a threshold: features (n, D) -> (n,).

    The distance is 1 minus the cosine of the features. Above 1, a patch is unlike the training: 1 of 20 labeled
    patches is as far from those of other patients. In float64, because 1 minus a cosine near 1 has few digits in
    float32.

    Args:
        rows: features of labeled patches, Shape (m, D).
        threshold: distance that counts as 1.
    """

    rows: torch.Tensor
    threshold: torch.Tensor

    def __init__(self, rows: torch.Tensor, threshold: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("rows", F.normalize(rows.double(), dim=1))
        self.register_buffer("threshold", threshold.float())

    @classmethod
    def fit(cls, features: NDArray[np.floating], patients: NDArray) -> Self | None:
        """Reference of labeled patches, Shape (m, D), of patients, Shape (m,); None for fewer than two patients."""
        _, owners = np.unique(np.asarray(patients, str), return_inverse=True)
        if owners.max(initial=0) < 1:
            return None
        rows = F.normalize(buffer(features).double(), dim=1)
        same = torch.from_numpy(owners[:, None] == owners)
        distances = 1 - (rows @ rows.T).masked_fill(same, -1.0).amax(dim=1)
        threshold = np.quantile(distances.numpy(), QUANTILE)
        return cls(rows, torch.tensor(max(threshold, SMALLEST_THRESHOLD)))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n,), float32 under autocast too."""
        with torch.autocast(features.device.type, enabled=False):
            nearest = (F.normalize(features.double(), dim=1) @ self.rows.T).amax(dim=1)
            return ((1 - nearest).clamp(min=0) / self.threshold).float()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Tensors for a model's file; the rows in float16."""
        return {_ROWS: self.rows.half(), _THRESHOLD: self.threshold}


class HeadWithDistance(nn.Module):
    """Outputs of a head, and the distance to its training patches: (n, D) -> (n, K + 1)."""

    def __init__(self, head: nn.Module, reference: TrainingReference) -> None:
        super().__init__()
        self.head, self.reference = head, reference

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Outputs, then the distance."""
        return torch.cat([self.head(features), self.reference(features)[:, None]], dim=1)


def without_reference(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors of a model's file that belong to its network."""
    return {name: tensor for name, tensor in state.items() if not name.startswith(PREFIX)}


def has_reference(path: Path) -> bool:
    """Whether a model's file, undamaged, holds labeled training patches; earlier files hold none."""
    with safetensors.safe_open(path, "pt") as file:
        return _ROWS in set(file.keys())


def reference_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of the labeled patches in a model's file, undamaged; empty if it holds none."""
    if not has_reference(path):
        return {}
    with safetensors.safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in (_ROWS, _THRESHOLD)}


def load_reference(path: Path) -> TrainingReference | None:
    """Labeled training patches of a model's file, whose digest was checked; None if it holds none."""
    tensors = reference_tensors(path)
    return TrainingReference(tensors[_ROWS], tensors[_THRESHOLD]) if tensors else None
