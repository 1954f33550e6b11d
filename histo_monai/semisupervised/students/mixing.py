"""Mixing of images and of what they shall be (Zhang et al. 2018), as semi-supervised methods do it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from histo_monai.utils.randomness import Step
from histo_monai.utils.transfer import sent


@dataclass(frozen=True)
class Mixing:
    """Partners and weights of n images.

    Attributes:
        weights: of each image itself, Shape (n,), 1/2..1: a mixture is closer to it than to its partner.
        order: number of the partner, Shape (n,).
    """

    weights: torch.Tensor
    order: torch.Tensor

    @classmethod
    def draw(cls, step: Step, num: int, beta: float, device: torch.device) -> Mixing:
        """Weights are the larger of x and 1 - x, x of Beta(beta, beta); a function of the step."""
        random = step.generator("mixing")
        weights = sent(torch.from_numpy(random.beta(beta, beta, num)).float(), device)
        order = sent(torch.from_numpy(random.permutation(num)), device)
        return cls(torch.maximum(weights, 1 - weights), order)

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """(n, ...) -> w values + (1 - w) those of the partners, of the same shape."""
        kept = self.weights.view(-1, *[1] * (values.ndim - 1))
        return kept * values + (1 - kept) * values[self.order]


def sharpen(probabilities: torch.Tensor, temperature: float) -> torch.Tensor:
    """p^(1/T), normalized (Berthelot et al. 2019, equation 7). Shape (n, K)."""
    powers = probabilities ** (1 / temperature)
    return powers / powers.sum(dim=1, keepdim=True)
