"""Capture messages of C libraries while they decode: their only sign of a damaged tile.

cuCIM decodes a damaged tile as far as possible, prints through the C library's `stdout` or `stderr`, and continues.
During decoding these two streams point to a buffer in memory. Python's streams and the process's files stay unchanged,
so Python's own output is neither lost nor mistaken for a complaint.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Self

_BUFFER_BYTES = 2**16
_UNBUFFERED = 2


class _Streams:
    """The C library's two streams, and the buffer that replaces them."""

    def __init__(self) -> None:
        libc: Any = ctypes.CDLL(None)
        self._out, self._err = (ctypes.c_void_p.in_dll(libc, name) for name in ("stdout", "stderr"))
        self._own = self._out.value, self._err.value
        self._buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
        # Not zero after any output: reading it takes a tenth of the time of a library call.
        self._first = ctypes.c_ubyte.from_buffer(self._buffer)
        libc.fmemopen.restype = ctypes.c_void_p
        self._address = libc.fmemopen(self._buffer, ctypes.c_size_t(_BUFFER_BYTES), b"w")
        self._file = ctypes.c_void_p(self._address)
        libc.setvbuf(self._file, None, _UNBUFFERED, ctypes.c_size_t(0))
        libc.ftell.restype = ctypes.c_long
        self._tell, self._rewind = libc.ftell, libc.rewind
        self._num_users, self._lock = 0, threading.Lock()

    def begin(self) -> int:
        """Point the streams to the buffer; returns the buffer offset of the caller's part."""
        with self._lock:
            self._num_users += 1
            if self._num_users == 1:
                self._out.value = self._err.value = self._address
            return int(self._tell(self._file)) if self._first.value else 0

    def end(self, start: int) -> str:
        """The output since ``start``; the last user also restores the streams."""
        with self._lock:
            self._num_users -= 1
            if self._num_users == 0:
                self.restore()
            if not self._first.value:
                return ""
            stop = int(self._tell(self._file))
            printed = self._buffer.raw[start:stop]
            if self._num_users == 0:
                self._rewind(self._file)
                self._first.value = 0
        if stop >= _BUFFER_BYTES - 1 and not printed:
            return "more decoder messages than the buffer holds"
        return printed.decode("utf-8", "replace")

    def restore(self) -> None:
        """Point the streams back to their originals."""
        self._out.value, self._err.value = self._own


class _Process:
    """This process's streams, made at the first decoding; a forked child makes its own."""

    lock = threading.Lock()
    streams: _Streams | None = None


def _streams() -> _Streams:
    if _Process.streams is None:
        with _Process.lock:
            _Process.streams = _Process.streams or _Streams()
    return _Process.streams


def _forget_in_child() -> None:
    """Restore the streams in a child whose parent was decoding in another thread."""
    if _Process.streams is not None:
        _Process.streams.restore()
    _Process.lock, _Process.streams = threading.Lock(), None


os.register_at_fork(after_in_child=_forget_in_child)


class Complaints:
    """Context manager that captures the output of C libraries as `text`: one line, or empty.

    With several threads, each captures the output of all, so a caller must check that a complaint is about its data.
    """

    text = ""

    def __enter__(self) -> Self:
        self._start = _streams().begin()
        return self

    def __exit__(self, *_: object) -> None:
        printed = _streams().end(self._start)
        if printed:
            self.text = " ".join(printed.split())
