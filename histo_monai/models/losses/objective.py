"""Classification and regression objectives: losses, measures, selection (paper, 3.2-3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F

from histo_monai.utils.errors import InputError


class Objective(Protocol):
    """A task with labels.

    Attributes:
        MEASURES: measures per image of training and validation, "loss" first.
        PSEUDO_MEASURES: measures per image of consistency training's pseudo labels.
        PSEUDO_LABEL_MEASURE: quality measure of pseudo labels against labels.
        classes: names by number; None for a score.
    """

    MEASURES: ClassVar[tuple[str, ...]]
    PSEUDO_MEASURES: ClassVar[tuple[str, ...]]
    PSEUDO_LABEL_MEASURE: ClassVar[str]
    classes: list[str] | None

    def measure(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """`MEASURES` of outputs (N, K) against targets (N,), each Shape (N,)."""

    def consistency(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> torch.Tensor:
        """Loss of the student against the teacher, Shape (N,), without gradient for the teacher.

        0 where the teacher's largest probability is below `threshold`; scores ignore the threshold.
        """

    def pseudo_measure(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """Agreement of student and teacher, `PSEUDO_MEASURES`, each Shape (N,)."""

    def pseudo_labels(self, outputs: torch.Tensor) -> torch.Tensor:
        """Pseudo labels (N,) of outputs or predictions (N, K): class numbers, or scores 0..1."""

    def pseudo_label_quality(self, pseudo_labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """`PSEUDO_LABEL_MEASURE` of pseudo labels (N,) against labels (N,), Shape (N,)."""

    def right(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Goodness of outputs per image, larger is better, Shape (N,); model comparisons use it."""

    def rank(self, means: Mapping[str, float]) -> tuple[float, ...]:
        """Rank of means of `MEASURES`; lowest is best."""

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Class probabilities or score of outputs, Shape (N, K)."""


class Classification:
    """Cross-entropy; selects the highest validation accuracy, then the lowest loss.

    Args:
        classes: names by number, at least two.
    """

    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    PSEUDO_MEASURES: ClassVar[tuple[str, ...]] = ("agreement", "teacher_entropy", "student_entropy", "used")
    PSEUDO_LABEL_MEASURE: ClassVar[str] = "pseudo_label_accuracy"

    def __init__(self, classes: Sequence[str]) -> None:
        if len(classes) < 2:
            raise InputError(
                f"labels: one class, {list(classes)}. Fix: label patches of at least two classes."
            )
        self.classes: list[str] | None = list(classes)

    def measure(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cross-entropy, and 1 where the arg max is right."""
        loss = F.cross_entropy(outputs.float(), targets, reduction="none")
        return {"loss": loss, "accuracy": self.right(outputs, targets)}

    def consistency(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> torch.Tensor:
        """Cross-entropy against the teacher's arg max; 0 where the teacher's probability is below the threshold."""
        loss = F.cross_entropy(student.float(), teacher.detach().argmax(dim=-1), reduction="none")
        return loss * self._used(teacher, threshold)

    def pseudo_measure(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """Agreement of arg max; entropies in nats; 1 where the pseudo label counts."""
        return {
            "agreement": self.right(student, teacher.argmax(dim=-1)),
            "teacher_entropy": _entropy(teacher),
            "student_entropy": _entropy(student),
            "used": self._used(teacher, threshold),
        }

    def pseudo_labels(self, outputs: torch.Tensor) -> torch.Tensor:
        """Arg max."""
        return outputs.argmax(dim=-1)

    def pseudo_label_quality(self, pseudo_labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 where the pseudo label is the class, else 0."""
        return (pseudo_labels == targets).float()

    def right(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 where the arg max is the target, else 0."""
        return (outputs.argmax(dim=-1) == targets).float()

    def rank(self, means: Mapping[str, float]) -> tuple[float, ...]:
        """Rank by highest accuracy, then lowest loss."""
        return (-means["accuracy"], means["loss"])

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Softmax."""
        return outputs.float().softmax(dim=-1)

    def _used(self, teacher: torch.Tensor, threshold: float) -> torch.Tensor:
        return (self.predictions(teacher.detach()).amax(dim=-1) >= threshold).float()


class Regression:
    """Mean squared error of one score in 0..1; selects the lowest validation loss."""

    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "absolute_error")
    PSEUDO_MEASURES: ClassVar[tuple[str, ...]] = ("disagreement",)
    PSEUDO_LABEL_MEASURE: ClassVar[str] = "pseudo_label_absolute_error"
    classes: list[str] | None = None

    def measure(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Squared and absolute error."""
        error = outputs.float().squeeze(-1) - targets
        return {"loss": error.square(), "absolute_error": error.abs()}

    def consistency(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> torch.Tensor:
        """Squared difference."""
        return (student.float() - teacher.detach().float()).squeeze(-1).square()

    def pseudo_measure(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """Absolute difference of the two scores."""
        return {"disagreement": (student.float() - teacher.float()).squeeze(-1).abs()}

    def pseudo_labels(self, outputs: torch.Tensor) -> torch.Tensor:
        """Score, clipped to 0..1."""
        return self.predictions(outputs).squeeze(-1)

    def pseudo_label_quality(self, pseudo_labels: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Absolute error."""
        return (pseudo_labels - targets).abs()

    def right(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Negative squared error of the score."""
        return -(self.predictions(outputs).squeeze(-1) - targets).square()

    def rank(self, means: Mapping[str, float]) -> tuple[float, ...]:
        """Rank by lowest loss."""
        return (means["loss"],)

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Score, clipped to 0..1."""
        return outputs.float().clamp(0.0, 1.0)


def _entropy(outputs: torch.Tensor) -> torch.Tensor:
    logs = outputs.float().log_softmax(dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)
