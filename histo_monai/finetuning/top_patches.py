"""Linear scores of patches from labels of slides: a slide has the mean score of its highest patches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from histo_monai.finetuning.heads.rows import LinearModel

STEPS, MEAN_STEPS = 200, 20
LR = 0.02


@dataclass(frozen=True)
class TopPatchesSettings:
    """Settings of the training, selected on simulated lymph nodes (36 slides of 200 patches).

    Attributes:
        num_patches: number of highest patches per slide and class.
        penalty: of the sum of squared weights, for rows of mean squared length 100.
    """

    num_patches: int = 10
    penalty: float = 0.1


def fit_top_patches(
    bags: Sequence[NDArray],
    labels: NDArray[np.int64],
    num_classes: int,
    settings: TopPatchesSettings | None = None,
) -> LinearModel:
    """Linear layer from patch features to class scores, trained on slide labels alone.

    The logit of a class on a slide is the mean of the class's `num_patches` highest scores on the slide. Cross-entropy
    with equal class weights and an L2 penalty, Adam on all slides at once. The first steps take the mean of all
    patches, so that the start does not depend on the order of patches. Nothing is random.

    Args:
        bags: standardized features of each slide, Shape (n, D), n >= 1.
        labels: class of each slide, Shape (slides,).
        num_classes: K.
    """
    settings = settings or TopPatchesSettings()
    sizes = [len(bag) for bag in bags]
    rows = torch.from_numpy(np.concatenate(bags).astype(np.float32))
    scale = float(10 / rows.square().sum(dim=1).mean().sqrt().clamp_min(1e-12))
    targets = torch.from_numpy(labels)
    counts = torch.bincount(targets, minlength=num_classes).clamp_min(1)
    of_class = len(labels) / (num_classes * counts.float())
    weights = torch.zeros(rows.shape[1], num_classes, requires_grad=True)
    biases = torch.zeros(num_classes, requires_grad=True)
    optimizer = torch.optim.Adam([weights, biases], lr=LR)
    for step in range(STEPS):
        most = max(sizes) if step < MEAN_STEPS else settings.num_patches
        scores = (rows @ (weights * scale) + biases).split(sizes)
        loss = F.cross_entropy(torch.stack([top_mean(each, most) for each in scores]), targets, of_class)
        loss = loss + settings.penalty * weights.square().sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    found = (weights * scale).detach().double().numpy()
    return LinearModel(found.T.copy(), biases.detach().double().numpy())


def top_mean(scores: torch.Tensor, num_patches: int) -> torch.Tensor:
    """Mean of the highest scores of each class, Shape (K,), of patches' scores, Shape (n, K)."""
    return scores.topk(min(num_patches, len(scores)), dim=0).values.mean(dim=0)
