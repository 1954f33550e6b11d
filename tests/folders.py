"""Folders of a file's tests, which go after its last one: a whole run never needs more disk than its largest files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NewFolder = Callable[[str], Path]


def work_in_copy(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a copy of a folder the working folder of a test."""
    shutil.copytree(folder, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewFolder]:
    """Makes a folder of the name given; what fixtures of wider use make by `tmp_path_factory` stays to the end."""
    made: list[Path] = []

    def make(name: str) -> Path:
        made.append(tmp_path_factory.mktemp(name))
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder)
