"""Temperature of logits, and weights of a mixture, from cross-validated predictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

LOWEST, HIGHEST = 0.02, 50.0
MIXTURE_STEPS = 200


def log_losses(logits: NDArray, targets: NDArray, temperature: float) -> NDArray[np.float64]:
    """Negative log-probability of the class of each row, Shape (n,)."""
    return np.asarray(-log_softmax(logits / temperature, axis=1)[np.arange(len(targets)), targets])


def temperature_of(logits: NDArray, targets: NDArray, weights: NDArray) -> float:
    """Temperature of the lowest weighted log loss (Guo et al. 2017), within `LOWEST`..`HIGHEST`.

    Args:
        logits: held-out, Shape (n, K).
        targets: classes by number, Shape (n,).
        weights: of the rows, Shape (n,).
    """

    def loss(log_temperature: float) -> float:
        return float(np.average(log_losses(logits, targets, np.exp(log_temperature)), weights=weights))

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def mixture_weights(likelihoods: NDArray, weights: NDArray) -> NDArray[np.float64]:
    """Weights of a mixture by expectation-maximization from equal weights; no step raises the log loss.

    Args:
        likelihoods: held-out probability of each row's class by each part. Shape (n, parts).
        weights: of the rows, Shape (n,).

    Returns:
        Shape (parts,), sum 1.
    """
    mixture = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    likelihoods = np.maximum(likelihoods, np.finfo(float).tiny)
    for _ in range(MIXTURE_STEPS):
        responsibilities = likelihoods * mixture
        responsibilities /= responsibilities.sum(axis=1, keepdims=True)
        mixture = np.average(responsibilities, axis=0, weights=weights)
    return mixture
