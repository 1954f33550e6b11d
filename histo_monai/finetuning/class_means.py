"""Class means: a head of few labels that fits no weights, and the standardized features that it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.preprocessing import StandardScaler

from histo_monai.utils.process.products import product


class ClassMeans:
    """Classes by the cosine between a row and the mean of each class's rows, all rows at unit length.

    It has no weights to fit, so it needs no validation set (SimpleShot, Wang et al. 2019). Standardize features on
    unlabeled patches first, see `standardized`: of raw ones, what all patches have in common decides.

    Args:
        temperature: cosines are divided by it before the softmax.

    Attributes:
        classes_: numbers of the classes with a row, sorted.
        means_: Shape (classes, D), unit length.
    """

    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def fit(self, rows: NDArray, targets: NDArray) -> Self:
        """Learn from rows, Shape (n, D), and their classes, Shape (n,)."""
        self.classes_ = np.unique(targets)
        unit = _unit(rows)
        self.means_ = _unit(np.stack([unit[targets == number].mean(axis=0) for number in self.classes_]))
        return self

    def predict_proba(self, rows: NDArray) -> NDArray[np.float64]:
        """Softmax of the cosines; Shape (n, classes)."""
        return softmax(product(_unit(rows), self.means_.T) / self.temperature, axis=1)


def _unit(rows: NDArray) -> NDArray[np.float64]:
    """Rows at length 1; one of zeros stays."""
    rows = np.asarray(rows, np.float64)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(length > 0, length, 1.0)


def standardized(features: Mapping[str, NDArray], rows: NDArray[np.intp]) -> dict[str, NDArray]:
    """Features minus their mean over some rows, by their standard deviation there; constant ones are not scaled.

    Args:
        features: of all rows.
        rows: numbers of those that are looked at, such as all training patches, labeled or not.
    """
    return {name: StandardScaler().fit(x[rows]).transform(x) for name, x in features.items()}
