"""Settings of heads on frozen features and of their selection, read without torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from histo_monai.utils.settings.rules import Range, Unique

Fraction = Annotated[float, Range(0.0, 1.0)]
Positive = Annotated[float, Range(0.0, exclusive_low=True)]
Natural = Annotated[int, Range(1)]


@dataclass(frozen=True)
class HeadSettings(ABC):
    """Candidate values of a head's settings; cross-validation selects one of each."""

    @abstractmethod
    def grid(self) -> list[Any]:
        """All settings of the head, for `protocol.Head.fit`; ties select the first."""


@dataclass(frozen=True)
class ClassMeansSettings(HeadSettings):
    """Cosine to class means.

    Attributes:
        thresholds: of shrunk means: deviations from the overall mean shrink by this many root mean squares.
        prototypes: numbers of prototypes per class, at most labels / `labels_per_prototype`.
        labels_per_prototype: least number of labels per prototype.
    """

    thresholds: Annotated[tuple[Annotated[float, Range(0.0)], ...], Unique()] = (0.0, 1.0)
    prototypes: Annotated[tuple[Natural, ...], Unique()] = (1, 4)
    labels_per_prototype: Natural = 5

    def grid(self) -> list[tuple[float, int, int]]:
        """Threshold, prototypes, labels per prototype."""
        return [
            (threshold, number, self.labels_per_prototype)
            for number in self.prototypes
            for threshold in self.thresholds
        ]


@dataclass(frozen=True)
class LogisticSettings(HeadSettings):
    """Logistic regression; `strengths` are inverse L2 penalties."""

    strengths: Annotated[tuple[Positive, ...], Unique()] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)

    def grid(self) -> list[float]:
        """Strengths."""
        return list(self.strengths)


@dataclass(frozen=True)
class NeighborsSettings(HeadSettings):
    """k nearest neighbors by cosine; `neighbors` are values of k."""

    neighbors: Annotated[tuple[Natural, ...], Unique()] = (5, 11, 21, 41)

    def grid(self) -> list[int]:
        """Values of k."""
        return list(self.neighbors)


@dataclass(frozen=True)
class DiscriminantSettings(HeadSettings):
    """Linear discriminant; `shrinkages` are weights of the scaled identity in the covariance."""

    shrinkages: Annotated[tuple[Annotated[float, Range(0.0, 1.0, exclusive_low=True)], ...], Unique()] = (
        0.99,
        0.9,
        0.7,
        0.4,
        0.1,
    )

    def grid(self) -> list[float]:
        """Shrinkages."""
        return list(self.shrinkages)


@dataclass(frozen=True)
class RidgeSettings(HeadSettings):
    """Ridge regression of scores; penalties are multiples of the number of features."""

    penalties: Annotated[tuple[Positive, ...], Unique()] = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03)

    def grid(self) -> list[float]:
        """Penalties."""
        return list(self.penalties)


@dataclass(frozen=True)
class KernelRidgeSettings(HeadSettings):
    """Ridge regression of scores with a Gaussian kernel.

    Attributes:
        widths: of the kernel, in medians of the distances between labeled rows.
        penalties: added to the diagonal of the kernel matrix.
    """

    widths: Annotated[tuple[Positive, ...], Unique()] = (2.0, 1.0)
    penalties: Annotated[tuple[Positive, ...], Unique()] = (3.0, 1.0, 0.3, 0.1, 0.03)

    def grid(self) -> list[tuple[float, float]]:
        """Width and penalty."""
        return [(width, penalty) for width in self.widths for penalty in self.penalties]


@dataclass(frozen=True)
class SelectionSettings:
    """Settings of the comparison of heads inside the label budget.

    Attributes:
        class_heads: names in `HEADS` for classes. The first is the default head.
        score_heads: names in `HEADS` for scores. The first is the default head.
        rule: "best": lowest cross-validated loss. "one_se": the default head unless another head's loss is lower by
            more than one standard error over patients. "average": equal mean of each head at its best setting.
            "stack": their mean with weights that minimize the cross-validated loss.
        depths: "each": every depth is a candidate. "concatenated": all depths side by side. "both": either.
        num_folds: maximum number of patient folds.
    """

    class_heads: Annotated[tuple[str, ...], Unique()] = (
        "class_means",
        "logistic",
        "neighbors",
        "discriminant",
    )
    score_heads: Annotated[tuple[str, ...], Unique()] = ("ridge", "kernel_ridge", "neighbors")
    rule: Literal["best", "one_se", "average", "stack"] = "average"
    depths: Literal["each", "concatenated", "both"] = "both"
    num_folds: Annotated[int, Range(2)] = 5
    heads: dict[str, HeadSettings] = field(default_factory=dict)
