"""What goes wrong with a slide file, said in one line."""

from __future__ import annotations

from pathlib import Path

from histo_monai.utils.errors import InputError


class SlideError(InputError):
    """A slide cannot be opened or read: one line with what is wrong, which file, and how to mend it."""

    def __init__(self, path: str | Path, what: str) -> None:
        self.path = Path(path)
        self.what = what
        super().__init__(path, what)

    def __str__(self) -> str:
        name = str(self.path)
        return f"slide {name if name.isprintable() else repr(name)}: {' '.join(self.what.split())}"


class NoResolutionError(SlideError):
    """A slide states no µm/px, and nobody else does."""
