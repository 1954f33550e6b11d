"""Models of patches -> maps of slides: patches stream through the networks, processes share the slides."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from torch.utils.data import Dataset
from tqdm import tqdm

from histo_monai.engines.device import precision
from histo_monai.engines.maps.jobs import SlideJob
from histo_monai.engines.maps.models import MapPlan, PatchModels, load_models
from histo_monai.engines.ranks import note_step, run_in_ranks
from histo_monai.errors import InputError
from histo_monai.loading.loaders import EpochBatches, patch_loader
from histo_monai.mapping.blocks import CellBlocks
from histo_monai.mapping.cells import slide_grid, tissue_cells
from histo_monai.mapping.heatmap import Heatmap, write_heatmap
from histo_monai.mapping.origin import Origins, read_origin
from histo_monai.slides import SlideError, open_slide

_LOG = logging.getLogger(__name__)


def map_slide(
    slide_path: Path,
    mpp: float | None,
    models: PatchModels,
    settings: MapPlan,
    *,
    device: torch.device,
    workers: int,
    advance: Callable[[int, int], object] = lambda done, total: None,
) -> Heatmap:
    """Look at every cell of a slide that holds tissue.

    Patches stream: at most 2 * workers + 3 blocks of patches are held at a time (32 MiB each, and while one is read a
    field of up to 4096 x 4096 px), one batch on its way through the network, and 40 bytes per cell. Batches are filled
    in the order of the blocks, so the values depend on the slide and the settings alone, not on `workers`.

    Args:
        slide_path: The slide.
        mpp: µm per level-0 pixel; None takes the file's own.
        models: On `device`.
        settings: See `MapPlan`.
        device: Where the models run.
        workers: Reading processes; 0 reads in this one.
        advance: Called after every batch with how many patches it held, and how many the slide has.

    Raises:
        SlideError: The slide cannot be read, or not at this resolution.
        InputError: The stride is no whole number of patch pixels, or a model gives NaN.
    """
    with open_slide(slide_path, mpp) as slide:
        grid = slide_grid(slide, settings.stride_um)
        cells, tissue = tissue_cells(slide, grid, settings.tissue_mpp, settings.min_tissue_fraction)
        blocks = CellBlocks(slide, grid, cells, patch_px=settings.patch_px, mpp=settings.mpp)
    pin = device.type == "cuda"
    loader = patch_loader(
        _BlockTensors(blocks), EpochBatches(len(blocks), 1, seed=None), workers=workers, pin=pin
    )
    found = {name: np.empty((len(cells), len(models.columns(name))), np.float32) for name in models.names}
    with torch.inference_mode(), precision(device):
        for patches, numbers in _batches(loader, settings.batch_size, device):
            pixels = patches.to(torch.float32, memory_format=torch.channels_last).mul_(1 / 255)
            for name, outputs in models.network(pixels).items():
                found[name][numbers.numpy()] = models.values(outputs).cpu().numpy()
            advance(len(patches), len(cells))
    blocks.close()
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
    return Heatmap(grid, cells, tissue, values)


class _BlockTensors(Dataset[Any]):
    """Blocks as tensors."""

    def __init__(self, blocks: CellBlocks) -> None:
        self._blocks = blocks

    def __getitems__(self, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        (index,) = indices
        patches, numbers = self._blocks[index]
        return torch.from_numpy(patches), torch.from_numpy(numbers)


def _batches(
    blocks: Iterable[tuple[torch.Tensor, torch.Tensor]], size: int, device: torch.device
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches of `size`, the last one shorter, whatever the sizes of the blocks."""
    left: list[tuple[torch.Tensor, torch.Tensor]] = []
    for patches, numbers in blocks:
        together = (*left, (patches.to(device, non_blocking=True), numbers))
        pixels, which = (torch.cat(parts) for parts in zip(*together, strict=True))
        whole = len(which) - len(which) % size
        for first in range(0, whole, size):
            yield pixels[first : first + size], which[first : first + size]
        left = [(pixels[whole:].clone(), which[whole:])] if whole < len(which) else []
    yield from left


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
    """Write `folder`/<slide_id>.csv and .json for every job (`mapping.heatmap.write_heatmap`).

    A slide whose map is there already, made from the same slide, models and settings (`mapping.origin`), is left
    alone; where anything differs the log says what, and the slide is mapped again. Slides are shared by `ranks`
    processes (or those of torchrun), the largest files first; each loads a set of models once. The files do not depend
    on the number of processes. A slide that cannot be read stops the run; finished ones are kept.

    Args:
        jobs: The slides.
        settings: See `MapPlan`.
        classes: Whose probabilities are mapped; none for a score.
        folder: Made if missing.
        device: Where networks run; with several ranks, each takes its own GPU.
        workers: Reading processes of each rank.
        ranks: Processes.
        timeout_s: Seconds that one of several ranks may take for a batch.

    Raises:
        SlideError: A slide cannot be read, or not at this resolution, or its file was changed meanwhile.
        InputError: A model does not fit, or the stride is no whole number of patch pixels.
    """
    arguments = (jobs, settings, classes, folder, workers, torch.get_num_threads())
    run_in_ranks(_map_share, *arguments, device=device, ranks=ranks, timeout_s=timeout_s)


