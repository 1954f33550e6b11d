"""Prediction task: classes or a score, patch size, device."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.losses import Classification, Objective, Regression
from histo_monai.models.task_model import num_outputs
from histo_monai.utils.errors import InputError
from histo_monai.utils.settings.recipe import LabelKind, label_kind


class Task:
    """Classes or scores of patches of one size, on one device.

    Args:
        classes: names by number; None for scores.
        patch_px: side of the network's input.

    Attributes:
        objective: classification or regression.
        kind: kind of labels, which selects the recipe.
        classes, patch_px, device: as above.
    """

    def __init__(self, classes: list[str] | None, *, patch_px: int, device: torch.device) -> None:
        self.classes = classes
        self.kind: LabelKind = label_kind(classes)
        self.objective: Objective = Regression() if classes is None else Classification(classes)
        self.patch_px = patch_px
        self.device = device

    @property
    def num_outputs(self) -> int:
        """Number of a network's outputs."""
        return num_outputs(self.classes)

    @property
    def num_classes(self) -> int | None:
        """K; None for scores."""
        return len(self.classes) if self.classes else None

    def check_fits(self, description: Mapping[str, Any], path: Path) -> None:
        """Refuse a model of other classes or another patch size.

        Raises:
            InputError: names the file and the difference.
        """
        for name, ours in (("classes", self.classes), ("patch_px", self.patch_px)):
            if description[name] != ours:
                raise InputError(
                    f"{path}: {name} is {description[name]}, but the task has {ours}. Fix: run finetune again."
                )
