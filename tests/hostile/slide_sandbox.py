"""Runs tasks in forked processes with limits, so that a death is a result and not the end.

A child takes tasks one after the other; when one kills it or takes too long, the next child goes on after it.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def in_sandbox(
    tasks: Sequence[T],
    run: Callable[[T], str],
    *,
    seconds: float = 30.0,
    memory_gib: float = 3.0,
    batch: int = 64,
) -> Iterator[tuple[T, str]]:
    """Each task with what ``run`` returned, or with ``died: ...`` or ``hung: ...``.

    Args:
        tasks: What to run; each in a child that has run at most ``batch - 1`` before it.
        run: Called in the child.
        seconds: A task that takes longer hangs.
        memory_gib: How much a child may take beyond what it starts with.
        batch: Tasks of one child.
    """
    position = 0
    while position < len(tasks):
        some = tasks[position : position + batch]
        child, pipe = _start(some, run, memory_gib)
        try:
            for task in some:
                result = _receive(pipe, seconds)
                position += 1
                if result is None:
                    yield task, _end(child, seconds)
                    child = 0
                    break
                yield task, result
        finally:
            os.close(pipe)
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _start(tasks: Sequence[T], run: Callable[[T], str], memory_gib: float) -> tuple[int, int]:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return child, read_end
    try:
        os.close(read_end)
        faulthandler.disable()  # The parent reports a death.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + int(memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for task in tasks:
            message = pickle.dumps(run(task))
            os.write(write_end, struct.pack("I", len(message)) + message)
        signal.pause()  # for the parent to end it: no clean-up of libraries in between
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _receive(pipe: int, seconds: float) -> str | None:
    """The next result; None where there is none in time or the child is gone."""
    deadline = time.monotonic() + seconds
    message = b""
    while len(message) < 4 or len(message) < 4 + struct.unpack("I", message[:4])[0]:
        wanted = (
            4 - len(message) if len(message) < 4 else 4 + struct.unpack("I", message[:4])[0] - len(message)
        )
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return None
        part = os.read(pipe, wanted)
        if not part:
            return None
        message += part
    return str(pickle.loads(message[4:]))


def _end(child: int, seconds: float) -> str:
    for _ in range(100):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return f"died: {signal.Signals(-code).name if code < 0 else f'exit status {code}'}"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"hung: more than {seconds:g} s"
