from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def own_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project, the working folder, whose `own_methods/` no other test has imported."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "own_methods"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    forget()
    yield tmp_path
    forget()
