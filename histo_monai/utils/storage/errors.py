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
"""Messages of numpy and torch on an incomplete write; they state no cause."""


@contextmanager
def disk_full_in_words(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn the errors that a full disk causes into a `DiskFullError` that names path and free space.

    Libraries raise different errors if a write fails (torch a RuntimeError, pandas and Pillow an OSError). So the
    error is recognized by its errno, by a full disk, or by its message.

    Args:
        path: Written file; may be missing.
        needed: Size of the file in bytes, if known.
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
                f"{path}: exceeds the file size limit. Fix: raise the limit (`ulimit -f`) or the quota, or write to "
                "another disk, then start again"
            ) from error
        if not is_full:
            raise
        wanted = "" if needed is None else f"{_size(needed)} needed, "
        raise DiskFullError(
            f"{path}: the disk is full ({wanted}{_size(free)} free). Fix: free disk space and start again; "
            "finished epochs and slides remain"
        ) from error


def check_room(path: Path, needed: int) -> None:
    """Refuse a file larger than the free disk space before a library writes it: some libraries crash on a full disk.

    Args:
        path: File to write; may be missing.
        needed: Size of the file, bytes.

    Raises:
        DiskFullError: The disk has less free space.
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
