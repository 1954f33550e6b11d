"""Ridge regression of scores with a Gaussian kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from histo_monai.finetuning.heads.settings import KernelRidgeSettings
from histo_monai.models.heads import mixture
from histo_monai.utils.process.products import product


@dataclass(frozen=True)
class KernelModel:
    """Weighted sum of Gaussian kernels around labeled rows.

    Attributes:
        rows: Shape (m, D).
        coefficients: Shape (m,).
        offset: added to every score.
        gamma: the kernel is exp(-gamma |x - y|²).
    """

    rows: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    offset: float
    gamma: float

    def outputs(self, rows: NDArray) -> NDArray[np.float64]:
        """Logits, Shape (n, K), or scores, Shape (n, 1), of standardized features, Shape (n, D)."""
        kernel = np.exp(-self.gamma * cdist(rows, self.rows, "sqeuclidean"))
        return np.asarray(product(kernel, self.coefficients)[:, None] + self.offset)

    def module(self) -> mixture.Kernel:
        """Equal function as a torch module, float32."""
        return mixture.Kernel(self.rows, self.coefficients, self.offset, self.gamma)


class KernelRidge:
    """(K + λ diag(1 / w)) a = y - mean: coefficients a of rows with weights w. The module holds the labeled rows."""

    Settings: ClassVar = KernelRidgeSettings
    learns: ClassVar[tuple[str, ...]] = ("scores",)

    @staticmethod
    def fit(
        rows: NDArray,
        targets: NDArray,
        num_classes: int | None,
        weights: NDArray,
        grid: Sequence[tuple[float, float]],
    ) -> list[KernelModel]:
        """Fitted models (`protocol.Head.fit`); a setting is width and penalty."""
        distances = cdist(rows, rows, "sqeuclidean")
        between = distances[np.triu_indices(len(rows), 1)]
        median = float(np.median(between)) if (between > 0).any() else 1.0
        offset = float(np.average(targets, weights=weights))
        relative = weights / weights.mean()
        models = []
        for width, penalty in grid:
            gamma = 1 / (2 * width**2 * max(median, np.finfo(float).tiny))
            matrix = np.exp(-gamma * distances) + np.diag(penalty / relative)
            models.append(KernelModel(rows, np.linalg.solve(matrix, targets - offset), offset, gamma))
        return models
