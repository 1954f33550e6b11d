"""A bounded number of open slides per process."""

from __future__ import annotations

from pathlib import Path

from histo_monai.slides.reader import Slide, open_slide
from histo_monai.utils.storage.handles import HandlePool

MAX_OPEN = 64
"""Most open slides per process; the tile tables of a large slide take 5 MB."""


class SlidePool:
    """Open slides, per process; closes the least recently used beyond `max_open` (`HandlePool`).

    Raises:
        InputError: `max_open` is less than 1.
    """

    def __init__(self, max_open: int) -> None:
        self.max_open = max_open
        self._slides: HandlePool[tuple[Path, float | None], Slide] = HandlePool(max_open)

    def __len__(self) -> int:
        return len(self._slides)

    def get(self, path: str | Path, mpp: float | None = None) -> Slide:
        """The open slide of a file, valid until `max_open` other slides are requested.

        Raises:
            SlideError: `open_slide` cannot open it.
        """
        return self._slides.get((Path(path), mpp), lambda: open_slide(path, mpp))

    def close(self) -> None:
        """Close all slides of this process."""
        self._slides.close()
