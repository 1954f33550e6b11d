"""Logistic regression with an L2 penalty, classes weighted equally."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import ClassVar

from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from histo_monai.finetuning.heads.rows import LinearModel, balanced, row_space
from histo_monai.finetuning.heads.settings import LogisticSettings
from histo_monai.finetuning.learners import MOST_ITERATIONS, class_logits, no_flags
from histo_monai.utils.process.products import product


class Logistic:
    """Multinomial logistic regression by scikit-learn, in the span of the rows."""

    Settings: ClassVar = LogisticSettings
    learns: ClassVar[tuple[str, ...]] = ("classes",)

    @staticmethod
    def fit(
        rows: NDArray, targets: NDArray, num_classes: int | None, weights: NDArray, grid: Sequence[float]
    ) -> list[LinearModel]:
        """Fitted models (`protocol.Head.fit`); a setting is an inverse penalty."""
        coordinates, basis = row_space(rows)
        equal = balanced(targets, weights)
        models = []
        for strength in grid:
            fitted = LogisticRegression(C=strength, max_iter=MOST_ITERATIONS)
            with warnings.catch_warnings(), no_flags():
                warnings.simplefilter("ignore", ConvergenceWarning)  # Early stops are scored as they are.
                fitted.fit(coordinates, targets, sample_weight=equal)
            logit_weights, biases = class_logits(fitted.coef_, fitted.intercept_)
            models.append(LinearModel(product(logit_weights, basis), biases))
        return models
