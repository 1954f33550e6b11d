"""What a task asks of a network's outputs: classification and regression behind one protocol (paper, 3.2-3.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F

from histo_monai.utils.errors import InputError


class Objective(Protocol):
    """A task with labels.

    Attributes:
        MEASURES: what training and validation report per image, "loss" first.
        PSEUDO_MEASURES: what consistency training reports of pseudo labels, per image.
        GUESS_MEASURE: what guesses are held against labels by.
        classes: names by number; None for a score.
    """

    MEASURES: ClassVar[tuple[str, ...]]
    PSEUDO_MEASURES: ClassVar[tuple[str, ...]]
    GUESS_MEASURE: ClassVar[str]
    classes: list[str] | None

    def measure(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """(N, K) outputs against (N,) targets -> `MEASURES`, each Shape (N,)."""

    def consistency(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> torch.Tensor:
        """How far the student is from the teacher, per image. Shape (N,); no gradient goes to the teacher.

        Where the teacher gives no class `threshold`, 0 in 0..1; scores know no threshold.
        """

    def pseudo_measure(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """How the two predictions of unlabeled images agree, `PSEUDO_MEASURES`, each Shape (N,)."""

    def guesses(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs, or predictions, (N, K) -> what each image is taken to be, (N,): class numbers, or scores 0..1."""

    def guess_quality(self, guesses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Guesses (N,) against labels (N,) -> `GUESS_MEASURE`, Shape (N,)."""

    def right(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """How good outputs are, per image, larger is better: what models are compared by. Shape (N,)."""

    def rank(self, means: Mapping[str, float]) -> tuple[float, ...]:
        """Means of `MEASURES` over the validation images -> what is lowest for the model to keep."""

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs -> Shape (N, K): probabilities of the classes, or the score."""


class Classification:
    """Cross-entropy; the model of the highest validation accuracy is kept, of equal ones that of the lowest loss.

    Args:
        classes: names by number, at least two.
    """

    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    PSEUDO_MEASURES: ClassVar[tuple[str, ...]] = ("agreement", "teacher_entropy", "student_entropy", "used")
    GUESS_MEASURE: ClassVar[str] = "guess_accuracy"

    def __init__(self, classes: Sequence[str]) -> None:
        if len(classes) < 2:
            raise InputError(f"classification needs at least two classes, the labels have {list(classes)}")
        self.classes: list[str] | None = list(classes)

    def measure(self, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
        """Cross-entropy and whether the arg max is right."""
        loss = F.cross_entropy(outputs.float(), targets, reduction="none")
        return {"loss": loss, "accuracy": self.right(outputs, targets)}

    def consistency(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> torch.Tensor:
        """Cross-entropy against the teacher's arg max; 0 where the teacher is less sure than the threshold."""
        loss = F.cross_entropy(student.float(), teacher.detach().argmax(dim=-1), reduction="none")
        return loss * self._used(teacher, threshold)

    def pseudo_measure(
        self, student: torch.Tensor, teacher: torch.Tensor, threshold: float = 0.0
    ) -> dict[str, torch.Tensor]:
        """Same arg max; entropy of each in nats; whether the pseudo label counts."""
        return {
            "agreement": self.right(student, teacher.argmax(dim=-1)),
            "teacher_entropy": _entropy(teacher),
            "student_entropy": _entropy(student),
            "used": self._used(teacher, threshold),
        }

    def guesses(self, outputs: torch.Tensor) -> torch.Tensor:
        """The arg max."""
        return outputs.argmax(dim=-1)

    def guess_quality(self, guesses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 where the guess is the class, else 0."""
        return (guesses == targets).float()

    def right(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """1 where the arg max is the target, else 0."""
        return (outputs.argmax(dim=-1) == targets).float()

    def rank(self, means: Mapping[str, float]) -> tuple[float, ...]:
        """Highest accuracy, then lowest loss."""
        return (-means["accuracy"], means["loss"])

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """Softmax."""
        return outputs.float().softmax(dim=-1)

    def _used(self, teacher: torch.Tensor, threshold: float) -> torch.Tensor:
        return (self.predictions(teacher.detach()).amax(dim=-1) >= threshold).float()


class Regression:
    """Mean squared error of one score in 0..1; the model of the lowest validation loss is kept."""

    MEASURES: ClassVar[tuple[str, ...]] = ("loss", "absolute_error")
    PSEUDO_MEASURES: ClassVar[tuple[str, ...]] = ("disagreement",)
    GUESS_MEASURE: ClassVar[str] = "guess_absolute_error"
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

    def guesses(self, outputs: torch.Tensor) -> torch.Tensor:
        """The score, cut to 0..1."""
        return self.predictions(outputs).squeeze(-1)

    def guess_quality(self, guesses: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The absolute error."""
        return (guesses - targets).abs()

    def right(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The squared error of the score, negative."""
        return -(self.predictions(outputs).squeeze(-1) - targets).square()

    def rank(self, means: Mapping[str, float]) -> tuple[float, ...]:
        """Lowest loss."""
        return (means["loss"],)

    def predictions(self, outputs: torch.Tensor) -> torch.Tensor:
        """The score, cut to the range of its scale, 0..1."""
        return outputs.float().clamp(0.0, 1.0)


def _entropy(outputs: torch.Tensor) -> torch.Tensor:
    logs = outputs.float().log_softmax(dim=-1)
    return -(logs.exp() * logs).sum(dim=-1)
