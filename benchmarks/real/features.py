"""Features of all patches of a dataset, computed once and saved under the digests of what they come from."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.loaders.streams import for_statistics
from histo_monai.evaluation.baselines.colors import STAINS, color_features
from histo_monai.finetuning.depth import WHOLE, depth_features
from histo_monai.finetuning.heads.features import COLOR_NAME
from histo_monai.models.task_model import from_encoder
from histo_monai.training.prediction import take_statistics
from histo_monai.training.task import Task
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import whole_file

from .encoders import description_of, digest_of, keeps_statistics, sides_of
from .tasks import DATASETS, RealTask, data_digest, fold_of_rows, read_patches

_LOG = logging.getLogger(__name__)
BATCH = 32
STATISTICS_PATCHES = 1024

Features = dict[str, NDArray]
"""Name of the features -> Shape (n, D), a row for every patch of the dataset."""


class Source(Protocol):
    """Where features come from."""

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """Of all that decides the features."""

    def features(self, real: Path, cache: Path, task: RealTask, fold: int) -> Features:
        """Of every patch of the task's dataset; they may depend on the fold's training patches, never on labels."""


@dataclass(frozen=True)
class ColorSource:
    """Histograms of colors and stains, at the patches' own side."""

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `Source`."""
        return data_digest(real, task.dataset)

    def features(self, real: Path, cache: Path, task: RealTask, fold: int) -> Features:
        """See `Source`."""
        path = cache / "features" / f"color-{task.dataset}-{self.digest(real, task, fold)[:16]}.npz"
        if not path.exists():
            reading = _reading(DATASETS[task.dataset].side_px)
            loader = reading.in_order(_bare(read_patches(real, task)), BATCH).loader
            save_features(path, color_features(loader))
        return load_features(path)


@dataclass(frozen=True)
class EncoderSource:
    """What a frozen encoder gives at every depth that it may end at, patches at the side that it was trained on.

    Attributes:
        path: encoder.safetensors.
    """

    path: Path

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `Source`; of encoders that retake statistics, the fold counts."""
        description = description_of(self.path)
        parts = [digest_of(self.path), data_digest(real, task.dataset), sides_of(description)]
        parts += [] if keeps_statistics(description) else [f"fold {fold}"]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def features(self, real: Path, cache: Path, task: RealTask, fold: int) -> Features:
        """See `Source`."""
        name = f"{self.path.parent.name}-{task.dataset}-{self.digest(real, task, fold)[:16]}.npz"
        path = cache / "features" / name
        if not path.exists():
            _LOG.info("features: encoder=%s dataset=%s fold=%d", self.path, task.dataset, fold)
            save_features(path, self._encode(_bare(read_patches(real, task)), task, fold))
        return load_features(path)

    def _encode(self, patches: pd.DataFrame, task: RealTask, fold: int) -> Features:
        training = None
        if not keeps_statistics(description_of(self.path)):
            training = patches[fold_of_rows(task, patches) != fold].reset_index(drop=True)
            if training.empty:
                raise ValueError(f"{task.name}: no training patch in fold {fold}")
        return encoded(self.path, patches, training)


def encoded(path: Path, patches: pd.DataFrame, training: pd.DataFrame | None = None) -> Features:
    """Features of a table's patches at every depth of an encoder.

    Args:
        path: encoder.safetensors.
        training: patches of which an encoder retakes its statistics; None: it keeps them.
    """
    reading = _reading(description_of(path)["patch_px"])
    task = Task(None, patch_px=reading.patch_px, device=reading.device)
    torch.manual_seed(0)
    model = from_encoder(path, 1)[0].eval()
    statistics = None if training is None else for_statistics(reading, training, STATISTICS_PATCHES, 256, 0)
    if statistics is not None:
        take_statistics(model, task, statistics)
    return dict(depth_features(model.encoder, task, reading.in_order(patches, BATCH).loader))


@dataclass(frozen=True)
class WithColor:
    """Features of a source, and stain histograms beside them, as `features.depth: [0, null]`.

    Attributes:
        source: of the other features.
    """

    source: Source

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `Source`; the other source's digest holds the data's."""
        return f"{COLOR_NAME} beside {self.source.digest(real, task, fold)}"

    def features(self, real: Path, cache: Path, task: RealTask, fold: int) -> Features:
        """See `Source`."""
        color = ColorSource().features(real, cache, task, fold)
        return {COLOR_NAME: color[STAINS], **self.source.features(real, cache, task, fold)}


@dataclass(frozen=True)
class FileSource:
    """Features that were computed elsewhere: an .npz with one array per dataset, rows in the order of its table.

    Attributes:
        path: the file; array `glas`, `consep`, `lung` or `breast`, Shape (n, D); `<dataset>_paths`, the paths in the
            zip, is compared with the table where the file has it.
    """

    path: Path

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `Source`."""
        return hashlib.sha256(
            f"{digest_of(self.path)}\n{data_digest(real, task.dataset)}".encode()
        ).hexdigest()

    def features(self, real: Path, cache: Path, task: RealTask, fold: int) -> Features:
        """See `Source`.

        Raises:
            InputError: the dataset is missing, or its rows are others.
        """
        arrays = load_features(self.path)
        patches = read_patches(real, task)
        rows = arrays.get(task.dataset)
        if rows is None or rows.ndim != 2 or len(rows) != len(patches):
            raise InputError(
                f"{self.path}: no array {task.dataset!r} of {len(patches)} rows. Fix: encode all patches in the order "
                "of their table."
            )
        paths = arrays.get(f"{task.dataset}_paths")
        if paths is not None and list(paths) != list(patches["patch_id"]):
            raise InputError(
                f"{self.path}: {task.dataset}_paths differs from the table. Fix: encode in its order."
            )
        return {WHOLE: rows}


@lru_cache(maxsize=8)
def load_features(path: Path) -> Features:
    """Features of a file of `save_features`."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def save_features(path: Path, features: Features) -> None:
    """Write features, whole or not at all."""
    with whole_file(path) as draft:
        np.savez(draft, **features)  # type: ignore[arg-type]  # stubs take the names for options


def _reading(side_px: int) -> PatchReading:
    return PatchReading(side_px, None, 0, torch.device("cpu"))


def _bare(patches: pd.DataFrame) -> pd.DataFrame:
    """Without labels: features are made of pixels alone."""
    return patches.assign(label="", score=np.nan)
