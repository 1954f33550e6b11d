"""A bounded number of open files per process."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from histo_monai.utils.errors import InputError


class Handle(Protocol):
    """Open resource with a `close` method."""

    def close(self) -> None:
        """Release the resource."""


Key = TypeVar("Key", bound=Hashable)
Opened = TypeVar("Opened", bound=Handle)


class HandlePool(Generic[Key, Opened]):
    """Open handles, at most `max_open`; closes the least recently used.

    A forked child must not read its parent's handles, because both processes would use one file position and one set
    of locks. So a child starts without handles. Pickling drops the handles.

    Raises:
        InputError: `max_open` is less than 1.
    """

    def __init__(self, max_open: int) -> None:
        if max_open < 1:
            raise InputError(f"max_open: got {max_open}. Fix: pass at least 1")
        self.max_open = max_open
        self._pid = os.getpid()
        self._handles: OrderedDict[Key, Opened] = OrderedDict()

    def __len__(self) -> int:
        return len(self._own())

    def get(self, key: Key, opener: Callable[[], Opened]) -> Opened:
        """The open handle of a key; opens it if necessary, and may close the least recently used handle.

        The handle is valid until `max_open` other keys have been requested.
        """
        handles = self._own()
        if key in handles:
            handles.move_to_end(key)
            return handles[key]
        while len(handles) >= self.max_open:
            handles.popitem(last=False)[1].close()
        handles[key] = opener()
        return handles[key]

    def close(self) -> None:
        """Close all handles of this process."""
        handles = self._own()
        while handles:
            handles.popitem()[1].close()

    def _own(self) -> OrderedDict[Key, Opened]:
        if self._pid != os.getpid():
            # Do not close the parent's handles: the parent still reads them.
            self._inherited, self._handles, self._pid = self._handles, OrderedDict(), os.getpid()
        return self._handles

    def __getstate__(self) -> dict[str, int]:
        return {"max_open": self.max_open}

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__init__(**state)  # type: ignore[misc]
