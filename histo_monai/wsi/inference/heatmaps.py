"""Models of patches -> maps of slides: patches stream through the networks, processes share the slides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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
    *,
    device: torch.device,
    workers: int,
    advance: Advance = lambda done, total: None,
) -> Heatmap:
    """Look at every cell of a slide that holds tissue; see `SlidePatches` for what it holds in memory.

    Args:
        mpp: µm per level-0 pixel; None takes the file's own.
        models: On `device`.
        workers: Reading processes; 0 reads in this one.

    Raises:
        SlideError: The slide cannot be read, or not at this resolution.
        InputError: The stride is no whole number of patch pixels, or a model gives NaN.
    """
    patches = SlidePatches.find(slide_path, mpp, settings)
    cells = patches.cells
    found = {name: np.empty((len(cells), len(models.columns(name))), np.float32) for name in models.names}
    with torch.inference_mode(), precision(device):
        for pixels, numbers in patches.batches(device, workers):
            for name, outputs in models.network(pixels).items():
                found[name][numbers] = models.values(outputs).cpu().numpy()
            advance(len(numbers), len(cells))
    for name, predicted in found.items():
        if not np.isfinite(predicted).all():
            raise InputError(
                f"{slide_path}: the model of column {name!r} gives no number for {np.isnan(predicted).any(1).sum()} of "
                f"{len(predicted)} cells, so its weights are out of all range; run the stage that makes it again"
            )
    values = {
        column: np.ascontiguousarray(predicted[:, number])
        for name, predicted in found.items()
        for number, column in enumerate(models.columns(name))
    }
    return Heatmap(patches.grid, cells, patches.tissue, values)


@dataclass(frozen=True)
class MapWork:
    """Maps of slides, as `over_slides` makes them: <slide_id>.csv and .json (`wsi.heatmaps.heatmap.write_heatmap`).

    Attributes:
        settings: See `MapPlan`.
        classes: Whose probabilities are mapped; none for a score.
    """

    settings: MapPlan
    classes: tuple[str, ...]
    suffix: ClassVar[str] = ".csv"

    def origins(self, device: torch.device) -> Origins:
        """The mapped classes, and the settings with the precision."""
        return Origins(self.classes, {**asdict(self.settings), **numeric_settings(device)})

    def load(self, models: Mapping[str, Path], device: torch.device) -> PatchModels:
        """See `load_models`."""
        return load_models(models, self.classes, self.settings, device)

    def look(
        self, job: SlideJob, networks: PatchModels, *, device: torch.device, workers: int, advance: Advance
    ) -> Heatmap:
        """See `map_slide`."""
        return map_slide(
            job.path, job.mpp, networks, self.settings, device=device, workers=workers, advance=advance
        )

    def write(self, path: Path, found: Heatmap, origin: Origin) -> None:
        """See `write_heatmap`."""
        write_heatmap(path, found, origin)

    def made_from(self, path: Path) -> Mapping[str, Any] | None:
        """See `read_origin`."""
        return read_origin(path.with_suffix(".json"))


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
    """Write the maps of slides; see `over_slides` and `MapWork`."""
    work = MapWork(settings, classes)
    over_slides(jobs, work, folder, device=device, workers=workers, ranks=ranks, timeout_s=timeout_s)
