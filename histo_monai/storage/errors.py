"""What stands in the way of a file that is to be written, in one line."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from histo_monai.errors import InputError


class OutputError(InputError):
    """Something must not, or cannot, be written where it should be: one line with what, where and the remedy."""


class DiskFullError(OutputError):
    """The disk, or the quota, has no room for what is being written."""


@contextmanager
def disk_full_in_words(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn the errors that a full disk causes into a `DiskFullError` that names path and free space.

    Libraries raise errors of their own where a write fails (torch a RuntimeError, pandas and Pillow an OSError), so
    what decides is the errno, or a disk with no room left.

    Args:
        path: What is being written; need not be there.
        needed: Bytes that it takes, where that is known.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        free = _free_bytes(path)
        by_errno = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if isinstance(error, DiskFullError) or not (by_errno or free < 2**16):
            raise
        wanted = "" if needed is None else f"{_size(needed)} needed, "
        raise DiskFullError(
            f"{path}: the disk is full ({wanted}{_size(free)} free); make room and start again, "
            "finished epochs and slides are kept"
        ) from error


def _free_bytes(path: Path) -> int:
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 10**9 else f"{num_bytes / 1e6:.1f} MB"
