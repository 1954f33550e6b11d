"""Class proportions of unlabeled patches: estimate them, or balance probabilities to given ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from histo_monai.finetuning.class_offsets import log_odds_to
from histo_monai.utils.errors import InputError

TOLERANCE = 1e-9


def class_offsets(logits: NDArray, proportions: NDArray) -> NDArray[np.float64]:
    """Logit offset of each class that makes the mean probabilities equal the given proportions.

    The offsets depend only on the class, so they also apply to new patches.

    Args:
        logits: of unlabeled patches, Shape (N, K).
        proportions: of the classes, above 0, sum 1; Shape (K,).

    Returns:
        Shape (K,), mean 0.

    Raises:
        InputError: proportions are not above 0, or do not sum to 1.
    """
    if (proportions <= 0).any() or not np.isclose(proportions.sum(), 1):
        raise InputError(
            f"class proportions: expected numbers above 0 with sum 1, got {list(map(float, proportions))}. "
            "Fix: state one proportion for each class."
        )
    offsets = log_odds_to(
        torch.from_numpy(np.asarray(logits, np.float64)),
        torch.from_numpy(np.asarray(proportions, np.float64)),
        TOLERANCE,
    )
    return offsets.numpy()


def estimated_proportions(logits: NDArray, steps: int = 200) -> NDArray[np.float64]:
    """Class proportions of unlabeled patches by expectation-maximization (Saerens et al. 2002), from equal ones.

    Args:
        logits: of a model with equal class proportions in training, calibrated. Shape (N, K).

    Returns:
        Shape (K,), sum 1.
    """
    likelihoods = softmax(logits, axis=1)
    proportions = np.full(logits.shape[1], 1 / logits.shape[1])
    for _ in range(steps):
        posteriors = likelihoods * proportions
        proportions = (posteriors / posteriors.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.asarray(proportions)
