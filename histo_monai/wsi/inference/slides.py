"""One look at each of many slides: processes share them, and what is done already is left alone."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import ignite.distributed as idist
import torch

from histo_monai.slides import SlideError
from histo_monai.training.ranks import note_step, run_in_ranks
from histo_monai.utils import storage
from histo_monai.utils.process.cluster import cluster_address, map_over_cluster
from histo_monai.utils.process.progress import progress
from histo_monai.wsi.heatmaps.origin import Origin, Origins
from histo_monai.wsi.inference.jobs import SlideJob

_LOG = logging.getLogger(__name__)

Advance = Callable[[int, int], object]
"""Called after every batch with how many patches it held, and how many the slide has."""


class SlideWork(Hashable, Protocol):
    """What is made of a slide, and how it lies on disk: a frozen dataclass, sent to each process.

    Attributes:
        suffix: Of the file of a slide.
    """

    suffix: ClassVar[str]

    def origins(self, device: torch.device) -> Origins:
        """Classes and settings that decide the result on this device, in addition to slide and models."""
        ...

    def load(self, models: Mapping[str, Path], device: torch.device) -> Any:
        """The networks of a job; loaded once by each process for all jobs with the same."""
        ...

    def look(
        self, job: SlideJob, networks: Any, *, device: torch.device, workers: int, advance: Advance
    ) -> Any:
        """What is found on a slide."""
        ...

    def write(self, path: Path, found: Any, origin: Origin) -> None:
        """The file of a slide; whole or not at all."""
        ...

    def made_from(self, path: Path) -> Mapping[str, Any] | None:
        """Origin of the file of a slide, `Origin.as_dict`; None where there is none, or it is not whole."""
        ...


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
    """Write `folder`/<slide_id><suffix> for every job.

    A slide whose file is there already, made from the same slide, models and settings (`wsi.heatmaps.origin`), is left
    alone; where anything differs the log says what, and the slide is looked at again. Slides are shared by `ranks`
    processes (or those of torchrun), or by the workers of a cluster (`utils.process.cluster`), the largest files first;
    each loads a set of models once. The files do not depend on who makes them. A slide that cannot be read stops the
    run; finished ones are kept.

    Args:
        work: What is made of them.
        folder: Made if missing.
        device: Where networks run; with several ranks, each takes its own GPU.
        workers: Reading processes of each rank.
        timeout_s: Seconds that one of several ranks may take for a batch.

    Raises:
        SlideError: A slide cannot be read, or not at this resolution, or its file was changed meanwhile.
        InputError: A model does not fit, or the stride is no whole number of patch pixels.
    """
    address = cluster_address()
    if address:
        _over_cluster(jobs, work, folder, device, address)
        return
    arguments = (jobs, work, folder, workers, torch.get_num_threads())
    run_in_ranks(_share, *arguments, device=device, ranks=ranks, timeout_s=timeout_s)


def without_bad(
    jobs: Sequence[SlideJob], see: Callable[[Sequence[SlideJob]], None]
) -> tuple[list[SlideJob], list[str]]:
    """Go on after slides that cannot be read.

    Args:
        see: Looks at some of them, and leaves alone those that are done: `over_slides`.

    Returns:
        The jobs that are done, and why others are not.

    Raises:
        SlideError: Of a slide that is none of these.
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


def _share(
    device: torch.device,
    jobs: Sequence[SlideJob],
    work: SlideWork,
    folder: Path,
    workers: int,
    threads: int,
) -> None:
    """The slides of this process."""
    rank, world = idist.get_rank(), idist.get_world_size()
    if world > 1:
        torch.set_num_threads(max(1, threads // world))
    origins = work.origins(device)
    left = [job for job in jobs if not _is_done(job, work, origins, folder, is_silent=rank > 0)]
    idist.barrier()  # All look before anyone writes, so that all share the same slides.
    mine = shares(left, world)[rank]

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
    """The file of one slide."""
    origin = job.origin(origins)
    found = work.look(job, networks, device=device, workers=workers, advance=advance)
    if job.origin(origins) != origin:
        raise SlideError(
            job.path, "the file was changed while it was looked at; start again when it is whole"
        )
    work.write(folder / f"{job.slide_id}{work.suffix}", found, origin)


def _over_cluster(
    jobs: Sequence[SlideJob], work: SlideWork, folder: Path, device: torch.device, address: str
) -> None:
    """A call for each slide that is not done, the largest files first."""
    origins = work.origins(device)
    left = [job for job in jobs if not _is_done(job, work, origins, folder, is_silent=False)]
    if not left:
        return
    (ordered,) = shares(left, 1)
    make = functools.partial(
        _on_worker, work=work, folder=folder, device=device, threads=torch.get_num_threads()
    )
    with progress(total=len(ordered), title="slides", unit="slide") as bar:
        for _ in map_over_cluster(make, [ordered], address):
            bar.update(1)


def _on_worker(job: SlideJob, *, work: SlideWork, folder: Path, device: torch.device, threads: int) -> None:
    """One slide, by a worker of a cluster, with as many threads as who asked has."""
    torch.set_num_threads(threads)
    stamps = tuple((name, path, path.stat().st_mtime_ns) for name, path in job.models.items())
    networks = _networks(work, stamps, device)
    _make(job, work, work.origins(device), folder, networks, device, 0, lambda done, total: None)


@functools.lru_cache(maxsize=1)
def _networks(work: SlideWork, stamps: tuple[tuple[str, Path, int], ...], device: torch.device) -> Any:
    """Those of the last call on this worker, while their files are what they were."""
    return work.load({name: path for name, path, _ in stamps}, device)


def _is_done(job: SlideJob, work: SlideWork, origins: Origins, folder: Path, *, is_silent: bool) -> bool:
    before = work.made_from(folder / f"{job.slide_id}{work.suffix}")
    if before is None:
        return False
    odd = job.origin(origins).differences(before)
    if odd and not is_silent:
        _LOG.info("%s: looked at again, %s", job.path, ", ".join(odd))
    return not odd


def _num_bytes(path: Path) -> int:
    """Size of all files of a slide, bytes."""
    return sum(file.stat().st_size for file in storage.slide_files(path)) if path.is_file() else 0


def shares(jobs: Sequence[SlideJob], processes: int) -> list[list[SlideJob]]:
    """Slides of each process: the largest file first, each to the process with the fewest bytes so far."""
    size = {job.slide_id: _num_bytes(job.path) for job in jobs}
    parts: list[list[SlideJob]] = [[] for _ in range(processes)]
    load = [0] * processes
    for job in sorted(jobs, key=lambda job: (-size[job.slide_id], job.slide_id)):
        least = load.index(min(load))
        parts[least].append(job)
        load[least] += size[job.slide_id]
    return parts
