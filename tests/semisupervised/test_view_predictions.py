from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.models.losses import Classification
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.params import load_params
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.teaching.view_predictions import predicted_by_views
from tests.conftest import ROOT
from tests.recipes import RECIPE

CPU = torch.device("cpu")


class _Brightness:
    """Predicts the brightness of an image, of weak views, and half of it of strong ones."""

    def __init__(self, scores: bool) -> None:
        self.network = torch.nn.Identity()
        self._scores = scores

    def pairs(self, batch: Batch) -> tuple[np.ndarray, ...]:
        views = (batch.unlabeled.squeeze(1) / 255).numpy()
        bright = views.mean(axis=(1, 2, 3))[:, None]
        weak, strong = bright, bright / 2
        if not self._scores:
            weak, strong = (np.concatenate([x, 1 - x], axis=1) for x in (weak, strong))
        return views, views, weak, strong


def _images(levels: list[int]) -> torch.Tensor:
    return torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1, 1, 1).expand(-1, 1, 3, 32, 32)


def test_fractions_of_predicted_classes_are_counted_over_all_patches() -> None:
    task: Any = SimpleNamespace(classes=["bright", "dark"], device=CPU)
    brightness: Any = _Brightness(scores=False)
    levels = [240] * 30 + [153] * 20 + [51] * 30  # more than a batch; of half the brightness none is bright
    found = predicted_by_views(brightness, task, _images(levels))
    assert found == {"bright": (50 / 80, 0.0), "dark": (30 / 80, 1.0)}


def test_of_scores_mean_and_spread_are_compared() -> None:
    task: Any = SimpleNamespace(classes=None, device=CPU)
    brightness: Any = _Brightness(scores=True)
    found = predicted_by_views(brightness, task, _images([255] * 40 + [0] * 40))
    assert found["mean"] == pytest.approx((0.5, 0.25))
    assert found["spread"] == pytest.approx((0.5, 0.25))


@pytest.mark.parametrize("name", ["paper", "spatial_neighbors"])
def test_a_look_at_the_views_changes_nothing_that_trains(name: str) -> None:
    torch.manual_seed(0)
    method = METHODS[name](
        model=TaskModel(build_encoder(), "pair", 2),
        objective=Classification(["a", "b"]),
        patch_px=32,
        mpp=1.0,
        n_aug=7,
        recipe=RECIPE,
        settings=load_params(ROOT / "params.yaml").consistency.methods[name],
    )
    before = copy.deepcopy(method.network.state_dict())
    task: Any = SimpleNamespace(classes=["a", "b"], device=CPU)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 1, 3, 32, 32), dtype=torch.uint8, generator=random)
    found = predicted_by_views(method, task, images)
    assert [sum(figures) for figures in zip(*found.values(), strict=True)] == pytest.approx([1, 1])
    after = method.network.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
