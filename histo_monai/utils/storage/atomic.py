"""Atomic writes: to a draft beside the target, which replaces the target in one step."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from histo_monai.utils.storage.errors import OutputError, check_room, disk_full_in_words

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")
"""An escaped character in that file, such as a space."""


@contextmanager
def whole_file(path: Path, needed: int | None = None) -> Iterator[Path]:
    """Yield a draft's path for the block to write; the draft replaces `path` when the block succeeds.

    An error deletes the draft and leaves `path` unchanged. The draft has the suffix of `path`, which selects the format
    in some libraries. Missing folders are created.

    Args:
        needed: Expected bytes, for the message if the disk is full.

    Raises:
        DiskFullError: The disk is full.
    """
    draft = path.with_name(f".{path.stem}.draft{path.suffix}")
    try:
        with disk_full_in_words(path, needed):
            path.parent.mkdir(parents=True, exist_ok=True)
            if needed is not None:
                check_room(path, needed)
            draft.unlink(missing_ok=True)  # whatever it is, also a link, nobody writes through it
            yield draft
            os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` when the block ends well; on an error nothing of it remains.

    Raises:
        DiskFullError: There is no room.
        OutputError: `folder` cannot be replaced, see `check_replaceable`.
    """
    check_replaceable(folder)
    draft, before = (folder.with_name(f".{folder.name}.{kind}") for kind in ("draft", "before"))
    if before.is_dir() and not folder.exists():  # killed between the two renames below
        before.rename(folder)
    for left_behind in (draft, before):
        shutil.rmtree(left_behind, ignore_errors=True)
    try:
        with disk_full_in_words(folder):
            draft.mkdir(parents=True)
            yield draft
            if folder.exists():
                folder.rename(before)
            draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    shutil.rmtree(before, ignore_errors=True)


def check_replaceable(folder: Path) -> None:
    """Refuse a folder that a stage could not replace in one step.

    Raises:
        OutputError: It is a link, a mount point or a file, or the folder around it cannot be written to.
    """
    what = None
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}; link the whole data folder instead"
    elif _is_mount(folder):
        what = "is a mount point; mount the whole data folder instead"
    elif folder.exists() and not folder.is_dir():
        what = "is a file where a folder is to be written; move it away"
    around = folder.parent
    while what is None and not around.exists() and not around.is_symlink():
        around = around.parent
    if what is None and not (around.is_dir() and os.access(around, os.W_OK | os.X_OK)):
        what = f"cannot be written: {around} is no folder that you may write to"
    if what is not None:
        raise OutputError(f"{folder}: {what}")


def _is_mount(folder: Path) -> bool:
    """Whether something is mounted there; of a folder of the same disk only the kernel's table tells."""
    if folder.is_mount() or not _MOUNTS.is_file():
        return folder.is_mount()
    points = (line.split(b" ")[4] for line in _MOUNTS.read_bytes().splitlines())
    real = os.fsencode(os.path.realpath(folder))
    return any(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), point) == real for point in points)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON in one step, keys in the order given."""
    text = json.dumps(content, indent=2) + "\n"
    with whole_file(path, len(text)) as draft:
        draft.write_text(text, encoding="utf-8")
