"""Cosine to class means, shrunk means, or several prototypes per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from histo_monai.finetuning.class_means import unit
from histo_monai.finetuning.heads.settings import ClassMeansSettings
from histo_monai.models.heads import mixture
from histo_monai.utils.process.products import product

TEMPERATURE = 0.2
"""Temperature before calibration."""


@dataclass(frozen=True)
class CosineModel:
    """Largest cosine to the prototypes of each class, divided by `TEMPERATURE`.

    Attributes:
        prototypes: Shape (P, D), unit length.
        owners: class of each, Shape (P,).
    """

    prototypes: NDArray[np.float64]
    owners: NDArray[np.int64]

    def outputs(self, rows: NDArray) -> NDArray[np.float64]:
        """Logits, Shape (n, K), or scores, Shape (n, 1), of standardized features, Shape (n, D)."""
        cosines = product(unit(rows), self.prototypes.T)
        classes = range(int(self.owners.max()) + 1)
        largest = [cosines[:, self.owners == number].max(axis=1) for number in classes]
        return np.stack(largest, axis=1) / TEMPERATURE

    def module(self) -> mixture.Cosine:
        """Equal function as a torch module, float32."""
        return mixture.Cosine(self.prototypes, self.owners, TEMPERATURE)


class ClassMeans:
    """Class means on the sphere (SimpleShot, Wang et al. 2019).

    Shrunk means follow nearest shrunken centroids (Tibshirani et al. 2002): deviations of a class mean from the mean of
    class means are soft-thresholded. Several prototypes per class are k-means centers of its rows.
    """

    Settings: ClassVar = ClassMeansSettings
    learns: ClassVar[tuple[str, ...]] = ("classes",)

    @staticmethod
    def fit(
        rows: NDArray,
        targets: NDArray,
        num_classes: int | None,
        weights: NDArray,
        grid: Sequence[tuple[float, int, int]],
    ) -> list[CosineModel]:
        """Fitted models (`protocol.Head.fit`); a setting is threshold, prototypes, labels per prototype."""
        points = unit(rows)
        classes = range(num_classes or 0)
        of_class = [(points[targets == number], weights[targets == number]) for number in classes]
        by_prototypes = {
            (number, labels_each): [
                _centers(own, own_weights, max(1, min(number, len(own) // labels_each)))
                for own, own_weights in of_class
            ]
            for number, labels_each in {setting[1:] for setting in grid}
        }
        models = []
        for threshold, number, labels_each in grid:
            centers = by_prototypes[number, labels_each]
            owners = np.repeat(np.arange(len(centers)), [len(own) for own in centers])
            overall = np.mean([own.mean(axis=0) for own in centers], axis=0)
            means = overall + soft_threshold(np.concatenate(centers) - overall, threshold)
            models.append(CosineModel(unit(means), owners))
        return models


def _centers(points: NDArray, weights: NDArray, number: int) -> NDArray[np.float64]:
    if number == 1:
        return np.average(points, axis=0, weights=weights)[None]
    means = KMeans(number, n_init=3, random_state=0).fit(points, sample_weight=weights)
    return np.asarray(means.cluster_centers_, np.float64)


def soft_threshold(deviations: NDArray, threshold: float) -> NDArray[np.float64]:
    """Move every value towards 0 by `threshold` times the row's root mean square, and not across 0."""
    size = threshold * np.sqrt(np.square(deviations).mean(axis=1, keepdims=True))
    return np.asarray(np.sign(deviations) * np.maximum(np.abs(deviations) - size, 0.0))
