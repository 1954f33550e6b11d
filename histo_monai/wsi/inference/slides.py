"""Work on many slides, divided among processes; finished slides are skipped."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch

from histo_monai.slides import SlideError
from histo_monai.training.ranks import note_step, run_in_ranks
from histo_monai.utils import storage
from histo_monai.utils.process.cluster import cluster_address, map_over_cluster
from histo_monai.utils.process.progress import progress
from histo_monai.utils.ranks import num_ranks, this_rank, wait_for_ranks
from histo_monai.wsi.heatmaps.origin import Origin, Origins
from histo_monai.wsi.inference.jobs import SlideJob

_LOG = logging.getLogger(__name__)

Advance = Callable[[int, int], object]
"""Progress callback after every batch: patches in the batch, patches of the slide."""


class SlideWork(Hashable, Protocol):
    """Result of a slide and its file: a frozen dataclass, sent to each process.

    Attributes:
        suffix: of the result file.
    """

    suffix: ClassVar[str]

    def origins(self, device: torch.device) -> Origins:
        """Classes and settings with effect on the result on this device."""
        ...

    def load(self, models: Mapping[str, Path], device: torch.device) -> Any:
        """Networks of a job, loaded once per process for equal models."""
        ...

    def look(
        self, job: Any, networks: Any, origin: Origin, *, device: torch.device, workers: int, advance: Advance
    ) -> Any:
        """Result of a slide; the job is of the work's own kind, and `origin` the result's."""
        ...

    def write(self, path: Path, found: Any, origin: Origin) -> None:
        """Write the result file, complete or not at all."""
        ...

    def made_from(self, path: Path) -> Mapping[str, Any] | None:
        """Origin of a result file (`Origin.as_dict`); None if it is missing or incomplete."""
        ...


class Batch(NamedTuple):
    """Jobs of one work, and the folder of their results."""

    jobs: Sequence[SlideJob]
    work: SlideWork
    folder: Path


def over_slides(
    jobs: Sequence[SlideJob],
    work: SlideWork,
    folder: Path,
    *,
    device: torch.device,
    workers: int,
    ranks: int,
    timeout_s: float = 1800,
) -> None:
    """Write the results of one work (`over_batches`)."""
    batch = Batch(jobs, work, folder)
    over_batches([batch], device=device, workers=workers, ranks=ranks, timeout_s=timeout_s)


def over_batches(
    batches: Sequence[Batch],
    *,
    device: torch.device,
    workers: int,
    ranks: int,
    timeout_s: float = 1800,
) -> None:
    """Write `folder`/<slide_id><suffix> for every job, batch after batch; processes start once.

    A file with an equal origin (slide, models, settings) is skipped; else the log names the difference and the slide is
    computed again. `ranks` processes (or torchrun's, or the workers of a cluster) divide the slides, largest first;
    each loads a set of models once. The result does not depend on the division. An unreadable slide stops the run;
    finished files stay.

    Args:
        batches: folders are created if missing; batches without jobs are left out.
        device: with several ranks, each has its own GPU.
        workers: reading processes per rank.
        timeout_s: time limit of a batch with several ranks, s.

    Raises:
        SlideError: a slide cannot be read, or not at this resolution, or its file changed.
        InputError: a model does not fit, or the stride is no whole number of patch pixels.
    """
    batches = [batch for batch in batches if batch.jobs]
    if not batches:
        return
    address = cluster_address()
    if address:
        for batch in batches:
            _over_cluster(*batch, device, address)
        return
    arguments = (batches, workers, torch.get_num_threads())
    run_in_ranks(_process_batches, *arguments, device=device, ranks=ranks, timeout_s=timeout_s)


def without_bad(
    jobs: Sequence[SlideJob], see: Callable[[Sequence[SlideJob]], None]
) -> tuple[list[SlideJob], list[str]]:
    """Finished jobs, and one error line per unreadable slide; the other slides are processed.

    Args:
        see: processes jobs and skips finished ones, such as `over_slides`.

    Raises:
        SlideError: about a slide outside `jobs`.
    """
    left, bad = list(jobs), list[str]()
    while left:
        try:
            see(left)
            break
        except SlideError as error:
            whole = [job for job in left if job.path != error.path]
            if len(whole) == len(left):
                raise
            _LOG.error("%s", error)
            bad.append(str(error))
            left = whole
    return left, bad


def _process_batches(device: torch.device, batches: Sequence[Batch], workers: int, threads: int) -> None:
    """Process the slides of this rank in every batch."""
    world = num_ranks()
    if world > 1:
        torch.set_num_threads(max(1, threads // world))
    for batch in batches:
        _process_batch(device, *batch, workers)


def _process_batch(
    device: torch.device,
    jobs: Sequence[SlideJob],
    work: SlideWork,
    folder: Path,
    workers: int,
) -> None:
    """Process the slides of this rank in one batch."""
    rank, world = this_rank(), num_ranks()
    origins = work.origins(device)
    left = [job for job in jobs if not _is_done(job, work, origins, folder, is_silent=rank > 0)]
    wait_for_ranks()  # all ranks list the finished slides before any writes
    mine = split_by_bytes(left, world)[rank]

    @functools.cache
    def load(models: tuple[tuple[str, Path], ...]) -> Any:
        return work.load(dict(models), device)

    for number, job in enumerate(mine, start=1):
        networks = load(tuple(job.models.items()))
        title = f"slide {number}/{len(mine)}" + (f" of process {rank + 1}" if world > 1 else "")
        with progress(title=title, unit="patch", position=rank, leave=False) as bar:

            def advance(done: int, total: int, bar: Any = bar) -> None:
                bar.total = total
                bar.update(done)
                note_step()

            _make(job, work, origins, folder, networks, device, workers, advance)


def _make(
    job: SlideJob,
    work: SlideWork,
    origins: Origins,
    folder: Path,
    networks: Any,
    device: torch.device,
    workers: int,
    advance: Advance,
) -> None:
    """Write the file of one slide."""
    origin = job.origin(origins)
    found = work.look(job, networks, origin, device=device, workers=workers, advance=advance)
    if job.origin(origins) != origin:
        raise SlideError(job.path, "the file changed during processing. Fix: run again once it is complete")
    work.write(folder / f"{job.slide_id}{work.suffix}", found, origin)


def _over_cluster(
    jobs: Sequence[SlideJob], work: SlideWork, folder: Path, device: torch.device, address: str
) -> None:
    """Submit unfinished slides to the cluster, largest first."""
    origins = work.origins(device)
    left = [job for job in jobs if not _is_done(job, work, origins, folder, is_silent=False)]
    if not left:
        return
    (ordered,) = split_by_bytes(left, 1)
    make = functools.partial(
        _on_worker, work=work, folder=folder, device=device, threads=torch.get_num_threads()
    )
    with progress(total=len(ordered), title="slides", unit="slide") as bar:
        for _ in map_over_cluster(make, [ordered], address):
            bar.update(1)


def _on_worker(job: SlideJob, *, work: SlideWork, folder: Path, device: torch.device, threads: int) -> None:
    """Process one slide on a cluster worker, with the caller's number of threads."""
    torch.set_num_threads(threads)
    stamps = tuple((name, path, path.stat().st_mtime_ns) for name, path in job.models.items())
    networks = _networks(work, stamps, device)
    _make(job, work, work.origins(device), folder, networks, device, 0, lambda done, total: None)


@functools.lru_cache(maxsize=1)
def _networks(work: SlideWork, stamps: tuple[tuple[str, Path, int], ...], device: torch.device) -> Any:
    """Networks of the worker's last call, while their files are unchanged."""
    return work.load({name: path for name, path, _ in stamps}, device)


def _is_done(job: SlideJob, work: SlideWork, origins: Origins, folder: Path, *, is_silent: bool) -> bool:
    before = work.made_from(folder / f"{job.slide_id}{work.suffix}")
    if before is None:
        return False
    odd = job.origin(origins).differences(before)
    if odd and not is_silent:
        _LOG.info("slides: slide=%s processed again: %s", job.path, ", ".join(odd))
    return not odd


def _num_bytes(path: Path) -> int:
    """Size of all files of a slide, bytes."""
    return sum(file.stat().st_size for file in storage.slide_files(path)) if path.is_file() else 0


def split_by_bytes(jobs: Sequence[SlideJob], processes: int) -> list[list[SlideJob]]:
    """Slides of each process: largest first, each to the process with the fewest bytes."""
    size = {job.slide_id: _num_bytes(job.path) for job in jobs}
    parts: list[list[SlideJob]] = [[] for _ in range(processes)]
    load = [0] * processes
    for job in sorted(jobs, key=lambda job: (-size[job.slide_id], job.slide_id)):
        least = load.index(min(load))
        parts[least].append(job)
        load[least] += size[job.slide_id]
    return parts
