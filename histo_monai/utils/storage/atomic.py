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
"""An escaped character in `_MOUNTS`, such as a space."""


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
            draft.unlink(missing_ok=True)  # It may be a link: writing would change the link's target.
            yield draft
            os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty draft folder that replaces `folder` when the block succeeds; an error deletes the draft.

    Raises:
        DiskFullError: The disk is full.
        OutputError: `folder` cannot be replaced (`check_replaceable`).
    """
    check_replaceable(folder)
    draft, before = (folder.with_name(f".{folder.name}.{kind}") for kind in ("draft", "before"))
    if before.is_dir() and not folder.exists():  # An earlier run was killed between the two renames below.
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
    """Refuse a folder that cannot be replaced in one step.

    Raises:
        OutputError: The path is a link, a mount point or a file, or its parent folder is not writable.
    """
    what = None
    if folder.is_symlink():
        what = f"is a link to {os.readlink(folder)}. Fix: link the whole data folder instead"
    elif _is_mount(folder):
        what = "is a mount point. Fix: mount the whole data folder instead"
    elif folder.exists() and not folder.is_dir():
        what = "is a file, but a folder is needed. Fix: move the file away"
    around = folder.parent
    while what is None and not around.exists() and not around.is_symlink():
        around = around.parent
    if what is None and not (around.is_dir() and os.access(around, os.W_OK | os.X_OK)):
        what = f"cannot be written. Fix: make {around} a writable folder"
    if what is not None:
        raise OutputError(f"{folder}: {what}")


def _is_mount(folder: Path) -> bool:
    """Whether a folder is a mount point; only the kernel's table lists mounts of folders of the same disk."""
    if folder.is_mount() or not _MOUNTS.is_file():
        return folder.is_mount()
    points = (line.split(b" ")[4] for line in _MOUNTS.read_bytes().splitlines())
    real = os.fsencode(os.path.realpath(folder))
    return any(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), point) == real for point in points)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON in one step, with keys in the given order."""
    text = json.dumps(content, indent=2) + "\n"
    with whole_file(path, len(text)) as draft:
        draft.write_text(text, encoding="utf-8")
