"""Several processes that work on one run, one per GPU or several on the CPU; none is waited for without end."""

from __future__ import annotations

import contextlib
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
from torch.multiprocessing.spawn import ProcessExitedException

_HUNG = 75
"""Exit status of a rank that made no step."""

_last_step = time.monotonic()


class RankHungError(OSError):
    """A rank made no step for as long as one is waited for."""


def note_step() -> None:
    """Say that this rank has made a step: a batch, forward or with its gradients."""
    global _last_step
    _last_step = time.monotonic()


def run_in_ranks(
    work: Callable[..., None],
    *arguments: Any,
    device: torch.device,
    ranks: int,
    timeout_s: float,
    start: Literal["spawn", "fork"] = "spawn",
) -> None:
    """Call `work(local_rank, *arguments)` in each rank: in this process, in new ones, or as torchrun has started them.

    Args:
        work: a function of a module; calls `note_step` after each of its steps.
        arguments: of it.
        device: of this process; "cuda" gives each rank its own GPU.
        ranks: processes; 1 stays in this one, and nothing watches it. Under torchrun it decides.
        timeout_s: seconds that a rank may take for a step, or wait for the others.
        start: "fork" where nothing has computed in this process yet.

    Raises:
        RankHungError: a rank took longer; the others are ended.
    """
    under_torchrun = "LOCAL_RANK" in os.environ
    if ranks == 1 and not under_torchrun:
        work(0, *arguments)
        return
    backend = "nccl" if device.type == "cuda" else "gloo"
    timeout = timedelta(seconds=timeout_s)
    if under_torchrun:
        idist.initialize(backend, timeout=timeout)
        try:
            _watched(idist.get_local_rank(), work, arguments, timeout_s)
        finally:
            idist.finalize()
        return
    # They meet at a file: a port could be taken, and Ignite's is the same for every run on a machine.
    with tempfile.TemporaryDirectory(prefix="histo-monai-") as folder:
        meet = {"nproc_per_node": ranks, "init_method": f"file://{folder}/ranks", "timeout": timeout}
        try:
            with idist.Parallel(backend, **meet, start_method=start) as parallel:
                parallel.run(_watched, work, arguments, timeout_s)
        except ProcessExitedException as error:
            if error.exit_code != _HUNG:
                raise
            raise RankHungError(_hung(error.error_index, timeout_s)) from None


def _watched(
    local_rank: int, work: Callable[..., None], arguments: tuple[Any, ...], timeout_s: float
) -> None:
    with _watch(local_rank, timeout_s):
        work(local_rank, *arguments)


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
