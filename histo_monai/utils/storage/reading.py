"""Open a user's regular files within a time limit, and read small ones as text or JSON.

Files that a library opens (HDF5, OpenSlide, cuCIM) pass `check_regular` first.
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
"""Largest JSON file that is read, bytes (64 MiB); this project writes some hundred kB at most."""


OPEN_LIMIT_S = 60.0
"""Time limit for opening a file, s; a network folder without its server never answers."""

_ANSWERS_FOR_S = 10.0
"""Time without a further check of a folder that has answered, s: one thread per image would be slow."""
_answered: dict[str, float] = {}


class InputFileError(InputError):
    """A file that cannot be used: one line with its name, the problem and the fix."""


def check_regular(path: Path) -> os.stat_result:
    """Metadata of a regular file; refuses other paths before they are opened.

    Args:
        path: links are followed.

    Raises:
        InputFileError: the path is a folder, a pipe, a socket or a device, or its disk does not answer in
            `OPEN_LIMIT_S`.
        OSError: the file is missing.
    """
    about = _stat_in_time(path)
    if not stat.S_ISREG(about.st_mode):
        kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a pipe, socket or device"
        raise InputFileError(f"{path}: is {kind}, not a file")
    return about


def open_regular(path: Path) -> io.FileIO:
    """An open file, for reading bytes without a buffer.

    Raises:
        InputFileError: an error of `check_regular`.
        OSError: the file is missing, or you have no permission.
    """
    check_regular(path)
    # O_NONBLOCK: a pipe that has just replaced the file would block without a writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise InputFileError(f"{path}: is a folder, pipe, socket or device, not a file")
    return io.FileIO(handle, "rb")


def _stat_in_time(path: Path) -> os.stat_result:
    """Metadata of a file, opened within the time limit; files of a folder that answered recently are not timed."""
    folder = os.path.dirname(path)
    if time.monotonic() - _answered.get(folder, -math.inf) < _ANSWERS_FOR_S:
        return os.stat(path)
    answer: list[os.stat_result | OSError | ValueError] = []
    # A system call that waits for a server cannot be interrupted, so a separate thread waits.
    thread = threading.Thread(target=_stat_and_open, args=(path, answer), daemon=True)
    thread.start()
    thread.join(OPEN_LIMIT_S)
    if not answer:
        raise InputFileError(
            f"{path}: its disk does not answer within {OPEN_LIMIT_S:g} s. Fix: check the network folder, "
            "then start again"
        )
    if not isinstance(answer[0], os.stat_result):
        raise answer[0]
    _answered[folder] = time.monotonic()
    return answer[0]


def _stat_and_open(path: Path, answer: list[os.stat_result | OSError | ValueError]) -> None:
    try:
        about = os.stat(path)
        if stat.S_ISREG(about.st_mode):
            with contextlib.suppress(OSError):  # The later reader reports the error.
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        answer.append(about)
    except (OSError, ValueError) as error:
        answer.append(error)


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a regular file.

    Pipes and devices are refused before they are opened: reading one may never end.

    Args:
        path: links are followed.
        limit: largest size, bytes.

    Raises:
        InputFileError: the file is missing, not readable, not regular, or too large.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(size + 1) if size <= limit else b""
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read ({error.strerror})") from None
    if max(size, len(content)) > limit:
        raise InputFileError(f"{path}: has {size} bytes, more than the limit of {limit}")
    return content


def read_text(path: Path, limit: int) -> str:
    """The content of a regular file in UTF-8, with or without a byte order mark.

    Raises:
        InputFileError: an error of `read_bytes`, or the file is not UTF-8.
    """
    content = read_bytes(path, limit)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputFileError(
            f"{path}: not UTF-8 (byte 0x{content[error.start]:02x} in line {line}). Fix: save it as UTF-8"
        ) from None


def read_json(path: Path, mend: str, shape: Shape) -> dict[str, Any]:
    """The object in a JSON file.

    Args:
        mend: fix of an unusable file, for the message.
        shape: required shape (`utils.storage.shapes`).

    Raises:
        InputFileError: an error of `read_text`; or the file is not JSON, repeats a key, or has another shape.
    """
    try:
        text = read_text(path, JSON_LIMIT)
    except InputFileError as error:
        raise InputFileError(f"{error.problem}. Fix: {mend}") from None
    return parse_json(text, path, mend, shape)


def parse_json(text: str, where: object, mend: str, shape: Shape) -> dict[str, Any]:
    """The object in a JSON text, with the errors of `read_json`; `where` is its place for messages."""
    try:
        content = json.loads(text, object_pairs_hook=_each_once)
    except RecursionError:
        raise InputFileError(
            f"{where}: not JSON that this project writes (nested too deep). Fix: {mend}"
        ) from None
    except ValueError as error:  # also of a number with thousands of digits
        what = " ".join(str(error).split())
        raise InputFileError(
            f"{where}: not JSON that this project writes ({what[:200]}). Fix: {mend}"
        ) from None
    if not isinstance(content, dict):
        raise InputFileError(
            f"{where}: expected an object with keys, got {type(content).__name__}. Fix: {mend}"
        )
    fault = misfit(content, shape)
    if fault:
        raise InputFileError(f"{where}: {fault}. Fix: {mend}")
    return content


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise InputError(f"key {key!r} is repeated")
        content[key] = value
    return content
