"""Explain failures of the machine in one line with a fix: exhausted memory, killed or lost processes."""

from __future__ import annotations

import os
import re

_FEWER = (
    "Fix: use fewer processes (HISTO_MONAI_WORKERS, HISTO_MONAI_CPUS, HISTO_MONAI_RANKS) or a smaller batch_size; "
    "start again to continue after the last finished epoch or slide"
)
_SHM = "/dev/shm"
_ALLOCATION = re.compile(r"DefaultCPUAllocator|not enough memory|[Cc]annot allocate memory|out of memory")
_DEAD_WORKER = re.compile(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)")
_SHARED_MEMORY = re.compile(
    r"out of shared memory|unable to (write to|open|mmap|allocate) .*(shm|torch_)|Bus error"
)
_NO_THREAD = re.compile(
    r"can't start new thread|Resource temporarily unavailable.*thread|thread.*Resource temporarily"
)
_PEERS = re.compile(r"gloo|nccl|store", re.IGNORECASE)
_TIMEOUT = re.compile(r"timed? ?out", re.IGNORECASE)
_LOST = re.compile(r"closed|reset by peer|broken pipe|remote process exited", re.IGNORECASE)


def machine_failure(kind: type[BaseException], message: str) -> str | None:
    """One line for a failure of the machine; None for other errors.

    Most libraries raise no specific errors here, so some failures are recognized by their message.
    """
    names = {base.__name__ for base in kind.__mro__}
    first = " ".join(message.split())[:200]
    if names & {"MemoryError", "OutOfMemoryError"}:
        return f"out of memory ({first or 'allocation failed'}). {_FEWER}"
    if "BrokenProcessPool" in names:
        return f"a helper process was killed, mostly for lack of memory. {_FEWER}"
    if "ProcessExitedException" in names:
        return f"a training process was killed ({first}), mostly for lack of memory. {_FEWER}"
    if "PermissionError" in names and _names_no_file(message) and not os.access(_SHM, os.W_OK):
        return (
            f"{_SHM}: this user may not write there, which processes need to wait for each other. Fix: mount it "
            "with mode 1777, as container engines do, or set HISTO_MONAI_CPUS=1 and HISTO_MONAI_WORKERS=0"
        )
    return _by_words(message, first) if issubclass(kind, RuntimeError) else None


def _names_no_file(message: str) -> bool:
    return "'" not in message and "/" not in message


def _by_words(message: str, first: str) -> str | None:
    if _SHARED_MEMORY.search(message):
        return f"{_SHM} is full ({first}). Fix: enlarge it (--shm-size), or set HISTO_MONAI_WORKERS=0"
    if _NO_THREAD.search(message):
        return f"no further thread may be started (`ulimit -v` and `-u` limit memory and processes). {_FEWER}"
    if _DEAD_WORKER.search(message):
        return f"a reading process was killed, mostly for lack of memory. {_FEWER}"
    if _ALLOCATION.search(message):
        return f"out of memory ({first}). {_FEWER}"
    if _PEERS.search(message) and _TIMEOUT.search(message):
        return f"another training process did not answer in HISTO_MONAI_TIMEOUT_S ({first}). Fix: start again"
    if _PEERS.search(message) and _LOST.search(message):
        return f"another training process was killed, mostly for lack of memory. {_FEWER}"
    return None
