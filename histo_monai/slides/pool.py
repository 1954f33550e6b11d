"""A bounded number of open slides per process."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path

from histo_monai.errors import InputError
from histo_monai.slides.reader import Slide, open_slide


class SlidePool:
    """Keeps the slides used last open, and never more than a set number.

    A handle opened before a fork must not be read in the child (the two would share one file position and
    one set of locks), so handles belong to the process that opened them and a child starts with none.
    Pickles as its settings, without handles.
    """

    def __init__(self, max_open: int) -> None:
        if max_open < 1:
            raise InputError(f"max_open must be at least 1, got {max_open}")
        self.max_open = max_open
        self._pid = os.getpid()
        self._slides: OrderedDict[tuple[Path, float | None], Slide] = OrderedDict()

    def __len__(self) -> int:
        return len(self._own())

    def get(self, path: str | Path, mpp: float | None = None) -> Slide:
        """The open slide of a file; opens it, and closes the one used longest ago, where need be.

        The slide stays valid until ``max_open`` others have been asked for.

        Raises:
            SlideError: See `open_slide`.
        """
        slides = self._own()
        key = (Path(path), mpp)
        if key in slides:
            slides.move_to_end(key)
            return slides[key]
        while len(slides) >= self.max_open:
            slides.popitem(last=False)[1].close()
        slides[key] = open_slide(path, mpp)
        return slides[key]

    def close(self) -> None:
        """Close all slides of this process."""
        slides = self._own()
        while slides:
            slides.popitem()[1].close()

    def _own(self) -> OrderedDict[tuple[Path, float | None], Slide]:
        if self._pid != os.getpid():
            # The parent's handles are kept, not closed: closing would act on what the parent still reads.
            self._inherited, self._slides, self._pid = self._slides, OrderedDict(), os.getpid()
        return self._slides

    def __getstate__(self) -> dict[str, object]:
        return {"max_open": self.max_open}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(**state)  # type: ignore[misc]
