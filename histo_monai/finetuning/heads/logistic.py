"""Logistic regression with an L2 penalty, classes weighted equally."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from histo_monai.finetuning.heads.rows import LinearModel, balanced, row_space
from histo_monai.finetuning.heads.settings import LogisticSettings
from histo_monai.utils.process.products import product

MOST_ITERATIONS = 100


class Logistic:
    """Multinomial logistic regression by scikit-learn, in the span of the rows."""

    Settings: ClassVar = LogisticSettings
    learns: ClassVar[tuple[str, ...]] = ("classes",)

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[float]
    ) -> list[LinearModel]:
        """See `protocol.Head`; settings are inverse penalties."""
        coordinates, basis = row_space(rows)
        equal = balanced(targets, weights)
        models = []
        for strength in grid:
            fitted = LogisticRegression(C=strength, max_iter=MOST_ITERATIONS)
            with warnings.catch_warnings(), np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                warnings.simplefilter(
                    "ignore", ConvergenceWarning
                )  # A model that stopped early is scored as it is.
                fitted.fit(coordinates, targets, sample_weight=equal)
            weights_, biases = fitted.coef_, fitted.intercept_
            if num_classes == 2:  # scikit-learn gives the log odds of the second class.
                weights_, biases = (
                    np.concatenate([-weights_, weights_]) / 2,
                    np.array([-1.0, 1.0]) * biases / 2,
                )
            models.append(LinearModel(product(weights_, basis), biases))
        return models
