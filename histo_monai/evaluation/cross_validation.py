"""Cross-validation of a training on its labels, patients apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.training.interpolation import Candidates, Interpolation, Measures, Rank, lowest, pooled


class Trained(Protocol):
    """Result of a training, such as `FinetuneResult` and `StudentResult`."""

    @property
    def curves(self) -> list[dict[str, float]]:
        """One row per epoch."""

    @property
    def candidates(self) -> Candidates:
        """Candidates with measures on the fold's labeled patches."""

    @property
    def interpolation(self) -> Interpolation | None:
        """Interpolation between start and trained model; None where epochs are the candidates."""


Result = TypeVar("Result", bound=Trained)
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class CrossValidated(Generic[Model, Result]):
    """Models of all folds, and their predictions of held-out labels.

    Attributes:
        selected: the candidate of the lowest rank over all folds.
        validation: its means over all labeled patches, each measured by the model without the patch's patient.
        models: of each fold, at the selected candidate; where epochs are the candidates, at the fold's own best.
        results: of each fold.
        predictions: of all labeled patches, by the models without their patients. Shape (n, K).
    """

    selected: float
    validation: Measures
    models: list[Model]
    results: list[Result]
    predictions: NDArray[np.float32]

    @property
    def curves(self) -> list[dict[str, float]]:
        """Means over the folds, one row per epoch."""
        rows = pd.concat([pd.DataFrame(result.curves) for result in self.results])
        if rows.empty:
            return []
        means = rows.groupby("epoch", as_index=False).mean()
        return [{str(name): float(value) for name, value in row.items()} for row in means.to_dict("records")]


def cross_validate(
    folds: LabelFolds,
    labeled: pd.DataFrame,
    train: Callable[[int], tuple[Model, Result]],
    predict: Callable[[Model, pd.DataFrame], NDArray[np.float32]],
    rank: Rank,
) -> CrossValidated[Model, Result]:
    """Train without each fold, and select the candidate of the lowest rank on held-out labels.

    Args:
        folds: of the patients, at least two.
        labeled: labeled rows.
        train: held-out fold -> model and result of its training.
        predict: model and rows -> Shape (n, K).
    """
    fold_of = folds.of(labeled)
    trained = [train(fold) for fold in range(folds.num)]
    measured = pooled(
        [(result.candidates, int((fold_of == fold).sum())) for fold, (_, result) in enumerate(trained)]
    )
    selected = lowest(measured, rank)
    predictions: list[NDArray[np.float32]] = []
    for fold, (model, result) in enumerate(trained):
        if result.interpolation is not None:
            result.interpolation.move(selected)
        predictions.append(predict(model, labeled[fold_of == fold].reset_index(drop=True)))
    return CrossValidated(
        selected,
        measured[selected],
        [model for model, _ in trained],
        [result for _, result in trained],
        in_order_of_rows(fold_of, predictions),
    )


def in_order_of_rows(fold_of: NDArray[np.int64], of_folds: Sequence[NDArray]) -> NDArray:
    """Values of all rows in table order, from the values of each fold's rows.

    Args:
        fold_of: number of each row's fold. Shape (n,).
        of_folds: of each fold, in the order of its rows. Shape (rows of the fold, ...).
    """
    values = np.empty((len(fold_of), *of_folds[0].shape[1:]), of_folds[0].dtype)
    for fold, of_fold in enumerate(of_folds):
        values[fold_of == fold] = of_fold
    return values
