"""Ridge regression of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from histo_monai.finetuning.heads.rows import LinearModel
from histo_monai.finetuning.heads.settings import RidgeSettings
from histo_monai.utils.process.products import product


class Ridge:
    """Least squares with an L2 penalty; one singular value decomposition serves all penalties."""

    Settings: ClassVar = RidgeSettings
    learns: ClassVar[tuple[str, ...]] = ("scores",)

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[float]
    ) -> list[LinearModel]:
        """Fitted models (`protocol.Head.fit`); a setting times D is the penalty."""
        mean, offset = np.average(rows, axis=0, weights=weights), np.average(targets, weights=weights)
        root = np.sqrt(weights)
        left, singular, basis = np.linalg.svd((rows - mean) * root[:, None], full_matrices=False)
        along = singular * product(left.T, (targets - offset) * root)
        models = []
        for penalty in grid:
            slope = product(along / (np.square(singular) + penalty * rows.shape[1]), basis)
            models.append(LinearModel(slope[None], np.array([offset - product(slope, mean)])))
        return models
