"""Stored features of patches from the stage `features`, so that later stages need not encode the patches again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from histo_monai.data.features.tables import check_features, features_of_rows
from histo_monai.data.tables.patch_features import PatchFeatures, distinct_patches
from histo_monai.data.tables.patches import read_patches
from histo_monai.finetuning.depth import WHOLE, DepthFeatures
from histo_monai.finetuning.heads.features import COLOR_NAME, FIELD_NAME
from histo_monai.models.checkpoint import read_description
from histo_monai.models.settings import COLOR, FIELD, Depth
from histo_monai.pipeline import paths
from histo_monai.pipeline.imports import modules_sha256
from histo_monai.pipeline.params import Params
from histo_monai.training.task import Task
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import file_sha256

_LOG = logging.getLogger(__name__)

OF_MODEL = "features"
"""Key of a model's description: SHA-256 of the encoder whose features its head was fitted to."""
PATCHES = "patches"
"""Folder of the patches of tables, in the folder of an encoder's features."""
_MODULES = tuple(
    f"histo_monai.wsi.inference.{name}" for name in ("features", "slides", "statistics", "table_features")
)
"""Names of the modules that compute features; a stage that reads features does not depend on their code."""


def features_code_sha256() -> str:
    """Digest of the code that computes features, as the files record it."""
    return modules_sha256(*_MODULES)


