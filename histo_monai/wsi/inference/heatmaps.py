"""Heat-maps of slides by patch models; several processes divide the slides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from histo_monai.training.device import precision
from histo_monai.utils.errors import InputError
from histo_monai.wsi.heatmaps.heatmap import Heatmap, write_heatmap
from histo_monai.wsi.heatmaps.origin import Origin, Origins, numeric_settings, read_origin
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan, PatchModels, load_models
from histo_monai.wsi.inference.slides import Advance, over_slides
from histo_monai.wsi.inference.stream import SlidePatches


def map_slide(
    slide_path: Path,
    mpp: float | None,
    models: PatchModels,
    settings: MapPlan,
    outlines: str = "",
    *,
    device: torch.device,
    workers: int,
    advance: Advance = lambda done, total: None,
) -> Heatmap:
    """Heat-map of all tissue cells of a slide; memory as in `SlidePatches`.

    Args:
        mpp: µm per level-0 pixel; None: from the file.
        models: on `device`.
        outlines: file of the user's outlines of tissue and artefacts; empty: none.
        workers: reading processes; 0 reads in this process.

    Raises:
        SlideError: the slide cannot be read, or not at this resolution.
        InputError: the stride is no whole number of patch pixels, or a model outputs NaN.
    """
    patches = SlidePatches.find(slide_path, mpp, settings, outlines)
    cells = patches.cells
    found = {name: np.empty((len(cells), len(models.columns(name))), np.float32) for name in models.names}
    distances = {
        name: np.empty(len(cells), np.float32) for name in models.names if name in models.with_distance
    }
    with torch.inference_mode(), precision(device):
        for pixels, numbers in patches.batches(device, workers):
            for name, outputs in models.network(pixels).items():
                if name in distances:
                    distances[name][numbers] = outputs[:, -1].cpu().numpy()
                    outputs = outputs[:, :-1]
                found[name][numbers] = models.values(outputs).cpu().numpy()
            advance(len(numbers), len(cells))
    for name, predicted in found.items():
        if not np.isfinite(predicted).all():
            raise InputError(
                f"{slide_path}: the model of column {name!r} outputs NaN for {np.isnan(predicted).any(1).sum()} of "
                f"{len(predicted)} cells. Fix: train the model again"
            )
    values = {
        column: np.ascontiguousarray(predicted[:, number])
        for name, predicted in found.items()
        for number, column in enumerate(models.columns(name))
    }
    return Heatmap(patches.grid, cells, patches.tissue, values, distances)


class MapFiles:
    """Files of heat-maps for `SlideWork`: <slide_id>.csv and .json."""

    suffix: ClassVar[str] = ".csv"

    def write(self, path: Path, found: Heatmap, origin: Origin) -> None:
        """Write a heat-map."""
        write_heatmap(path, found, origin.as_dict())

    def made_from(self, path: Path) -> Mapping[str, Any] | None:
        """Origin of a heat-map file."""
        return read_origin(path.with_suffix(".json"))


@dataclass(frozen=True)
class MapWork(MapFiles):
    """Heat-maps as `SlideWork`, by networks.

    Attributes:
        classes: mapped classes; empty for a score.
    """

    settings: MapPlan
    classes: tuple[str, ...]

    def origins(self, device: torch.device) -> Origins:
        """Origins with the mapped classes and the settings, precision included."""
        return Origins(self.classes, {**self.settings.settings, **numeric_settings(device)})

    def load(self, models: Mapping[str, Path], device: torch.device) -> PatchModels:
        """Models of a job."""
        return load_models(models, self.classes, self.settings, device)

    def look(
        self,
        job: SlideJob,
        networks: PatchModels,
        origin: Origin,
        *,
        device: torch.device,
        workers: int,
        advance: Advance,
    ) -> Heatmap:
        """Heat-map of a slide."""
        place = (job.path, job.mpp, networks, self.settings, job.outlines)
        return map_slide(*place, device=device, workers=workers, advance=advance)


def map_slides(
    jobs: Sequence[SlideJob],
    settings: MapPlan,
    classes: tuple[str, ...],
    folder: Path,
    *,
    device: torch.device,
    workers: int,
    ranks: int,
    timeout_s: float = 1800,
) -> None:
    """Write the heat-maps of slides."""
    work = MapWork(settings, classes)
    over_slides(jobs, work, folder, device=device, workers=workers, ranks=ranks, timeout_s=timeout_s)
