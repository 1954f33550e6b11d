from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from histo_monai.data.tables.tasks import split_rows
from histo_monai.evaluation.estimates import differences, estimate, predict_splits
from tests.waves import WaveTask

TaskBuilder = Callable[..., WaveTask]


class Brightness(nn.Module):
    """A model that looks at one number of the image."""

    def __init__(self, num_outputs: int, sign: float) -> None:
        super().__init__()
        self.num_outputs, self.sign = num_outputs, sign

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        value = self.sign * patches.mean(dim=(1, 2, 3)).unsqueeze(1)
        return torch.cat([value, -value], dim=1)[:, : self.num_outputs]


def _models(task: WaveTask) -> dict[str, nn.Module]:
    return {"finetuned": Brightness(task.num_outputs, 1.0), "student": Brightness(task.num_outputs, -1.0)}


@pytest.mark.parametrize("scores", [False, True])
def test_every_split_has_predictions_of_every_model_in_the_order_of_its_rows(
    wave_task: TaskBuilder, scores: bool
) -> None:
    task = wave_task(24, scores)
    models = _models(task)
    loaders = {split: task.in_order(split_rows(task.patches, split), 7) for split in ("validation", "test")}
    predictions = predict_splits(models, task, loaders)
    assert set(predictions) == set(loaders)
    for split, predicted in predictions.items():
        assert set(predicted) == {"finetuned", "student"}
        loader = task.in_order(split_rows(task.patches, split), 24).loader
        patches = next(iter(loader))[0].squeeze(1).float() / 255
        expected = task.objective.predictions(models["student"](patches)).numpy()
        np.testing.assert_allclose(predicted["student"], expected, atol=1e-6)


def test_perfect_predictions_have_perfect_numbers_and_the_difference_is_that_of_the_accuracies(
    wave_task: TaskBuilder,
) -> None:
    task = wave_task(24)
    rows = split_rows(task.patches, "test")
    right = np.eye(2)[task.in_order(rows, 24).targets.numpy()]
    predictions = {"student": right, "finetuned": np.where(np.arange(24)[:, None] < 6, 1 - right, right)}
    estimates = estimate(task, rows, predictions, seed=0)
    assert estimates["student"]["accuracy"].value == 1.0
    assert estimates["finetuned"]["accuracy"].value == pytest.approx(0.75)
    assert estimates["finetuned"]["accuracy"].n == 6  # patients
    difference = differences(task, rows, predictions, seed=0)["student_minus_finetuned"]["accuracy"]
    assert difference.value == pytest.approx(0.25)


def test_two_raters_give_agreement_with_each_and_the_human_ceiling(wave_task: TaskBuilder) -> None:
    task = wave_task(24, scores=True)
    rows = split_rows(task.patches, "test")
    predictions = {"student": rows[["score"]].to_numpy()}
    assert set(estimate(task, rows, predictions, seed=0)["student"]) >= {"icc", "pk", "mae"}
    rated = rows.assign(rater_a=rows["score"], rater_b=np.clip(rows["score"] + 0.1, 0, 1))
    estimates = estimate(task, rated, predictions, seed=0)
    assert estimates["student"]["icc_a"].value == pytest.approx(1.0)
    assert estimates["student"]["mae_b"].value == pytest.approx(
        np.abs(rated["rater_b"] - rated["score"]).mean()
    )
    assert estimates["human"]["icc"].value == pytest.approx(estimates["student"]["icc_b"].value)


def test_a_model_of_other_classes_or_patches_is_refused(wave_task: TaskBuilder) -> None:
    task = wave_task(4)
    task.check_fits({"classes": ["coarse", "fine"], "patch_px": 32}, Path("m"))
    with pytest.raises(ValueError, match=r"m: classes is \['a', 'b'\]"):
        task.check_fits({"classes": ["a", "b"], "patch_px": 32}, Path("m"))
    with pytest.raises(ValueError, match="m: patch_px is 64"):
        task.check_fits({"classes": ["coarse", "fine"], "patch_px": 64}, Path("m"))
