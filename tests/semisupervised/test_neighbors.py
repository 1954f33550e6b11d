"""Pseudo labels of neighbors against patches that are read and predicted one by one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.tables.patches import labeled_table
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.semisupervised.teaching.class_proportions import adapt, class_proportions
from histo_monai.semisupervised.teaching.neighbors import (
    NeighborWeights,
    PatchesAndNeighbors,
    combine,
    fit_weights,
    patches_and_neighbors,
    search_weights,
)
from histo_monai.slides import Box, open_slide
from histo_monai.training.prediction import predict, take_statistics
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from tests.students import statistics_of, taught
from tests.waves import WaveTask

P = 32
CPU = torch.device("cpu")


@pytest.fixture
def rows(tmp_path: Path, write_slide: Callable[..., Path], write_image: Callable[..., Path]) -> pd.DataFrame:
    """Squares of two slides at their own resolution, an image between them."""
    slides = [write_slide(tmp_path / f"slide{i}.tif", i) for i in range(2)]
    squares = [
        {
            "patch_id": str(i),
            "path": slides[i % 2],
            "side_px": P,
            "y": 100.0 + 50 * i,
            "x": 120.0 + 40 * i,
            "mpp": 1.0,
        }
        for i in range(6)
    ]
    image = {"patch_id": "image", "path": write_image(tmp_path / "image.png", 7), "side_px": P}
    return labeled_table([*squares[:3], image, *squares[3:]])


def _model(num_outputs: int) -> TaskModel:
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", num_outputs)
    with torch.no_grad():
        model.head.linear.weight.mul_(20)  # pseudo_labels that differ
    return model


@pytest.mark.parametrize("classes", [["a", "b", "c"], None])
def test_a_field_is_the_patch_and_the_eight_that_touch_it(
    rows: pd.DataFrame, classes: list[str] | None
) -> None:
    task = Task(classes, patch_px=P, device=CPU)
    model, reading = _model(task.num_outputs).eval(), PatchReading(P, classes, 0, task.device)
    seen = patches_and_neighbors(model, task, reading, rows, batch_size=30)
    pseudo_labels = combine(seen, NeighborWeights(0.5, 2.0), classes)
    for own, around, pseudo_label, (_, row) in zip(*seen, pseudo_labels, rows.iterrows(), strict=True):
        if np.isnan(row["y"]):
            alone = predict(model, task, reading.in_order(rows[rows["patch_id"] == "image"], 1).loader)[0]
            assert torch.equal(own, around)
            torch.testing.assert_close(own, alone if classes is None else alone.clamp(min=1e-4).log())
            continue
        predictions = []
        with open_slide(row["path"]) as slide:
            for down in (-P, 0, P):
                for right in (-P, 0, P):
                    pixels = torch.from_numpy(slide.read(Box((row["y"] + down, row["x"] + right), P, 1.0)))
                    with torch.no_grad():
                        predictions.append(
                            task.objective.predictions(model(pixels[None].float() / 255))[0].double()
                        )
        others = [*predictions[:4], *predictions[5:]]
        if classes is None:
            mean = sum(others) / 8
            torch.testing.assert_close(around.double(), mean, rtol=1e-3, atol=1e-5)
            truth = (predictions[4] + 2.0 * (mean - predictions[4])).clamp(0, 1)
        else:
            truth = predictions[4].clamp(min=1e-4) ** 0.5
            for probabilities in others:
                truth = truth * probabilities.clamp(min=1e-4) ** (2 / 8)
            truth = truth / truth.sum()
            assert float((truth - predictions[4]).abs().max()) > 1e-3  # neighbors say something else
        torch.testing.assert_close(pseudo_label.double(), truth, rtol=1e-3, atol=1e-5)


def test_neighbors_count_as_much_as_validation_patches_support() -> None:
    random = torch.Generator().manual_seed(0)
    targets = torch.randint(0, 3, (400,), generator=random)
    noise, truth = torch.randn(400, 3, generator=random).log_softmax(dim=1), torch.eye(3)[targets]
    sure = (2 * truth + torch.randn(400, 3, generator=random)).log_softmax(dim=1)
    assert search_weights(PatchesAndNeighbors(sure, noise), targets, has_neighbors=True).around == 0
    assert search_weights(PatchesAndNeighbors(noise, sure), targets, has_neighbors=True).own == 0
    found = search_weights(PatchesAndNeighbors(noise, sure), targets, has_neighbors=True)
    assert (
        found.around
        == search_weights(PatchesAndNeighbors(sure, noise), targets, has_neighbors=True).own
        == 2.0
    )  # what it was made by
    assert search_weights(PatchesAndNeighbors(noise, sure), targets, has_neighbors=False).around == 0
    scores = torch.rand(400, generator=random)
    near, far = (scores[:, None] + spread * torch.randn(400, 1, generator=random) for spread in (0.05, 0.5))
    assert search_weights(PatchesAndNeighbors(near, far), scores, has_neighbors=True) == NeighborWeights(
        1.0, 0.0
    )
    assert search_weights(PatchesAndNeighbors(far, near), scores, has_neighbors=True) == NeighborWeights(
        1.0, 1.0
    )


def test_without_validation_patches_a_patch_speaks_for_itself(rows: pd.DataFrame) -> None:
    task = Task(["a", "b", "c"], patch_px=P, device=CPU)
    model, reading = _model(3), PatchReading(P, task.classes, 0, task.device)
    weighing = fit_weights([(model, rows.head(0))], task, reading, 30)
    assert weighing == NeighborWeights(1.0, 0.0)
    pseudo_labels = combine(patches_and_neighbors(model, task, reading, rows, 30), weighing, task.classes)
    own = predict(model, task, reading.in_order(rows, 30).loader).clamp(min=1e-4)
    torch.testing.assert_close(pseudo_labels, own / own.sum(dim=1, keepdim=True), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("keeps", [False, True])
def test_adapted_is_what_a_student_without_steps_is(wave_task: Callable[..., WaveTask], keeps: bool) -> None:
    task = wave_task(16)
    statistics = statistics_of(task)
    start = _model(task.num_outputs)
    proportions = class_proportions(start, task, statistics) if keeps else None
    schedule = Schedule(epochs=0, optimizer="adamw", lr=1.0, weight_decay=0.0, steps_per_epoch=3)
    result, model = taught(task, start, "adabn", schedule=schedule, proportions=proportions)
    assert result.curves == []
    assert set(result.validation) == {"loss", "accuracy"}
    expected = copy.deepcopy(start)
    take_statistics(expected, task, statistics)
    student = model.state_dict()
    moved = {name for name, value in expected.state_dict().items() if not torch.equal(value, student[name])}
    assert moved == ({"head.linear.bias"} if keeps else set())
    if proportions is not None:
        torch.testing.assert_close(class_proportions(model, task, statistics), proportions, rtol=0, atol=1e-5)
    adapt(start, task, statistics, proportions)
    for name, value in start.state_dict().items():
        assert torch.equal(value, student[name]), name
