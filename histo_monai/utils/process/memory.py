"""Memory that was used once stays with the process: to give it back and ask for it again costs more than small work."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""glibc's numbers of two settings of `mallopt`: what is free at the heap's end before it is given back, and how many
pieces may be taken from the system one by one."""

_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """From now on what this process frees, and what it forks, is kept for what is asked for next.

    glibc takes arrays of more than 32 MiB, and the first of every size, from the system, which fills them with zeros
    page by page as they are touched: a step of training at 256 px touches 450 MiB of such pages. No number changes; the
    process holds on to the most that it has used. Nothing happens where the C library is another.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_TRIM_THRESHOLD, _NEVER)
    mallopt(_MMAP_MAX, 0)
