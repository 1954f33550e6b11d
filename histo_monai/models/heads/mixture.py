"""Mixture of heads on frozen features, as layers of a network. A description and its tensors rebuild it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from histo_monai.utils.storage.shapes import POSITIVE, Rule, Shape, misfit


def buffer(values: NDArray) -> torch.Tensor:
    """The array as a float32 tensor."""
    return torch.from_numpy(np.asarray(values, np.float32).copy())


class Linear(nn.Linear):
    """Linear outputs: (n, D) -> (n, K)."""

    def about(self) -> dict[str, Any]:
        """Description of the layer, for `Mixture.about`."""
        return {"kind": "linear"}


def linear(weights: NDArray, biases: NDArray) -> Linear:
    """A linear layer of given weights, Shape (K, D), and biases, Shape (K,)."""
    layer = Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(buffer(weights))
        layer.bias.copy_(buffer(biases))
    return layer.requires_grad_(False)


class Cosine(nn.Module):
    """Largest cosine to the prototypes of each class, by a temperature: (n, D) -> (n, K).

    Args:
        prototypes: Shape (P, D), unit length.
        owners: class of each prototype, Shape (P,).
        temperature: cosines are divided by it.
    """

    prototypes: torch.Tensor

    def __init__(self, prototypes: NDArray, owners: NDArray, temperature: float) -> None:
        super().__init__()
        self.register_buffer("prototypes", buffer(prototypes))
        self.owners = [int(number) for number in owners]
        self._of_class = [
            np.flatnonzero(owners == number).tolist() for number in range(int(owners.max()) + 1)
        ]
        self.temperature = temperature

    def about(self) -> dict[str, Any]:
        """Description of the layer, for `Mixture.about`."""
        return {"kind": "cosine", "owners": self.owners, "temperature": self.temperature}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, K)."""
        cosines = F.normalize(rows, dim=1) @ self.prototypes.T
        return torch.stack([cosines[:, own].amax(dim=1) for own in self._of_class], dim=1) / self.temperature


class Neighbors(nn.Module):
    """Votes of the k nearest labeled rows by cosine: (n, D) -> log fractions, (n, K), or the mean score, (n, 1).

    Args:
        rows: labeled rows of unit length, Shape (m, D).
        votes: of each row, Shape (m, K).
        num_neighbors: k.
        smoothing: added to the votes of each class; None for scores.
    """

    rows: torch.Tensor
    votes: torch.Tensor

    def __init__(self, rows: NDArray, votes: NDArray, num_neighbors: int, smoothing: float | None) -> None:
        super().__init__()
        self.register_buffer("rows", buffer(rows))
        self.register_buffer("votes", buffer(votes))
        self.num_neighbors, self.smoothing = num_neighbors, smoothing

    def about(self) -> dict[str, Any]:
        """Description of the layer, for `Mixture.about`."""
        numbers = {"num_neighbors": self.num_neighbors, "smoothing": self.smoothing}
        return {"kind": "neighbors", "rows": len(self.rows), **numbers}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, K)."""
        nearest = (F.normalize(rows, dim=1) @ self.rows.T).topk(self.num_neighbors, dim=1).indices
        votes = self.votes[nearest].sum(dim=1)
        if self.smoothing is None:
            return votes[:, :1] / votes[:, 1:]
        return (votes + self.smoothing).log()


class Kernel(nn.Module):
    """Weighted sum of Gaussian kernels around labeled rows: (n, D) -> (n, 1).

    Args:
        rows: Shape (m, D).
        coefficients: Shape (m,).
        offset: added to every score.
        gamma: the kernel is exp(-gamma |x - y|²).
    """

    rows: torch.Tensor
    coefficients: torch.Tensor

    def __init__(self, rows: NDArray, coefficients: NDArray, offset: float, gamma: float) -> None:
        super().__init__()
        self.register_buffer("rows", buffer(rows))
        self.register_buffer("coefficients", buffer(coefficients))
        self.offset, self.gamma = float(offset), float(gamma)

    def about(self) -> dict[str, Any]:
        """Description of the layer, for `Mixture.about`."""
        return {"kind": "kernel", "rows": len(self.rows), "offset": self.offset, "gamma": self.gamma}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, 1)."""
        squares = rows.square().sum(dim=1, keepdim=True) + self.rows.square().sum(dim=1)
        distances = (squares - 2 * rows @ self.rows.T).clamp(min=0)  # squared; ONNX has no cdist
        return torch.exp(-self.gamma * distances) @ self.coefficients[:, None] + self.offset


