"""Opens a user's regular files within a time limit, and reads small ones as text or JSON.

What a library opens by itself (HDF5, OpenSlide, cuCIM) passes `check_regular` first.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage.shapes import Shape, misfit

JSON_LIMIT = 2**26
"""Bytes of a JSON file that is read, 64 MiB: the largest that this project writes has some hundred kB."""


OPEN_LIMIT_S = 60.0
"""Seconds within which a disk must open a file; a network folder whose server is gone never answers."""

_ANSWERS_FOR_S = 10.0
"""A folder that has answered is not timed again for so long: a helping thread for each of 100,000 images is slow."""
_answered: dict[str, float] = {}


class InputFileError(InputError):
    """A file that cannot be used: one line with its name, what is wrong with it and how to mend it."""


def check_regular(path: Path) -> os.stat_result:
    """Refuse what is not a file to be read from its beginning to its end, before it is opened.

    Args:
        path: links are followed.

    Returns:
        What the disk knows of it.

    Raises:
        InputFileError: it is a folder, a pipe, a socket or a device, or its disk does not answer in `OPEN_LIMIT_S`.
        OSError: it is missing.
    """
    about = _stat_in_time(path)
    if not stat.S_ISREG(about.st_mode):
        kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a pipe, socket or device"
        raise InputFileError(f"{path}: is {kind}, not a file")
    return about


def open_regular(path: Path) -> io.FileIO:
    """A file, opened to be read in bytes, without a buffer.

    Raises:
        InputFileError: see `check_regular`.
        OSError: it is missing, or may not be read.
    """
    check_regular(path)
    # Never waits for the other end of a pipe that has just taken the place of the file.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputFileError(f"{path}: is a folder, pipe, socket or device, not a file")
    return io.FileIO(handle, "rb")


def _stat_in_time(path: Path) -> os.stat_result:
    """What the disk knows of a file, which it has also opened; a folder that answered lately is trusted to."""
    folder = os.path.dirname(path)
    if time.monotonic() - _answered.get(folder, -math.inf) < _ANSWERS_FOR_S:
        return os.stat(path)
    answer: list[os.stat_result | OSError | ValueError] = []
    # A system call that waits for a server cannot be broken off: a thread of its own waits, and is left behind.
    thread = threading.Thread(target=_stat_and_open, args=(path, answer), daemon=True)
    thread.start()
    thread.join(OPEN_LIMIT_S)
    if not answer:
        raise InputFileError(
            f"{path}: its disk does not answer within {OPEN_LIMIT_S:g} s; look whether the network folder is "
            "there, and start again"
        )
    if not isinstance(answer[0], os.stat_result):
        raise answer[0]
    _answered[folder] = time.monotonic()
    return answer[0]


def _stat_and_open(path: Path, answer: list[os.stat_result | OSError | ValueError]) -> None:
    try:
        about = os.stat(path)
        if stat.S_ISREG(about.st_mode):
            with contextlib.suppress(OSError):  # who reads the file says why it cannot be read
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        answer.append(about)
    except (OSError, ValueError) as error:
        answer.append(error)


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file.

    Pipes and devices are refused before they are opened: reading one may never end.

    Args:
        path: links are followed.
        limit: the most bytes that it may have.

    Raises:
        InputFileError: it is missing, may not be read, is no regular file, or is larger.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= limit else b""
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read ({error.strerror})") from None
    if max(size, len(content)) > limit:
        raise InputFileError(f"{path}: has {size} bytes, more than the {limit} that such a file may have")
    return content


def read_text(path: Path, limit: int) -> str:
    """The content of a regular file in UTF-8, with or without a mark of it.

    Raises:
        InputFileError: see `read_bytes`; or it is not UTF-8.
    """
    content = read_bytes(path, limit)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputFileError(
            f"{path}: not UTF-8 (byte 0x{content[error.start]:02x} in line {line}); save it as UTF-8"
        ) from None


def read_json(path: Path, mend: str, shape: Shape) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        mend: what to do where it is not what it should be; the end of the message.
        shape: that it must have, see `utils.storage.shapes`.

    Raises:
        InputFileError: see `read_text`; or it is not JSON, has a key twice, or another shape.
    """
    try:
        text = read_text(path, JSON_LIMIT)
    except InputFileError as error:
        raise InputFileError(f"{error}; {mend}") from None
    return parse_json(text, path, mend, shape)


def parse_json(text: str, where: object, mend: str, shape: Shape) -> dict[str, Any]:
    """The object in a text of JSON; as `read_json`."""
    try:
        content = json.loads(text, object_pairs_hook=_each_once)
    except RecursionError:
        raise InputFileError(
            f"{where}: not JSON that this project writes (nested too deep); {mend}"
        ) from None
    except ValueError as error:  # also of a number with thousands of digits
        what = " ".join(str(error).split())
        raise InputFileError(f"{where}: not JSON that this project writes ({what[:200]}); {mend}") from None
    if not isinstance(content, dict):
        raise InputFileError(f"{where}: expected an object with keys, got {type(content).__name__}; {mend}")
    fault = misfit(content, shape)
    if fault:
        raise InputFileError(f"{where}: {fault}; {mend}")
    return content


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise InputError(f"key {key!r} stands in it twice")
        content[key] = value
    return content
