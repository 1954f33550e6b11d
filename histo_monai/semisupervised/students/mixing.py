"""Mixup of images and targets (Zhang et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from histo_monai.utils.randomness import Step
from histo_monai.utils.transfer import sent


@dataclass(frozen=True)
class Mixing:
    """Partners and weights of n images.

    Attributes:
        weights: weight of each image, Shape (n,), 1/2..1; the partner has the rest.
        order: number of the partner, Shape (n,).
    """

    weights: torch.Tensor
    order: torch.Tensor

    @classmethod
    def sample(cls, step: Step, num: int, beta: float, device: torch.device) -> Mixing:
        """Random mixing of a step; weights are max(x, 1 - x), x of Beta(beta, beta)."""
        rng = step.generator("mixing")
        weights = sent(torch.from_numpy(rng.beta(beta, beta, num)).float(), device)
        order = sent(torch.from_numpy(rng.permutation(num)), device)
        return cls(torch.maximum(weights, 1 - weights), order)

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Mixtures w values + (1 - w) values of the partners, in the shape (n, ...) of `values`."""
        weights = self.weights.view(-1, *[1] * (values.ndim - 1))
        return weights * values + (1 - weights) * values[self.order]


def sharpen(probabilities: torch.Tensor, temperature: float) -> torch.Tensor:
    """Normalized p^(1/T) (Berthelot et al. 2019, equation 7). Shape (n, K)."""
    largest = probabilities.amax(dim=1, keepdim=True)  # else all powers of a low temperature are 0
    powers = (probabilities / largest) ** (1 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)
