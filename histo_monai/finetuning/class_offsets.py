"""Offsets of class logits that give stated class proportions."""

from __future__ import annotations

import torch

_ROUNDS = 1000
_SMALLEST = 1e-6
"""Proportions below it are raised to it."""


def log_odds_to(logits: torch.Tensor, proportions: torch.Tensor, tolerance: float = 1e-6) -> torch.Tensor:
    """Additive change of each class's logits that gives the mean softmax `proportions`.

    Scales rows and columns in turn until convergence (Sinkhorn & Knopp 1967).

    Args:
        logits: Shape (n, K), float64.
        proportions: Shape (K,), sum 1; zeros are raised to 1e-6.
        tolerance: largest difference between the mean softmax and `proportions`.

    Returns:
        Shape (K,), float64; sum 0.
    """
    proportions = proportions.clamp(min=_SMALLEST)
    change = torch.zeros_like(proportions)
    for _ in range(_ROUNDS):
        present = (logits + change).softmax(dim=1).mean(dim=0)
        if float((present - proportions).abs().max()) < tolerance:
            break
        change += proportions.log() - present.log()
    return change - change.mean()
