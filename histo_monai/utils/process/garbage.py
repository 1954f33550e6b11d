"""The search for garbage spares what the libraries brought along."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """What is made here lives as long as the process does: it is never searched for garbage.

    A million objects come with torch and MONAI. Searching them again and again while they are imported, and once more
    at the end, takes as long as a third of all imports, and a forked process would copy them for it. Only the first
    time in a process: later there is garbage among what would be kept.
    """
    is_first = gc.get_freeze_count() == 0
    gc.disable()
    try:
        yield
    finally:
        if is_first:
            gc.freeze()
        gc.enable()
