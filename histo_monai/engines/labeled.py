"""What trainings with labels share: labels beside the loader of their patches, a pass without gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from ignite.engine import Engine
from torch import nn
from torch.utils.data import DataLoader, Sampler

from histo_monai.engines.device import in_memory_order, precision, to_device
from histo_monai.engines.means import attach_means
from histo_monai.errors import InputError
from histo_monai.loading.loaders import EpochBatches, patch_loader
from histo_monai.loading.pixels import LabeledPatches
from histo_monai.loading.streams import ShuffledBatches
from histo_monai.losses import Classification, Objective, Regression
from histo_monai.networks.task_model import num_outputs
from histo_monai.tables.tasks import split_rows, task_classes, task_targets
from histo_monai.transforms.views import plain_view


@dataclass(frozen=True)
class LabeledLoader:
    """Batches of patches with their labels.

    Attributes:
        loader: gives pixels (n, 1, 3, P, P) uint8 and rows (n,) int64 of a table.
        targets: by row: class numbers int64, or scores float32. Shape (rows of the table,).
    """

    loader: DataLoader[Any]
    targets: torch.Tensor

    @property
    def batch_size(self) -> int:
        """Rows of a batch."""
        return self.loader.batch_sampler.batch_size  # type: ignore[union-attr]  # ours has it


class LabeledTask:
    """A table of labeled patches and how it is read: what every stage after pretraining works on.

    Args:
        patches: `tables.PATCH_COLUMNS`, all splits.
        patch_px: side of the patches that a network sees.
        workers: reading processes.
        device: where networks run.

    Attributes:
        patches: as above.
        classes: names by number; None for scores.
        objective: classification or regression.
        patch_px: as above.
        device: as above.
    """

    def __init__(
        self,
        patches: pd.DataFrame,
        *,
        patch_px: int,
        workers: int,
        device: torch.device,
    ) -> None:
        self.patches = patches
        self.classes = task_classes(patches)
        self.objective: Objective = Regression() if self.classes is None else Classification(self.classes)
        self.patch_px = patch_px
        self.device = device
        self._workers = workers

    @property
    def num_outputs(self) -> int:
        """Of a network for this task."""
        return num_outputs(self.classes)

    @property
    def mpp(self) -> float | None:
        """µm per pixel of the patches that a network sees; None where the training patches do not tell, or differ."""
        rows = split_rows(self.patches, "train")
        mpps = (rows["mpp"] * rows["side_px"] / self.patch_px).round(6).unique()
        return float(mpps[0]) if len(mpps) == 1 and mpps[0] > 0 else None

    def check_fits(self, description: Mapping[str, Any], path: Path) -> None:
        """Refuse a model of other classes, or one that saw patches of another size.

        Raises:
            InputError: names the file and what differs.
        """
        for name, ours in (("classes", self.classes), ("patch_px", self.patch_px)):
            if description[name] != ours:
                raise InputError(
                    f"{path}: its {name} are {description[name]}, those of the task {ours}; run finetune again"
                )

    def in_order(self, rows: pd.DataFrame, batch_size: int) -> LabeledLoader:
        """Every row once, in the order of the table."""
        return self._loader(rows, EpochBatches(len(rows), batch_size, seed=None))

    def shuffled(
        self, rows: pd.DataFrame, batch_size: int, *, seed: int, purpose: str, num_batches: int | None = None
    ) -> LabeledLoader:
        """Full batches, see `ShuffledBatches`."""
        batches = ShuffledBatches(len(rows), batch_size, num_batches=num_batches, seed=seed, purpose=purpose)
        return self._loader(rows, batches)

    def _loader(self, rows: pd.DataFrame, batches: Sampler[list[int]]) -> LabeledLoader:
        dataset = LabeledPatches(rows, patch_px=self.patch_px)
        pin = self.device.type == "cuda"
        loader = patch_loader(dataset, batches, workers=self._workers, pin=pin)
        return LabeledLoader(loader, task_targets(rows, self.classes))


def single_view(patches: torch.Tensor, size_px: int, device: torch.device) -> torch.Tensor:
    """(n, 1, 3, H, H) uint8 -> (n, 3, size_px, size_px) float32, 0..1, not augmented."""
    return in_memory_order(plain_view(patches.to(device, non_blocking=True), size_px).squeeze(1), device)


def spread(num_rows: int, num: int) -> np.ndarray:
    """Up to `num` row numbers at equal steps: tables are sorted, and steps through one show all classes and slides."""
    return np.linspace(0, num_rows - 1, min(num, num_rows)).round().astype(np.int64)


def some_patches(loader: DataLoader[Any], num: int) -> torch.Tensor:
    """The patches of the rows that `spread` gives, whatever the order of the loader. Shape (n, 1, 3, P, P), uint8."""
    dataset: Any = loader.dataset
    return dataset.__getitems__(spread(len(dataset), num).tolist())[0]


def build_evaluator(
    network: Callable[[torch.Tensor], torch.Tensor], task: LabeledTask, targets: torch.Tensor
) -> Engine:
    """An engine over validation batches: means of the objective's measures.

    Args:
        network: patches -> outputs, in evaluation mode.
        task: what is measured, and where.
        targets: by row.
    """

    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        patches, rows = batch
        with torch.no_grad(), precision(task.device):
            outputs = network(single_view(patches, task.patch_px, task.device))
        wanted = targets[rows].to(task.device)
        return task.objective.measure(outputs, wanted)

    evaluator = Engine(step)
    attach_means(evaluator, task.objective.MEASURES)
    return evaluator


def predict(network: nn.Module, task: LabeledTask, loader: Iterable[Any]) -> torch.Tensor:
    """Predictions of patches that are not augmented, in the order of the loader.

    Args:
        network: patches -> outputs; moved to the task's device.
        task: what is predicted, and where.
        loader: batches of patches and anything beside them.

    Returns:
        Shape (n, K), float32, on the CPU: probabilities of classes, or the score in 0..1.
    """
    to_device(network, task.device)
    network.eval()
    parts = []
    for patches, _ in loader:
        with torch.no_grad(), precision(task.device):
            outputs = network(single_view(patches, task.patch_px, task.device))
        parts.append(task.objective.predictions(outputs).cpu())
    return torch.cat(parts)


Picture = Callable[[np.ndarray, np.ndarray, Sequence[float]], np.ndarray]
"""(patches (n, 3, H, H) uint8, predictions (n, K), targets) -> (H, W, 3) uint8."""
