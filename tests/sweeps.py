"""Experiments whose files are made up: models that are right more often the more labels they had."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.predictions import predictions_table, write_predictions
from histo_monai.pipeline.commands import curves
from histo_monai.pipeline.experiments import Experiments

NUM = 240
CLASSES = ["normal", "tumor"]
MODELS = ("finetuned", "student")


def _rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    labels = np.array(CLASSES)[random.integers(2, size=NUM)]
    rows = pd.DataFrame({"patch_id": [f"p{i}" for i in range(NUM)], "split": "test", "label": labels})
    rows["slide_id"] = [f"s{i % 24}" for i in range(NUM)]
    return rows.assign(patient_id="", score=np.nan, rater_a=np.nan, rater_b=np.nan)


@dataclass(frozen=True)
class MadeUp:
    """An experiment.

    Attributes:
        name: of it.
        params: the tree of params.yaml.
        rev: of its commit.
        metrics: of its stages.
        gains: method -> how much more often its models are right than those without a pretraining.
        step: how much more often a student is right than its fine-tuned model, for each mu.
        run_noise: standard deviation of what each run adds by chance.
    """

    name: str
    params: dict[str, Any]
    rev: str = "r"
    metrics: dict[str, Any] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=lambda: {"random": 0.0, "rsp": 0.08})
    step: float = 0.01
    run_noise: float = 0.0

    def __post_init__(self) -> None:
        for method, seed in itertools.product(
            self.params["pretraining_methods"], self.params["training_seeds"]
        ):
            path = f"data/models/{method}-0-{seed}/finetuned/summary.json"
            self.metrics[path] = {"num_labeled": round(600 * self.params["alpha"])}

    def fetch(self, path: Path, target: Path) -> None:
        """Write the predictions of a run."""
        method, _, student, seed = path.parent.name.split("-")
        rows = _rows()
        predictions = {}
        for model, more in zip(MODELS, (0.0, self.step * self.params["mu"]), strict=True):
            alpha = self.params["alpha"]
            key = [int(seed), round(1000 * alpha), MODELS.index(model), *f"{method}{student}".encode()]
            chance = self.run_noise * np.random.default_rng(key).normal()
            accuracy = 0.8 + self.gains[method] + more + chance + 0.1 * np.log10(alpha)
            right = np.random.default_rng(int(seed)).random(NUM) < accuracy
            tumor = (rows["label"] == "tumor").to_numpy() == right
            predictions[model] = np.stack([np.where(tumor, 0.1, 0.9), np.where(tumor, 0.9, 0.1)], axis=1)
        write_predictions(target, [predictions_table(rows, predictions, CLASSES)])


def sweep(
    tree: Any, alphas: Sequence[float] = (0.1, 0.25, 0.5, 1.0), mus: Sequence[int] = (3, 7), **about: Any
) -> list[MadeUp]:
    """An experiment for each fraction of the labels and each mu."""
    settings = itertools.product(alphas, mus)
    return [MadeUp(f"exp-{a}-{mu}", tree | {"alpha": a, "mu": mu}, **about) for a, mu in settings]


def list_experiments(
    monkeypatch: pytest.MonkeyPatch,
    *done: MadeUp,
    failed: Sequence[str] = (),
    waiting: Sequence[str] = (),
) -> None:
    """Let the command find these."""
    found = Experiments(list(done), list(failed), list(waiting))  # type: ignore[arg-type]
    monkeypatch.setattr(curves, "read_experiments", lambda **_: found)
