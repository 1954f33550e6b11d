"""Heat-maps of heads on a frozen encoder, from the stored features of slides: no patch is encoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.data.features.store import read_features
from histo_monai.models.heads.mixture import Mixture
from histo_monai.models.reference import TrainingReference, load_reference
from histo_monai.models.settings import Depth
from histo_monai.models.task_model import load_head
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import IN_TRAINING, Heatmap
from histo_monai.wsi.heatmaps.origin import OUTLINES, Origin, Origins, slide_identity
from histo_monai.wsi.inference.heatmaps import MapFiles
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan, columns_of, values_of
from histo_monai.wsi.inference.patch_features import FeatureFile
from histo_monai.wsi.inference.slides import Advance

FEATURES = "features"
"""Setting of a map's origin: SHA-256 of the encoder whose stored features the heads read."""
_PLACES = ("patch_px", "mpp", "stride_um", "tissue_mpp", "min_tissue_fraction")
"""Settings that decide the patches of a slide."""


def other_places(recorded: Mapping[str, Any], settings: MapPlan) -> str:
    """First setting by which features lie elsewhere than the cells of a map, in words; empty if they lie there.

    Args:
        recorded: settings of the features.
    """
    of_map = settings.settings
    for name in _PLACES:
        has, wanted = recorded.get(name), of_map[name]
        if not math.isclose(float(has or 0), float(wanted)):
            return f"{name} is {has}, expected {wanted}"
    has, wanted = recorded.get("artefacts", ""), of_map.get("artefacts", "")
    return "" if has == wanted else f"artefacts is {has!r}, expected {wanted!r}"


@dataclass(frozen=True)
class Head:
    """A head of a model, and the depths of the encoder that it reads.

    Attributes:
        module: features side by side, Shape (n, D) -> outputs, Shape (n, K).
        depths: numbers of stages, rising; None, the last, is the whole encoder.
        classes: names by number; None for a score.
        reference: labeled training patches; None: the file holds none.
    """

    module: Mixture
    depths: tuple[Depth, ...]
    classes: list[str] | None
    reference: TrainingReference | None


@dataclass(frozen=True)
class HeadMapWork(MapFiles):
    """Heat-maps as `SlideWork`: <slide_id>.csv and .json, as of `MapWork`.

    Attributes:
        settings: must decide the same patches as those of the features.
        classes: mapped classes; empty for a score.
        folder: of the features, <slide_id>.h5.
        encoder_sha256: digest of the encoder.
        deepest: depth of the dataset `features`; others are further datasets.
    """

    settings: MapPlan
    classes: tuple[str, ...]
    folder: Path
    encoder_sha256: str
    deepest: Depth

    def origins(self, device: torch.device) -> Origins:
        """Origins with the mapped classes, the settings and the encoder."""
        return Origins(self.classes, {**self.settings.settings, FEATURES: self.encoder_sha256})

    def load(self, models: Mapping[str, Path], device: torch.device) -> dict[str, Head]:
        """Heads of a job.

        Raises:
            InputError: a file holds no head, or one of other classes; names it.
        """
        heads = {name: _head(path, measures=not name.endswith(IN_TRAINING)) for name, path in models.items()}
        for name, head in heads.items():
            try:
                values_of(head.classes, self.classes)
            except InputError as error:
                raise InputError(f"{models[name]}: {error}") from None
        return heads

    def look(
        self,
        job: SlideJob,
        networks: dict[str, Head],
        origin: Origin,
        *,
        device: torch.device,
        workers: int,
        advance: Advance,
    ) -> Heatmap:
        """Heat-map of a slide.

        Raises:
            InputError: the features are missing, or of another slide, encoder or plan.
        """
        path = self.folder / f"{job.slide_id}.h5"
        with FeatureFile(path) as file:
            found, made_from = file.read(), file.made_from()["settings"]
        differing = other_places(made_from, self.settings)
        if made_from.get(OUTLINES) != origin.settings.get(OUTLINES):
            differing = "the outlines in masks/ differ"
        if differing:
            raise InputError(f"{path}: {differing}. Fix: run the features stage again.")
        slide_sha256 = slide_identity(job.path).sample_sha256
        values: dict[str, NDArray[np.float32]] = {}
        distances: dict[str, NDArray[np.float32]] = {}
        for name, head in networks.items():
            features = self._features(path, slide_sha256, head.depths)
            predicted = self._predicted(head, features)
            if not np.isfinite(predicted).all():
                raise InputError(f"{path}: the head of column {name!r} outputs NaN. Fix: run finetune again.")
            for number, column in enumerate(columns_of(name, self.classes)):
                values[column] = np.ascontiguousarray(predicted[:, number], np.float32)
            if head.reference is not None:
                distances[name] = self._in_batches(head.reference, features, ())
        advance(len(found.cells), len(found.cells))
        return Heatmap(found.grid, np.asarray(found.cells), np.asarray(found.tissue), values, distances)

    def _predicted(self, head: Head, features: NDArray[np.floating]) -> NDArray[np.float32]:
        """Mapped values of all cells, Shape (n, M)."""
        values = values_of(head.classes, self.classes)
        return self._in_batches(
            lambda rows: values(head.module(rows)), features, (max(1, len(self.classes)),)
        )

    def _in_batches(
        self,
        function: Callable[[torch.Tensor], torch.Tensor],
        features: NDArray[np.floating],
        shape: tuple[int, ...],
    ) -> NDArray[np.float32]:
        """Results of a function that compares cells with labeled patches, Shape (n, *shape)."""
        size = self.settings.batch_size
        parts = [
            function(torch.from_numpy(features[start : start + size].astype(np.float32)))
            for start in range(0, len(features), size)
        ]
        together: NDArray[np.float32] = torch.cat([torch.empty((0, *shape)), *parts]).numpy()
        return together

    def _features(self, path: Path, slide_sha256: str, depths: tuple[Depth, ...]) -> NDArray[np.floating]:
        """Features of a slide at some depths side by side, Shape (n, D)."""
        stages = [0 if depth == self.deepest else depth or 0 for depth in depths]
        parts = [
            read_features(
                path,
                stage=stage,
                encoder_sha256=self.encoder_sha256,
                slide_sha256=slide_sha256,
                depth=self.deepest or 0,
            ).features
            for stage in stages
        ]
        together: NDArray[np.floating] = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return together


def _head(path: Path, *, measures: bool) -> Head:
    """Head of a model's file, with its labeled training patches if it measures distances."""
    return Head(*load_head(path), load_reference(path) if measures else None)
