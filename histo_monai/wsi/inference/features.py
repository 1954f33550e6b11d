"""A frozen encoder looks at slides: one vector for each patch of tissue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from histo_monai.data.features.store import FEATURES
from histo_monai.models.encoder import Encoder
from histo_monai.training.device import precision
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.origin import Origin, Origins, numeric_settings
from histo_monai.wsi.inference.encoding import Encoding
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.patch_features import (
    ENCODER,
    PatchFeatures,
    read_made_from,
    write_features,
)
from histo_monai.wsi.inference.slides import Advance
from histo_monai.wsi.inference.stream import SlidePatches


class EncoderSight(NamedTuple):
    """Patches in an encoder's training.

    Attributes:
        patch_px: Side of a patch, px.
        mpp: Finest resolution, µm/px; None if unknown.
    """

    patch_px: int
    mpp: float | None


def sight_of(description: Mapping[str, Any]) -> EncoderSight:
    """Training patches in the description of an encoder, a fine-tuned model or a student."""
    if description["kind"] == "encoder":
        return EncoderSight(description["patch_px"], min(description["mpps"]))
    return EncoderSight(description["patch_px"], description["mpp"])


def slide_features(
    slide_path: Path,
    mpp: float | None,
    encoder: Encoder,
    plan: MapPlan,
    encoding: Encoding | None = None,
    outlines: str = "",
    *,
    device: torch.device,
    workers: int,
    advance: Advance = lambda done, total: None,
) -> PatchFeatures:
    """Features of every cell with tissue.

    Args:
        mpp: µm per level-0 pixel; None: from the file.
        encoder: Result of `Encoding.load`, on `device`.
        encoding: Views of the patches; None for the defaults.
        outlines: File of the user's outlines of tissue and artefacts; empty: none.
        workers: Reading processes; 0 reads in this process.

    Raises:
        SlideError: The slide cannot be read, or not at this resolution.
        InputError: The stride is no whole number of patch pixels, or the encoder gives NaN.
    """
    patches = SlidePatches.find(slide_path, mpp, plan, outlines)
    encoding = encoding or Encoding()
    features = np.empty((1 + len(encoding.views), len(patches.cells), encoder.num_features), np.float32)
    with torch.inference_mode(), precision(device):
        for pixels, numbers in patches.batches(device, workers):
            features[:, numbers] = encoding.features(encoder, pixels).numpy().swapaxes(0, 1)
            advance(len(numbers), len(patches.cells))
    if not np.isfinite(features).all():
        raise InputError(f"{slide_path}: features are not finite. Fix: run the encoder's stage again.")
    further = encoding.datasets(features, encoder.widths)
    own = further.pop(FEATURES).values
    return PatchFeatures(patches.grid, patches.cells, patches.tissue, own, plan.patch_px, plan.mpp, further)


@dataclass(frozen=True)
class FeatureWork:
    """Slide features as `SlideWork`: <slide_id>.h5 (`wsi.inference.patch_features`).

    Attributes:
        plan: Places of the patches.
        encoding: Settings of the features.
    """

    plan: MapPlan
    encoding: Encoding = field(default_factory=Encoding)
    suffix: ClassVar[str] = ".h5"

    def origins(self, device: torch.device) -> Origins:
        """Origins with the settings of plan and features, precision included."""
        settings = {**self.plan.settings, **self.encoding.settings, **numeric_settings(device)}
        return Origins((), settings)

    def load(self, models: Mapping[str, Path], device: torch.device) -> Encoder:
        """The encoder of a job."""
        return self.encoding.load(models[ENCODER], device)

    def look(
        self,
        job: SlideJob,
        networks: Encoder,
        origin: Origin,
        *,
        device: torch.device,
        workers: int,
        advance: Advance,
    ) -> tuple[PatchFeatures, str]:
        """Features of a slide, and the encoder's name."""
        found = slide_features(
            job.path,
            job.mpp,
            networks,
            self.plan,
            self.encoding,
            job.outlines,
            device=device,
            workers=workers,
            advance=advance,
        )
        return found, networks.name

    def write(self, path: Path, found: tuple[PatchFeatures, str], origin: Origin) -> None:
        """Write the HDF5 file of a slide."""
        write_features(path, found[0], encoder=found[1], origin=origin, encoding=self.encoding)

    def made_from(self, path: Path) -> Mapping[str, Any] | None:
        """Origin of a features file; None if it is missing or unreadable."""
        return read_made_from(path)
