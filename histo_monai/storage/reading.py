"""One way to read small files of settings and descriptions: regular, of bounded size, in UTF-8, JSON as it is meant."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from histo_monai.errors import InputError
from histo_monai.storage.shapes import Shape, misfit

JSON_LIMIT = 2**26
"""Bytes of a JSON file that is read, 64 MiB: the largest that this project writes has some hundred kB."""


class InputFileError(InputError):
    """A file that cannot be used: one line with its name, what is wrong with it and how to mend it."""


def check_regular(path: Path) -> os.stat_result:
    """Refuse what is not a file to be read from its beginning to its end, before it is opened.

    Args:
        path: links are followed.

    Returns:
        What the disk knows of it.

    Raises:
        InputFileError: it is a folder, a pipe, a socket or a device.
        OSError: it is missing.
    """
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a pipe, socket or device"
        raise InputFileError(f"{path}: is {kind}, not a file")
    return about


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
        about = check_regular(path)
        with path.open("rb") as file:  # a read takes as much memory as it is asked for, whatever there is
            content = file.read(about.st_size + 1) if about.st_size <= limit else b""
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read ({error.strerror})") from None
    if max(about.st_size, len(content)) > limit:
        raise InputFileError(
            f"{path}: has {about.st_size} bytes, more than the {limit} that such a file may have"
        )
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
        path: the file.
        mend: what to do where it is not what it should be; the end of the message.
        shape: that it must have, see `storage.shapes`.

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
