"""Cross-validation of a training: which candidate it selects, and what it predicts of labels that were held out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.evaluation.cross_validation import CrossValidated, cross_validate, in_order_of_rows
from histo_monai.training.interpolation import Interpolation, Measures, Rank

PATIENTS = ["a", "b", "c", "a", "b", "c", "c"]
FOLDS = LabelFolds({"patient a": 0, "patient b": 1, "patient c": 0})


@dataclass(frozen=True)
class Trained:
    """What a training leaves."""

    candidates: dict[float, Measures]
    interpolation: Interpolation | None = None
    curves: list[dict[str, float]] = field(default_factory=list)


def _labeled() -> pd.DataFrame:
    ids = [str(i) for i in range(len(PATIENTS))]
    return pd.DataFrame({"patch_id": ids, "patient_id": PATIENTS, "slide_id": "", "label": "x"})


def _point(weight: float) -> nn.Linear:
    network = nn.Linear(1, 1, bias=False)
    network.weight.data.fill_(weight)
    return network


def _says(model: nn.Linear, rows: pd.DataFrame) -> NDArray[np.float32]:
    """The weight of the model beside the number of each patch."""
    weights = np.full(len(rows), model.weight.item())
    return np.stack([weights, rows["patch_id"].astype(float)], axis=1).astype(np.float32)


def _by_loss(measures: Measures) -> tuple[float, ...]:
    return (measures["loss"],)


def _validated(
    losses: list[dict[float, float]], *, with_interpolation: bool, rank: Rank = _by_loss
) -> CrossValidated[nn.Linear, Trained]:
    """The model without fold i ends at weight i + 1, and starts from 10."""

    def train(fold: int) -> tuple[nn.Linear, Trained]:
        model = _point(fold + 1.0)
        interpolation = Interpolation(model, _point(10.0), lambda: None) if with_interpolation else None
        measured = {candidate: {"loss": loss} for candidate, loss in losses[fold].items()}
        curves = [{"epoch": 1.0, "train_loss": float(fold)}, {"epoch": 2.0, "train_loss": 4.0}]
        return model, Trained(measured, interpolation, curves)

    return cross_validate(FOLDS, _labeled(), train, _says, rank)


def test_the_candidate_of_the_lowest_mean_over_all_held_out_patches_is_selected() -> None:
    of_folds = [{0.0: 1.0, 0.5: 2.0, 1.0: 3.0}, {0.0: 9.0, 0.5: 1.0, 1.0: 1.0}]  # of 5 and of 2 patches
    validated = _validated(of_folds, with_interpolation=True)
    means = {
        candidate: (5 * of_folds[0][candidate] + 2 * of_folds[1][candidate]) / 7 for candidate in of_folds[0]
    }
    assert validated.selected == min(means, key=means.__getitem__) == 0.5
    assert validated.validation["loss"] == pytest.approx(means[0.5])
    assert [model.weight.item() for model in validated.models] == [5.5, 6.0]  # all at the selected point


def test_every_label_is_predicted_by_the_model_without_its_patient() -> None:
    validated = _validated([{0.0: 1.0}, {0.0: 1.0}], with_interpolation=True)
    np.testing.assert_array_equal(validated.predictions[:, 1], np.arange(7))
    np.testing.assert_array_equal(validated.predictions[:, 0], [1, 2, 1, 1, 2, 1, 1])


def test_epochs_are_ranked_as_the_task_asks() -> None:
    validated = _validated(
        [{1.0: 1.0, 2.0: 3.0}, {1.0: 1.0, 2.0: 3.0}],
        with_interpolation=False,
        rank=lambda measures: (-measures["loss"],),
    )
    assert validated.selected == 2.0  # the rank of this test likes large losses
    assert validated.curves == [{"epoch": 1.0, "train_loss": 0.5}, {"epoch": 2.0, "train_loss": 4.0}]


def test_rows_of_folds_come_back_in_their_order() -> None:
    values = torch.arange(12).reshape(6, 2).numpy()
    fold_of = np.array([2, 0, 1, 0, 2, 1])
    of_folds = [values[fold_of == fold] for fold in range(3)]
    np.testing.assert_array_equal(in_order_of_rows(fold_of, of_folds), values)