@dataclass(frozen=True)
class HeadFeatures:
    """Features in memory that heads are fitted to, and predict from.

    Attributes:
        table: features of all patches, by the names of depths.
        names: of the depths, rising.
    """

    table: PatchFeatures[np.float32]
    names: Mapping[str, Depth]

    def of(self, rows: pd.DataFrame) -> dict[str, NDArray[np.float32]]:
        """Features of a table's patches at each depth, Shape (n, D)."""
        return self.table.of(rows)

    def at(self, rows: pd.DataFrame, depths: Sequence[Depth]) -> NDArray[np.float32]:
        """Features of a table's patches at some depths, side by side, Shape (n, D_1 + D_2 + ...)."""
        of_rows, name_of = self.table.of(rows), {depth: name for name, depth in self.names.items()}
        missing = [depth for depth in depths if depth not in name_of]
        if missing:
            raise InputError(
                f"{paths.DATA}/features: none at depth {missing[0]}. Fix: name it in features.depth."
            )
        return np.concatenate([of_rows[name_of[depth]] for depth in depths], axis=1)

    def deepest(self, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Features of a table's patches at the last depth, Shape (n, D)."""
        return self.at(rows, list(self.names.values())[-1:])


@dataclass(frozen=True)
class StoredRows:
    """Stored features of the rows of data/index/patches.csv and unlabeled.csv, by one encoder.

    Attributes:
        folder: of the patches of tables.
        encoder: file of the encoder, with the batch-norm statistics in use.
        encoder_sha256: digest of the file.
        depths: numbers of stages of the encoder, rising; None, the last, is the whole encoder.
        patch_px: side of what the encoder reads: patches, or the fields around them.
    """

    folder: Path
    encoder: Path
    encoder_sha256: str
    depths: tuple[Depth, ...]
    patch_px: int

    @classmethod
    def of_encoder(cls, params: Params, method: str, encoder: int) -> Self:
        """Features by the encoder of a pretraining, as the stage `features` computes them.

        Raises:
            InputError: there are none.
        """
        folder = paths.features_folder(method, encoder)
        file = folder / paths.ENCODER
        if not file.is_file():
            raise InputError(f"{folder}: no features of patches. Fix: run the stage features.")
        return cls(folder / PATCHES, file, file_sha256(file), params.features.depths, params.input_px)

    def check_model(self, path: Path) -> None:
        """Refuse a model whose head was not fitted to these features.

        Raises:
            InputError: names the model.
        """
        if read_description(path.with_suffix(".json")).get(OF_MODEL) != self.encoder_sha256:
            raise InputError(
                f"{path}: its head was not fitted to {self.folder}. Fix: run the stages finetune and consistency again."
            )

    def check(self, rows: pd.DataFrame) -> None:
        """Compare the files of some rows with their slides, patches, encoder, side, depth and code now.

        Raises:
            InputError: a file is missing, or was made from something else; names the file.
        """
        indexed = pd.concat(
            [read_patches(paths.PATCHES_CSV), read_patches(paths.UNLABELED_CSV)], ignore_index=True
        )
        expected = {**self._expected, "code_sha256": features_code_sha256()}
        check_features(self.folder, indexed, rows["patch_id"], **expected)

    @property
    def names(self) -> dict[str, Depth]:
        """Depths by the names that heads know them by; names rise as depths do."""
        if len(self.depths) == 1:
            return {WHOLE: self.depths[0]}
        digits = len(str(max(depth or 1 for depth in self.depths)))
        named = {None: "whole encoder", COLOR: COLOR_NAME, FIELD: FIELD_NAME}
        return {named.get(depth) or f"stage {depth:0{digits}d}": depth for depth in self.depths}

    def read(self, *tables: pd.DataFrame) -> HeadFeatures:
        """Features of the patches of some tables at every depth.

        Raises:
            InputError: a file is missing, or of another encoder; or it lacks a patch.
        """
        rows = distinct_patches(*tables)
        features = {name: self.at(rows, depth) for name, depth in self.names.items()}
        return HeadFeatures(PatchFeatures.of_rows(rows, features), self.names)

    def at(self, rows: pd.DataFrame, depth: Depth) -> NDArray[np.float32]:
        """Features of rows at one of the depths, Shape (n, D), float32.

        Raises:
            InputError: as of `read`.
        """
        return features_of_rows(self.folder, rows, stage=self.stage_of(depth), **self._expected).astype(
            np.float32
        )

    def stage_of(self, depth: Depth) -> int:
        """Stage of a depth's dataset in a file (`data.features.store.dataset_of`)."""
        return 0 if depth == self.depths[-1] else depth or 0

    @property
    def _expected(self) -> dict[str, Any]:
        about = {"encoder_sha256": self.encoder_sha256, "patch_px": self.patch_px}
        return {**about, "depth": self.depths[-1] or 0}


def predictions_of(
    head: nn.Module, depths: Sequence[Depth], task: Task, features: HeadFeatures, rows: pd.DataFrame
) -> NDArray[np.float32]:
    """Predictions of a head from features at some depths, (n, K): class probabilities or scores.

    Raises:
        InputError: a feature or a prediction is not finite.
    """
    with torch.no_grad():
        outputs = head.cpu()(torch.from_numpy(features.at(rows, depths)))
        predicted: NDArray[np.float32] = task.objective.predictions(outputs).numpy()
    if not np.isfinite(predicted).all():
        raise InputError(
            f"{paths.DATA}/features: a feature is not finite. Fix: run the stages pretrain and features again."
        )
    return predicted


def stored_features(
    params: Params, method: str, encoder: int, tables: Mapping[str, pd.DataFrame]
) -> dict[str, DepthFeatures] | None:
    """Features of several tables of patches by the whole pretrained encoder; None, with the reason in the log.

    They are used only if they are current and have the batch-norm statistics of the pretraining.

    Args:
        tables: any name -> rows of data/index/patches.csv or unlabeled.csv.
    """
    try:
        stored = StoredRows.of_encoder(params, method, encoder)
        pretrained = paths.encoder_folder(method, encoder) / paths.ENCODER
        if stored.depths != (None,) or stored.encoder_sha256 != file_sha256(pretrained):
            raise InputError(f"{stored.folder}: depth or batch-norm statistics differ")
        stored.check(pd.concat(list(tables.values())))
        features = stored.read(*tables.values())
        return {name: features.of(rows) for name, rows in tables.items()}
    except InputError as error:
        _LOG.info("features: encoding patches, stored features do not apply: %s", error)
        return None
