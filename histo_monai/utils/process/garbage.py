"""Exclude imported objects from garbage collection."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Context whose objects live as long as the process and are never searched for garbage.

    torch and MONAI create a million objects. Searching them during imports and at exit takes a third of the import
    time, and makes forked processes copy them. Works once per process: later objects may include garbage.
    """
    is_first = gc.get_freeze_count() == 0
    gc.disable()
    try:
        yield
    finally:
        if is_first:
            gc.freeze()
        gc.enable()
