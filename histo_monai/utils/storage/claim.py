"""Advisory lock: one process at a time writes a folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from histo_monai.utils.storage.atomic import check_replaceable
from histo_monai.utils.storage.errors import OutputError
from histo_monai.utils.storage.outputs import check_folder


@contextmanager
def claim(folder: Path, lock: Path, *, replaces: bool = True) -> Iterator[None]:
    """Lock `folder` for this process until the block ends.

    The lock file holds the process number. The kernel releases the lock when the process ends, so a leftover file has
    no effect.

    Args:
        folder: Folder to write.
        lock: Lock file; it exists while the lock is held.
        replaces: Whether the whole folder is replaced; else files are written into it.

    Raises:
        OutputError: Another process holds the lock (names it), or `folder` cannot be replaced.
    """
    if replaces:
        check_replaceable(folder)
    made = [place for place in lock.parents if not place.exists()]
    lock.parent.mkdir(parents=True, exist_ok=True)
    handle = _locked(lock, folder)
    try:
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)
        with contextlib.suppress(OSError):  # A refused command leaves no folder behind.
            for place in made:
                place.rmdir()


@contextmanager
def claim_users_folder(folder: Path, lock: str, unfinished: str) -> Iterator[None]:
    """Lock a folder that may hold a user's files, and check its subfolder for drafts.

    Args:
        folder: May be missing.
        lock: Name of the lock file in the folder.
        unfinished: Name of the subfolder for unfinished files.

    Raises:
        OutputError: An error of `claim`, `check_folder` or `check_replaceable`.
    """
    check_folder(folder)
    with claim(folder, folder / lock, replaces=False):
        check_replaceable(folder / unfinished)
        yield


def _locked(lock: Path, folder: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(handle)
            raise OutputError(
                f"{folder}: already being written, by process {holder}. Fix: wait for it, or end it"
            ) from None
        # The previous holder may have deleted the file after it was opened here and before it was locked.
        if lock.exists() and os.stat(lock).st_ino == os.fstat(handle).st_ino:
            return handle
        os.close(handle)
