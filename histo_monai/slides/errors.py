"""Errors of slide files, one line each."""

from __future__ import annotations

from pathlib import Path

from histo_monai.utils.errors import InputError


class SlideError(InputError):
    """A slide cannot be opened or read: one line with file, problem and fix."""

    def __init__(self, path: str | Path, what: str) -> None:
        self.path = Path(path)
        self.what = what
        super().__init__(path, what)

    def __str__(self) -> str:
        name = str(self.path)
        return f"slide {name if name.isprintable() else repr(name)}: {' '.join(self.what.split())}"


class NoResolutionError(SlideError):
    """Neither the slide nor the manifest states µm/px."""