class MixedHead(NamedTuple):
    """A head of a mixture, and how it reads the encoder's features.

    Attributes:
        columns: of the features. Shape (D,).
        mean: subtracted from them. Shape (D,).
        factor: multiplies them afterwards. Shape (D,).
        head: standardized features, (n, D) -> logits of the classes with a label, (n, k), or scores, (n, 1).
        temperature: divides the logits.
        weight: of its probabilities or scores.
    """

    columns: NDArray
    mean: NDArray
    factor: NDArray
    head: nn.Module
    temperature: float
    weight: float


class Mixture(nn.Module):
    """Mixture of heads on features as the encoder gives them: (n, D) -> log-probabilities of K classes, or scores.

    The softmax of log-probabilities gives the probabilities.

    Args:
        parts: their weights sum to 1.
        known: numbers of the classes with a label; None for scores.
        num_classes: K; None for scores.
        unknown: probability of a class without a label, before all are normalized.
    """

    known: torch.Tensor

    def __init__(
        self, parts: Sequence[MixedHead], known: NDArray | None, num_classes: int | None, unknown: float
    ) -> None:
        super().__init__()
        for number, part in enumerate(parts):
            self.register_buffer(f"columns_{number}", torch.from_numpy(np.array(part.columns, np.int64)))
            self.register_buffer(f"mean_{number}", buffer(part.mean))
            self.register_buffer(f"factor_{number}", buffer(part.factor))
        self.heads = nn.ModuleList([part.head for part in parts])
        self.temperatures = [float(part.temperature) for part in parts]
        self.weights = [float(part.weight) for part in parts]
        self.num_classes, self.unknown = num_classes, unknown
        if known is not None:
            self.register_buffer("known", torch.from_numpy(np.array(known, np.int64)))

    @classmethod
    def from_about(cls, about: Any, num_features: int, num_classes: int | None) -> Self:
        """Mixture with tensors of zeros, for tensors from a file.

        Args:
            about: from `about`.
            num_features: D of the encoder.
            num_classes: K; None for scores.

        Raises:
            ValueError: `about` is not of such a mixture; names the key.
        """
        fault = misfit(about, _SHAPE, "mixture")
        if fault or not about["parts"]:
            raise ValueError(fault or "mixture.parts is empty")
        num_known = about["num_known"]
        if (num_known is None) != (num_classes is None) or not (num_known or 1) <= (num_classes or 1):
            raise ValueError(f"mixture.num_known is {num_known}, and there are {num_classes} classes")
        parts = []
        for number, part in enumerate(about["parts"]):
            if part["columns"] > num_features:
                raise ValueError(f"mixture.parts[{number}].columns is above the encoder's {num_features}")
            zeros = np.zeros(part["columns"])
            head = _HEADS[part["kind"]](part, part["columns"], num_known)
            parts.append(MixedHead(zeros, zeros, zeros, head, part["of_logits"], part["weight"]))
        known = None if num_known is None else np.zeros(num_known)
        return cls(parts, known, num_classes, about["unknown"])

    def about(self) -> dict[str, Any]:
        """Description, for JSON; with the tensors it rebuilds the mixture."""
        parts = [
            {
                **_about(head),
                "columns": len(self.get_buffer(f"columns_{number}")),
                "of_logits": temperature,
                "weight": weight,
            }
            for number, (head, temperature, weight) in enumerate(
                zip(self.heads, self.temperatures, self.weights, strict=True)
            )
        ]
        num_known = None if self.num_classes is None else len(self.known)
        return {"parts": parts, "num_known": num_known, "unknown": self.unknown}

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(n, D) -> (n, K) or (n, 1), float32 under autocast too."""
        with torch.autocast(features.device.type, enabled=False):
            return self._mixed(features.to(self.get_buffer("mean_0").dtype))

    def _mixed(self, features: torch.Tensor) -> torch.Tensor:
        total = features.new_zeros((features.shape[0], 1))
        for number, (head, temperature, weight) in enumerate(
            zip(self.heads, self.temperatures, self.weights, strict=True)
        ):
            columns, mean, factor = (
                self.get_buffer(f"{name}_{number}") for name in ("columns", "mean", "factor")
            )
            outputs = head((features[:, columns] - mean) * factor)
            if self.num_classes is not None:
                outputs = torch.softmax(outputs / temperature, dim=1)
            total = total + weight * outputs
        if self.num_classes is None:
            return total.clamp(0.0, 1.0)
        every = total.new_full((features.shape[0], self.num_classes), self.unknown)
        return every.index_copy(1, self.known, total.clamp(min=1e-12)).log()


def _about(head: Any) -> dict[str, Any]:
    about: dict[str, Any] = head.about()
    return about


def _cosine(about: Mapping[str, Any], num_columns: int, num_known: int | None) -> nn.Module:
    owners = np.array(about["owners"], np.int64)
    if num_known is None or set(owners.tolist()) != set(range(num_known)):
        raise ValueError(f"mixture: owners of its prototypes are not the {num_known} classes with labels")
    return Cosine(np.zeros((len(owners), num_columns)), owners, about["temperature"])


def _neighbors(about: Mapping[str, Any], num_columns: int, num_known: int | None) -> nn.Module:
    num_rows, smoothing = about["rows"], about["smoothing"]
    if about["num_neighbors"] > num_rows or (smoothing is None) != (num_known is None):
        raise ValueError(
            f"mixture: {about['num_neighbors']} neighbors of {num_rows} rows, smoothing {smoothing}"
        )
    votes = np.zeros((num_rows, num_known or 2))
    return Neighbors(np.zeros((num_rows, num_columns)), votes, about["num_neighbors"], smoothing)


def _kernel(about: Mapping[str, Any], num_columns: int, num_known: int | None) -> nn.Module:
    if num_known is not None:
        raise ValueError("mixture: a kernel gives scores, not classes")
    rows = np.zeros((about["rows"], num_columns))
    return Kernel(rows, np.zeros(len(rows)), about["offset"], about["gamma"])


_HEADS: dict[str, Callable[[Mapping[str, Any], int, int | None], nn.Module]] = {
    "linear": lambda about, num_columns, num_known: linear(
        np.zeros((num_known or 1, num_columns)), np.zeros(num_known or 1)
    ),
    "cosine": _cosine,
    "neighbors": _neighbors,
    "kernel": _kernel,
}
"""Kind of a layer -> its description, number of columns and of classes with a label (None for scores) -> the layer."""
_NUMBER = Rule("a whole number, 1 to 1,000,000", lambda value: type(value) is int and 1 <= value <= 10**6)
_NUMBER_FROM_0 = Rule(
    "a whole number, 0 to 1,000,000", lambda value: type(value) is int and 0 <= value <= 10**6
)
_SHAPE: Shape = {
    "parts": [
        {
            "kind": Rule(f"one of {', '.join(_HEADS)}", lambda value: value in list(_HEADS)),
            "columns": _NUMBER,
            "of_logits": POSITIVE,
            "weight": POSITIVE,
            "rows?": _NUMBER,
            "owners?": [_NUMBER_FROM_0],
            "temperature?": POSITIVE,
            "num_neighbors?": _NUMBER,
            "smoothing?": (POSITIVE, None),
            "offset?": float,
            "gamma?": POSITIVE,
        }
    ],
    "num_known": (_NUMBER, None),
    "unknown": POSITIVE,
}
