"""Several processes (ranks) of one run, one per GPU or several on the CPU, each with a timeout."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, start_processes

from histo_monai.utils.errors import InputError
from histo_monai.utils.process.console import escape_unencodable
from histo_monai.utils.process.logs import log_to_stderr
from histo_monai.utils.process.memory import keep_freed_memory

_HUNG = 75
"""Exit status of a rank without a step."""

_AS_LONG_AS_THEY_MAKE_STEPS = timedelta(days=365)
"""Timeout of finished ranks; `_watch` of the other ranks has its own."""

_last_step = time.monotonic()


class RankHungError(OSError):
    """A rank made no step within the timeout."""


def note_step() -> None:
    """Record that this rank has made a step: a batch, with or without gradients."""
    global _last_step
    _last_step = time.monotonic()


def device_of_rank(device: torch.device, local_rank: int, num_ranks: int) -> torch.device:
    """Device of one of several ranks.

    Args:
        device: of the environment: "cpu"; "cuda": one GPU per rank; or "cuda:<n>".
        local_rank: number of the rank on this machine.
        num_ranks: number of all ranks.

    Raises:
        InputError: several ranks would use one GPU, or there are fewer GPUs than ranks.
    """
    if device.type == "cpu" or num_ranks == 1:
        return device
    if device.index is not None:
        raise InputError(
            f"HISTO_MONAI_DEVICE: {str(device)!r} is one GPU, but {num_ranks} processes need one each. "
            "Fix: set HISTO_MONAI_RANKS to 1, or HISTO_MONAI_DEVICE to cuda."
        )
    if local_rank >= torch.cuda.device_count():
        raise InputError(
            f"HISTO_MONAI_RANKS: process {local_rank} of {num_ranks} has no GPU; torch finds "
            f"{torch.cuda.device_count()}. Fix: set HISTO_MONAI_RANKS to the number of GPUs."
        )
    return torch.device(device.type, local_rank)


def run_in_ranks(
    work: Callable[..., None],
    *arguments: Any,
    device: torch.device,
    ranks: int,
    timeout_s: float,
    start: Literal["spawn", "fork", "forkserver"] = "spawn",
) -> None:
    """Call `work(device of the rank, *arguments)` in each rank: this process, new processes, or torchrun's.

    `ignite.distributed` has the rank and the number of ranks. Returns when all ranks have ended.

    Args:
        work: a module's function; calls `note_step` after each of its steps.
        device: of the environment, for `device_of_rank`.
        ranks: processes; 1 runs here, without a timeout. Under torchrun, torchrun's number counts.
        timeout_s: seconds for a step, or for waiting at other ranks.
        start: "fork" before any computation in this process; "forkserver" for many starts, from a server with the
            imports of `multiprocessing.set_forkserver_preload`.

    Raises:
        InputError: several ranks would use one GPU, or there are fewer GPUs than ranks.
        RankHungError: a rank exceeded the timeout; the others are ended.
    """
    under_torchrun = {"LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys()
    ranks = int(os.environ["WORLD_SIZE"]) if under_torchrun else ranks
    if ranks == 1:
        work(device, *arguments)
        return
    if under_torchrun:
        _in_rank(int(os.environ["LOCAL_RANK"]), ranks, device, timeout_s, True, {}, work, arguments)
        return
    device_of_rank(device, ranks - 1, ranks)  # Refuses before any process starts.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # The error names ended ranks.
    is_logging = logging.getLogger("histo_monai").isEnabledFor(logging.INFO)
    # Ranks meet at a file, as a port could be in use.
    with tempfile.TemporaryDirectory(prefix="histo-monai-") as folder:
        meet = {"init_method": f"file://{folder}/ranks", "world_size": ranks}
        try:
            start_processes(
                _in_rank,
                (ranks, device, timeout_s, is_logging, meet, work, arguments),
                nprocs=ranks,
                start_method=start,
            )
        except ProcessExitedException as error:
            if error.exit_code != _HUNG:
                raise
            raise RankHungError(_hung(error.error_index, timeout_s)) from None


def _in_rank(
    local_rank: int,
    ranks: int,
    device: torch.device,
    timeout_s: float,
    is_logging: bool,
    meet: dict[str, Any],
    work: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    """Join the process group and work. Ignite's launcher is not used, as it takes any GPU present."""
    import ignite.distributed as idist  # Late: Ignite takes seconds to load, and most runs have one process.

    keep_freed_memory()
    escape_unencodable()
    log_to_stderr(logging.INFO if is_logging and local_rank == 0 else logging.ERROR)
    device = device_of_rank(device, local_rank, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if meet:  # Otherwise torchrun has set these.
        meet = meet | {"rank": local_rank}
        os.environ["LOCAL_RANK"] = str(local_rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s), **meet)
    idist.sync()
    # The parent process waits for ranks of its own; ranks of torchrun are separate programs and wait here.
    all_ended = None if meet else dist.new_group(backend="gloo", timeout=_AS_LONG_AS_THEY_MAKE_STEPS)
    with _watch(local_rank, timeout_s):
        work(device, *arguments)
    if all_ended is not None:
        dist.barrier(all_ended)
    idist.finalize()  # Not after an error: other ranks would fail first and hide it.


@contextlib.contextmanager
def _watch(local_rank: int, timeout_s: float) -> Iterator[None]:
    """Context that ends this process after a timeout without a step, as no other way ends a hanging call."""
    note_step()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(min(timeout_s / 10, 10.0)):
            # Longer than the collective timeout of other ranks, so that their more specific error comes first.
            if time.monotonic() - _last_step > 1.2 * timeout_s:
                if "TORCHELASTIC_RUN_ID" in os.environ:  # Otherwise the parent process reports it.
                    print(f"histo-monai: error: {_hung(local_rank, timeout_s)}", file=sys.stderr, flush=True)
                os._exit(_HUNG)

    threading.Thread(target=look, daemon=True, name="watch").start()
    try:
        yield
    finally:
        ended.set()


def _hung(rank: int, timeout_s: float) -> str:
    return (
        f"process {rank}: made no step for {timeout_s:g} s, so the run was ended. Fix: check disk and GPU, or raise "
        "HISTO_MONAI_TIMEOUT_S; start again to resume after the last finished epoch or slide."
    )
