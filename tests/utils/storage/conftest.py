"""Disks of a megabyte: full ones, and ones that nothing may be written to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def _mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a disk of a megabyte needs the right to mount one: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, empty."""
    with _mounted(tmp_path / "disk", "size=1m") as folder:
        yield folder


@pytest.fixture(params=[8, 16, 32, 64], ids="{} KiB".format)
def tiny_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of 8 to 64 KiB, empty."""
    with _mounted(tmp_path / "disk", f"size={request.param}k") as folder:
        yield folder


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A disk that nobody may write to, root neither."""
    with _mounted(tmp_path / "archive", "size=1m,ro") as folder:
        yield folder


@pytest.fixture
def names() -> Callable[[Path], set[str]]:
    """The names of all that lies in a folder, drafts too."""
    return lambda folder: {path.name for path in folder.iterdir()}
