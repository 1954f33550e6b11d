"""Python objects that a bundle's config names: network, patches of a slide, writer of its map."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from ignite.engine import Engine, Events

from histo_monai.models.task_model import TaskModel, task_model_from
from histo_monai.slides.artefacts import Artefact
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.utils.escapes import file_words
from histo_monai.utils.storage import check_folder, check_outputs
from histo_monai.wsi.heatmaps.heatmap import Heatmap, column_of, write_heatmap
from histo_monai.wsi.heatmaps.tiff_map import write_map
from histo_monai.wsi.inference.models import MapPlan, mapped_classes
from histo_monai.wsi.inference.stream import SlidePatches

COLUMN = "model"
"""Score column of the csv; of several classes `model:<class>`."""


def task_network(description: str) -> TaskModel:
    """Network of a bundle with random weights.

    Args:
        description: JSON beside the weights. It holds all user texts, because MONAI's parser executes texts of a
            config.

    Raises:
        InputError: the description was changed, or describes no task model.
    """
    return task_model_from(Path(description))[0]


def _path(text: str) -> Path:
    """Original path; MONAI's parser replaces "#" by "::"."""
    path = Path(text)
    return path if path.exists() else Path(text.replace("::", "#"))


class TissueLoader:
    """Batches of a slide's tissue patches in the format of MONAI's evaluators.

    Each is {"image": (n, 3, P, P), float32, 0..1, on the device; "cell": (n,), int64, cell numbers}: one patch around
    the center of every cell with tissue, area-averaged if the slide has no level of this µm/px.

    Args:
        mpp: µm per level-0 pixel; None: from the file.
        patch_px: P.
        patch_mpp: µm/px of patches.
        stride_um: side of a cell, µm, a whole number of patch pixels; None: side of a patch.
        tissue_mpp: resolution of the tissue mask, µm/px.
        min_tissue_fraction: minimum tissue fraction of a cell, 0..1.
        workers: reading processes; 0 reads in this process.
        artefacts: rules for tissue that is not used.

    Raises:
        SlideError: the slide cannot be read, or not at this resolution.
        InputError: the stride is no whole number of patch pixels.
    """

    def __init__(
        self,
        slide: str,
        patch_px: int,
        patch_mpp: float,
        tissue_mpp: float,
        min_tissue_fraction: float,
        batch_size: int,
        mpp: float | None = None,
        stride_um: float | None = None,
        device: torch.device | str = "cpu",
        workers: int = 0,
        artefacts: Sequence[Artefact] = (),
    ) -> None:
        stride_um = patch_px * patch_mpp if stride_um is None else stride_um
        rules = TissueRules(tissue_mpp, tuple(artefacts))
        plan = MapPlan(patch_px, patch_mpp, stride_um, rules, min_tissue_fraction, batch_size)
        self.slide = _path(slide)
        self.patches = SlidePatches.find(self.slide, mpp, plan)
        self._device, self._workers = torch.device(device), workers

    def __len__(self) -> int:
        """Number of batches."""
        return -(-len(self.patches.cells) // self.patches.batch_size)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for pixels, numbers in self.patches.batches(self._device, self._workers):
            yield {"image": pixels, "cell": torch.from_numpy(numbers)}


class MapWriter:
    """Handler of MONAI's evaluators that collects predictions of cells and writes the map at the end.

    Files: <slide>.csv and .json with scores and grid; <slide>.tif, or <slide>.<class>.tif for several classes, maps for
    QuPath and OpenSlide aligned with the slide's canvas. `escapes.file_words` writes classes in file names.

    Args:
        description: as in `task_network`; mapped are its classes, or tumor of two classes.

    Raises:
        InputError: as in `task_network`.
        OutputError: a target exists.
    """

    def __init__(self, loader: TissueLoader, folder: str, description: str) -> None:
        self._patches = loader.patches
        classes = task_model_from(Path(description))[1]["classes"]
        mapped = mapped_classes(classes, None)
        self._path = Path(folder) / f"{loader.slide.stem}.csv"
        self._columns = [classes.index(name) for name in mapped] if classes else [0]
        self._names = [column_of(COLUMN, name) for name in mapped] if len(mapped) > 1 else [COLUMN]
        words = file_words(mapped).values()
        suffixes = [f".{word}.tif" for word in words] if len(mapped) > 1 else [".tif"]
        self._maps = [self._path.with_suffix(suffix) for suffix in suffixes]
        check_folder(self._path.parent)
        check_outputs([self._path, self._path.with_suffix(".json"), *self._maps], [loader.slide], written={})
        self._found = np.empty((len(self._patches.cells), len(self._columns)), np.float32)

    def attach(self, engine: Engine) -> None:
        """Attach to an evaluator without decollation."""
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._take)
        engine.add_event_handler(Events.COMPLETED, self._write)

    def _take(self, engine: Engine) -> None:
        predicted: torch.Tensor = engine.state.output["pred"]
        numbers: torch.Tensor = engine.state.batch["cell"]
        self._found[numbers.numpy()] = predicted[:, self._columns].cpu().numpy()

    def _write(self, engine: Engine) -> None:
        values = {
            name: np.ascontiguousarray(self._found[:, column]) for column, name in enumerate(self._names)
        }
        heatmap = Heatmap(self._patches.grid, self._patches.cells, self._patches.tissue, values)
        write_heatmap(self._path, heatmap)
        for path, name in zip(self._maps, self._names, strict=True):
            grid = self._patches.grid
            write_map(path, heatmap.raster(name), grid.stride_um, grid.bounds_yx)
