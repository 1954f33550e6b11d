"""Reuse freed memory inside the process, which is faster than returning it to the system."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""glibc's numbers of two `mallopt` settings: free memory at the heap's end before it is returned, and the number of
separate system allocations."""

_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Let this process and its forks reuse freed memory; no effect without glibc.

    glibc allocates arrays above 32 MiB, and the first of every size, from the system, which zeroes each page at first
    use: 450 MiB per training step at 256 px. Results do not change; the process stays at its peak memory.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_TRIM_THRESHOLD, _NEVER)
    mallopt(_MMAP_MAX, 0)
