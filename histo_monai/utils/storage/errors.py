"""One-line errors for files that cannot be written."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from histo_monai.utils.errors import InputError


class OutputError(InputError):
    """A file or folder must not or cannot be written: one line with place, problem and remedy."""


class DiskFullError(OutputError):
    """The disk or the quota is full."""


_CUT_SHORT = re.compile(r"\d+ requested and \d+ written|unexpected pos \d+ vs \d+|failed writing")
"""What numpy and torch say of a write that was cut short, which they do not know the reason of."""


@contextmanager
def disk_full_in_words(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn the errors that a full disk causes into a `DiskFullError` that names path and free space.

    Libraries raise errors of their own where a write fails (torch a RuntimeError, pandas and Pillow an OSError), so
    what decides is the errno, a disk with no room left, or words of a write that was cut short.

    Args:
        path: What is being written; need not be there.
        needed: Bytes that it takes, where that is known.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:
        free = _free_bytes(path)
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, DiskFullError):
            raise
        is_full = number in (errno.ENOSPC, errno.EDQUOT) or free < 2**16
        is_limited = number == errno.EFBIG or (number is None and _CUT_SHORT.search(str(error)))
        if not is_full and is_limited:
            raise DiskFullError(
                f"{path}: longer than a file may be here; raise the limit (`ulimit -f`) or the quota, or write to "
                "another disk, and start again"
            ) from error
        if not is_full:
            raise
        wanted = "" if needed is None else f"{_size(needed)} needed, "
        raise DiskFullError(
            f"{path}: the disk is full ({wanted}{_size(free)} free); make room and start again, "
            "finished epochs and slides are kept"
        ) from error


def check_room(path: Path, needed: int) -> None:
    """Refuse to write what the disk has no room for, before a library that cannot cope with that begins.

    Args:
        path: What is to be written; need not be there.
        needed: Bytes that it takes.

    Raises:
        DiskFullError: There is less room.
    """
    with disk_full_in_words(path, needed):
        if _free_bytes(path) < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _free_bytes(path: Path) -> int:
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 10**9 else f"{num_bytes / 1e6:.1f} MB"
