"""A task small enough to train in a test."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from histo_monai.data.loaders import labeled as labeled_loaders
from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.loaders.streams import shuffled
from histo_monai.data.tables.patches import labeled_table
from histo_monai.data.tables.tasks import task_classes
from histo_monai.models.encoder import Encoder
from histo_monai.training.task import Task

SIDE = 32


class Waves(Dataset[Any]):
    """Stands in for the reader: images of stripes, whose period tells the class or the score, on noise."""

    slides_to_mix = None  # no slide is read

    def __init__(self, table: pd.DataFrame, *, patch_px: int) -> None:
        period = torch.tensor([4.0 if label == "fine" else 12.0 for label in table["label"]])
        if table["score"].notna().any():
            period = 4.0 + 12.0 * torch.tensor(table["score"].to_numpy())
        number = table["patch_id"].str.removeprefix("patch-").astype(int)
        self.patches = torch.empty(len(table), 1, 3, patch_px, patch_px, dtype=torch.uint8)
        for i, seed in enumerate(number):
            generator = torch.Generator().manual_seed(int(seed))
            phase = torch.rand(1, generator=generator) * 16
            wave = torch.sin(2 * torch.pi * (torch.arange(patch_px) + phase) / period[i])
            noise = 20 * torch.randn(3, patch_px, patch_px, generator=generator)
            self.patches[i, 0] = (128 + 80 * wave + noise).clamp(0, 255).to(torch.uint8)

    def __len__(self) -> int:
        return len(self.patches)

    def __getitems__(self, rows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return self.patches[rows], torch.tensor(rows, dtype=torch.int64)


def wave_table(num: int, scores: bool) -> pd.DataFrame:
    """`num` patches of training, of validation and of test each, four to a patient."""
    rows = []
    for i in range(3 * num):
        split = ("train", "validation", "test")[i // num]
        row = {"patch_id": f"patch-{i}", "path": "x", "side_px": SIDE, "split": split}
        target = {"score": i % num / num} if scores else {"label": ("fine", "coarse")[i % 2]}
        rows.append({**row, **target, "patient_id": f"{split}-{i // 4}"})
    table = labeled_table(rows)
    table.loc[table["split"] == "train", "label_rank"] = [(i + 0.5) / num for i in range(num)]
    return table


class WaveTask(Task):
    """A task with the table that it is learned from, and how that is read: `in_order` and `shuffled`."""

    def __init__(self, patches: pd.DataFrame) -> None:
        super().__init__(task_classes(patches), patch_px=SIDE, device=torch.device("cpu"))
        self.patches = patches
        self.reading = PatchReading(SIDE, self.classes, workers=0, device=self.device)
        self.in_order, self.shuffled = self.reading.in_order, partial(shuffled, self.reading)


@pytest.fixture
def wave_task(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WaveTask]:
    """A function that gives a task over `Waves`, on the CPU."""
    monkeypatch.setattr(labeled_loaders, "LabeledPatches", Waves)

    def build(num: int = 24, scores: bool = False) -> WaveTask:
        return WaveTask(wave_table(num, scores))

    return build


def drop_features(network: nn.Module) -> None:
    """Let the encoders of a network drop half of their features in training."""

    def drop(encoder: nn.Module, _: Any, features: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(features, 0.5, training=encoder.training)

    for part in network.modules():
        if isinstance(part, Encoder):
            part.register_forward_hook(drop)
