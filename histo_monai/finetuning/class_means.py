"""Nearest class mean for few labels, and standardized features for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.preprocessing import StandardScaler

from histo_monai.utils.process.products import product


class ClassMeans:
    """Classifier by the cosine between a row and each class mean, all at unit length.

    It fits no weights, so it needs no validation set (SimpleShot, Wang et al. 2019). Features need `standardized`
    first: the common component of all patches dominates the cosines of raw features.

    Args:
        temperature: divides the cosines before the softmax.

    Attributes:
        classes_: numbers of the classes with a row, sorted.
        means_: Shape (classes, D), unit length.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def fit(self, rows: NDArray, targets: NDArray) -> Self:
        """Fit to rows, Shape (n, D), and their classes, Shape (n,)."""
        self.classes_ = np.unique(targets)
        points = unit(rows)
        self.means_ = unit(np.stack([points[targets == number].mean(axis=0) for number in self.classes_]))
        return self

    def predict_proba(self, rows: NDArray) -> NDArray[np.float64]:
        """Softmax of the cosines; Shape (n, classes)."""
        return softmax(product(unit(rows), self.means_.T) / self.temperature, axis=1)


def unit(rows: NDArray) -> NDArray[np.float64]:
    """Rows at length 1, float64; zero rows stay zero."""
    rows = np.asarray(rows, np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)


def standardized(features: Mapping[str, NDArray], rows: NDArray[np.intp]) -> dict[str, NDArray]:
    """Features minus mean, divided by standard deviation, both over some rows; constant features are not scaled.

    Args:
        features: of all rows.
        rows: numbers of the rows with the statistics, such as all training patches, labeled or not.
    """
    return {name: StandardScaler().fit(x[rows]).transform(x) for name, x in features.items()}