def _map_share(
    device: torch.device,
    jobs: Sequence[SlideJob],
    settings: MapPlan,
    classes: tuple[str, ...],
    folder: Path,
    workers: int,
    threads: int,
) -> None:
    """The slides of this process."""
    rank, world = idist.get_rank(), idist.get_world_size()
    if world > 1:
        torch.set_num_threads(max(1, threads // world))
    origins = Origins(classes, asdict(settings))
    left = [job for job in jobs if not _is_mapped(job, origins, folder, is_silent=rank > 0)]
    idist.barrier()  # All look before anyone writes, so that all share the same slides.
    mine = shares(left, world)[rank]

    @functools.cache
    def load(models: tuple[tuple[str, Path], ...]) -> PatchModels:
        return load_models(dict(models), classes, settings, device)

    for number, job in enumerate(mine, start=1):
        models = load(tuple(job.models.items()))
        title = f"slide {number}/{len(mine)}" + (f" of process {rank + 1}" if world > 1 else "")
        with tqdm(desc=title, unit="patch", position=rank, leave=False, dynamic_ncols=True) as bar:

            def advance(done: int, total: int, bar: Any = bar) -> None:
                bar.total = total
                bar.update(done)
                note_step()

            origin = origins.of(job.path, job.mpp, job.models)
            heatmap = map_slide(
                job.path, job.mpp, models, settings, device=device, workers=workers, advance=advance
            )
        if origins.of(job.path, job.mpp, job.models) != origin:
            raise SlideError(
                job.path, "the file was changed while it was mapped; start again when it is whole"
            )
        write_heatmap(folder / f"{job.slide_id}.csv", heatmap, origin)


def _is_mapped(job: SlideJob, origins: Origins, folder: Path, *, is_silent: bool) -> bool:
    before = read_origin(folder / f"{job.slide_id}.json")
    if before is None:
        return False
    odd = origins.of(job.path, job.mpp, job.models).differences(before)
    if odd and not is_silent:
        _LOG.info("%s: mapped again, %s", job.path, ", ".join(odd))
    return not odd


def shares(jobs: Sequence[SlideJob], processes: int) -> list[list[SlideJob]]:
    """Slides of each process: the largest file first, each to the process with the fewest bytes so far."""
    size = {job.slide_id: job.path.stat().st_size if job.path.is_file() else 0 for job in jobs}
    parts: list[list[SlideJob]] = [[] for _ in range(processes)]
    load = [0] * processes
    for job in sorted(jobs, key=lambda job: (-size[job.slide_id], job.slide_id)):
        least = load.index(min(load))
        parts[least].append(job)
        load[least] += size[job.slide_id]
    return parts
