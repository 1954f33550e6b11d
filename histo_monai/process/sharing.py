"""What this process shares with those that it forks: memory, and its work.

One process at first, and in every one that is forked: those that read for a training are many already.
"""

from __future__ import annotations

import gc
import mmap
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Process:
    """This process's."""

    num = 1


def _forget_in_child() -> None:
    _Process.num = 1


os.register_at_fork(after_in_child=_forget_in_child)


def share_with(processes: int) -> None:
    """From now on work that can be shared is done by so many processes, this one among them; no result changes.

    Args:
        processes: at least 1.
    """
    _Process.num = processes


def num_sharing() -> int:
    """How many processes do what can be shared, this one among them."""
    return _Process.num


def shared_zeros(num_bytes: int) -> NDArray[np.uint8]:
    """Zeros that forked processes share, in no file and outside /dev/shm, which containers keep small."""
    return np.frombuffer(mmap.mmap(-1, max(num_bytes, 1)), dtype=np.uint8)[:num_bytes]


class Helpers:
    """Processes that do parts of one work, in memory that they share with this one.

    They are forked, and see what there is at that time. They end with this process, however it ends.

    Args:
        num: of them.
        work: does a part; it is called in a helper with what that is asked for. What it gives back is lost.
    """

    def __init__(self, num: int, work: Callable[..., None]) -> None:
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self.processes: list[Any] = []
        for _ in range(num):
            here, there = context.Pipe()
            self._ends.append(here)
            process = context.Process(target=_help, args=(there, self._ends, work), daemon=True)
            process.start()
            there.close()
            self.processes.append(process)

    def ask(self, number: int, *arguments: Any) -> None:
        """Let a helper do a part, which is to be waited for.

        Raises:
            BrokenProcessPool: it has been killed.
        """
        try:
            self._ends[number].send(arguments)
        except OSError as error:
            raise BrokenProcessPool("a helping process was killed") from error

    def wait(self, number: int) -> None:
        """Until a helper has done its part.

        Raises:
            BrokenProcessPool: it has been killed.
            Exception: of the work.
        """
        try:
            error: Exception | None = self._ends[number].recv()
        except (EOFError, OSError) as ended:
            raise BrokenProcessPool("a helping process was killed") from ended
        if error is not None:
            raise error

    def end(self) -> None:
        """Without waiting for what they do."""
        for end, process in zip(self._ends, self.processes, strict=True):
            process.terminate()
            process.join()
            end.close()


def _help(there: Connection, ends: list[Connection], work: Callable[..., None]) -> None:
    import torch  # is here already: this process was forked

    for end in ends:  # while one of them is open, nobody hears that the other process has ended
        end.close()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all of a terminal's: who waits for helpers ends them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.freeze()  # what is garbage there is not freed here
    torch.set_num_threads(1)
    while True:
        try:
            arguments = there.recv()
        except (EOFError, OSError):
            return
        error: Exception | None = None
        try:
            work(*arguments)
        except Exception as raised:  # any that the work raises: `Helpers.wait` raises it again
            error = raised
        there.send(error)
