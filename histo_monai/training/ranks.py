"""Several processes that work on one run, one per GPU or several on the CPU; none is waited for without end."""

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

import ignite.distributed as idist
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, start_processes

from histo_monai.utils.errors import InputError
from histo_monai.utils.process.console import escape_unencodable
from histo_monai.utils.process.logs import log_to_stderr
from histo_monai.utils.process.memory import keep_freed_memory

_HUNG = 75
"""Exit status of a rank that made no step."""

_AS_LONG_AS_THEY_MAKE_STEPS = timedelta(days=365)
"""Each rank is watched by itself, so those that have ended may wait for it."""

_last_step = time.monotonic()


class RankHungError(OSError):
    """A rank made no step for as long as one is waited for."""


def note_step() -> None:
    """Say that this rank has made a step: a batch, forward or with its gradients."""
    global _last_step
    _last_step = time.monotonic()


def device_of_rank(device: torch.device, local_rank: int, num_ranks: int) -> torch.device:
    """Where one of several ranks runs.

    Args:
        device: of the environment: "cpu"; "cuda", of which each rank takes its own; or "cuda:<n>".
        local_rank: number of the rank among those on this machine.
        num_ranks: all of them.

    Raises:
        InputError: several ranks would share one GPU, or there are fewer GPUs than ranks.
    """
    if device.type == "cpu" or num_ranks == 1:
        return device
    if device.index is not None:
        raise InputError(
            f"HISTO_MONAI_DEVICE is {str(device)!r}, one GPU, for {num_ranks} processes that need one each; "
            "set HISTO_MONAI_RANKS to 1, or HISTO_MONAI_DEVICE to cuda"
        )
    if local_rank >= torch.cuda.device_count():
        raise InputError(
            f"process {local_rank} of {num_ranks} has no GPU: torch finds {torch.cuda.device_count()} here; "
            "start as many processes (HISTO_MONAI_RANKS) as there are GPUs"
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
    """Call `work(device of the rank, *arguments)` in each rank: in this process, in new ones, or as torchrun has it.

    `ignite.distributed` tells the work its rank and the number of ranks. Returns when all ranks have ended: what they
    wrote is there.

    Args:
        work: a function of a module; calls `note_step` after each of its steps.
        device: of the environment, see `device_of_rank`.
        ranks: processes; 1 stays in this one, and nothing watches it. Under torchrun it decides.
        timeout_s: seconds that a rank may take for a step, or wait for the others.
        start: "fork" where nothing has computed in this process yet; "forkserver" where many are started one after
            the other, from a server that has imported what `multiprocessing.set_forkserver_preload` names.

    Raises:
        InputError: see `device_of_rank`.
        RankHungError: a rank took longer; the others are ended.
    """
    under_torchrun = {"LOCAL_RANK", "WORLD_SIZE"} <= os.environ.keys()
    ranks = int(os.environ["WORLD_SIZE"]) if under_torchrun else ranks
    if ranks == 1:
        work(device, *arguments)
        return
    if under_torchrun:
        _in_rank(int(os.environ["LOCAL_RANK"]), ranks, device, timeout_s, True, {}, work, arguments)
        return
    device_of_rank(device, ranks - 1, ranks)  # All have one, or none is started.
    logging.getLogger("torch.multiprocessing.spawn").setLevel(
        logging.ERROR
    )  # that it ends the others; see the error
    says = logging.getLogger("histo_monai").isEnabledFor(logging.INFO)
    # They meet at a file: a port could be taken.
    with tempfile.TemporaryDirectory(prefix="histo-monai-") as folder:
        meet = {"init_method": f"file://{folder}/ranks", "world_size": ranks}
        try:
            start_processes(
                _in_rank,
                (ranks, device, timeout_s, says, meet, work, arguments),
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
    says: bool,
    meet: dict[str, Any],
    work: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    """Meet the others and work. Not by Ignite's launcher: it takes a GPU wherever there is one."""
    keep_freed_memory()
    escape_unencodable()
    log_to_stderr(logging.INFO if says and local_rank == 0 else logging.ERROR)
    device = device_of_rank(device, local_rank, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if meet:  # Otherwise torchrun has set these.
        meet = meet | {"rank": local_rank}
        os.environ["LOCAL_RANK"] = str(local_rank)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s), **meet)
    idist.sync()
    # Ranks of our own end with the process that waits for them; those of torchrun go on, each in its own program.
    all_ended = None if meet else dist.new_group(backend="gloo", timeout=_AS_LONG_AS_THEY_MAKE_STEPS)
    with _watch(local_rank, timeout_s):
        work(device, *arguments)
    if all_ended is not None:
        dist.barrier(all_ended)
    idist.finalize()  # After an error the process ends: to part in order would let the others fail first.


@contextlib.contextmanager
def _watch(local_rank: int, timeout_s: float) -> Iterator[None]:
    """End this process when it makes no step for long: nothing else in it can end what hangs in a call."""
    note_step()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(min(timeout_s / 10, 10.0)):
            # Longer than the others wait for it: where they wait, their error names what they waited for.
            if time.monotonic() - _last_step > 1.2 * timeout_s:
                if "TORCHELASTIC_RUN_ID" in os.environ:  # Otherwise the process that started it has the word.
                    print(f"histo-monai: error: {_hung(local_rank, timeout_s)}", file=sys.stderr, flush=True)
                os._exit(_HUNG)

    threading.Thread(target=look, daemon=True, name="watch").start()
    try:
        yield
    finally:
        ended.set()


def _hung(rank: int, timeout_s: float) -> str:
    return (
        f"process {rank} made no step for {timeout_s:g} s and was ended, with the run; a disk or a GPU that does not "
        "answer? HISTO_MONAI_TIMEOUT_S allows for more; start again to go on after the last finished epoch or slide"
    )
