"""Exclude imported objects from garbage collection."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


class _Process:
    """Whether this process, or the one it was forked from, has frozen its objects; counting them takes longer."""

    is_frozen = False


def freeze() -> None:
    """Exclude all present objects from garbage collection, once per process."""
    if not _Process.is_frozen:
        _Process.is_frozen = True
        gc.freeze()


@contextlib.contextmanager
def lasting() -> Iterator[None]:
    """Context whose objects live as long as the process and are never searched for garbage.

    torch and MONAI create a million objects. Searching them during imports and at exit takes a third of the import
    time, and makes forked processes copy them. Works once per process: later objects may include garbage.
    """
    gc.disable()
    try:
        yield
    finally:
        freeze()
        gc.enable()
