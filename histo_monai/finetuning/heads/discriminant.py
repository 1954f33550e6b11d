"""Linear discriminant analysis with a shrunk covariance and equal priors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.heads.rows import LinearModel
from histo_monai.finetuning.heads.settings import DiscriminantSettings
from histo_monai.utils.process.products import product

LEAST_VARIANCE = 1e-6
"""Least variance, relative to the mean square of the rows: a class with one row has no variance."""

_NEGLIGIBLE = 1e-14
"""Least eigenvalue, relative to the largest, that a product of rows gives with some digits."""


class Discriminant:
    """Gaussian classes of one covariance, (1 - s) W + s tr(W) / D I; W is the pooled covariance within classes.

    The rank of W is at most n, so one decomposition of the centered rows inverts it at every shrinkage (Friedman 1989).
    Priors are equal, because held-out patients have other class proportions.
    """

    Settings: ClassVar = DiscriminantSettings
    learns: ClassVar[tuple[str, ...]] = ("classes",)

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[float]
    ) -> list[LinearModel]:
        """Fitted models (`protocol.Head.fit`); a setting is a shrinkage s, 0 < s <= 1."""
        one_hot = np.eye(num_classes or 0)[targets] * weights[:, None]
        means = product(one_hot.T, rows) / one_hot.sum(axis=0)[:, None]
        centered = (rows - means[targets]) * np.sqrt(weights / weights.sum())[:, None]
        variances, basis = _principal_axes(centered)
        least = LEAST_VARIANCE * float(np.square(rows).mean()) or 1.0
        mean_variance = max(float(variances.sum()) / rows.shape[1], least)
        coordinates = product(means, basis.T)
        models = []
        for shrinkage in grid:
            ridge = shrinkage * mean_variance
            factors = (1 - shrinkage) * variances / ((1 - shrinkage) * variances + ridge)
            directions = (means - product(coordinates * factors, basis)) / ridge
            models.append(LinearModel(directions, -(directions * means).sum(axis=1) / 2))
        return models


def _principal_axes(rows: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Squared singular values of rows (n, D), and their right singular vectors, by the smaller of the two products.

    Returns:
        Shape (r,) and (r, D), r at most min(n, D): singular values below 1e-7 of the largest are left out, since a
        product of rows loses half of the digits.
    """
    num, width = rows.shape
    if num >= width:
        values, vectors = np.linalg.eigh(product(rows.T, rows))
        selected = values > _NEGLIGIBLE * values[-1]
        return values[selected], vectors[:, selected].T
    values, vectors = np.linalg.eigh(product(rows, rows.T))
    selected = values > _NEGLIGIBLE * values[-1]
    return values[selected], product((vectors[:, selected] / np.sqrt(values[selected])).T, rows)
