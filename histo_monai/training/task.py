"""What is learned from labels, and where: classes or a score of patches of one size, on one device."""

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
    """What every step after pretraining works on.

    Args:
        classes: names by number; None for scores.
        patch_px: side of the patches that a network sees.

    Attributes:
        objective: classification or regression.
        kind: of labels, which has its recipes.
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
        """Of a network for this task."""
        return num_outputs(self.classes)

    @property
    def num_classes(self) -> int | None:
        """K; None for scores."""
        return len(self.classes) if self.classes else None

    def check_fits(self, description: Mapping[str, Any], path: Path) -> None:
        """Refuse a model of other classes, or one that saw patches of another size.

        Raises:
            InputError: names the file and what differs.
        """
        for name, ours in (("classes", self.classes), ("patch_px", self.patch_px)):
            if description[name] != ours:
                raise InputError(
                    f"{path}: its {name} are {description[name]}, those of the task {ours}; run finetune again"
                )
