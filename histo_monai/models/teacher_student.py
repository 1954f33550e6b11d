"""Teacher and student of consistency training: two heads over one frozen backbone (paper, section 3.3)."""

from __future__ import annotations

import copy
from typing import Self

import torch
from torch import nn

from histo_monai.models.task_model import TaskModel


class TeacherStudent(nn.Module):
    """Teacher and student heads of a fine-tuned model over its frozen backbone.

    Backbone and teacher are always in evaluation mode: batch-norm statistics stay.

    Args:
        model: the fine-tuned model; its head becomes the student's.
    """

    def __init__(self, model: TaskModel) -> None:
        super().__init__()
        self.encoder = model.encoder.requires_grad_(False)
        self.student = model.head
        self.teacher = copy.deepcopy(model.head).requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the student alone."""
        super().train(mode)
        self.encoder.eval()
        self.teacher.eval()
        return self

    @torch.no_grad()
    def features(self, patches: torch.Tensor) -> torch.Tensor:
        """(N, 3, H, W) -> (N, D) of the frozen backbone."""
        return self.encoder(patches)

    def replace_teacher(self) -> None:
        """Teacher <- student."""
        self.teacher.load_state_dict(self.student.state_dict())
