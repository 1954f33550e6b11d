"""Read annotation files as bytes, and quote their content in messages."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import read_bytes

MOST_BYTES = 2**29
"""Size limit: larger than any annotation file that QuPath or ASAP can show."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 2, 3, 2, 40


def read_content(path: Path) -> bytes:
    """The bytes of an annotation file.

    Raises:
        InputError: The file is unreadable, not regular, empty, or larger than `MOST_BYTES`.
    """
    content = read_bytes(path, MOST_BYTES)
    check_size(path, len(content))
    return content


def check_size(path: Path, num_bytes: int) -> None:
    """Refuse an empty file, or one larger than `MOST_BYTES`.

    Raises:
        InputError: The size is out of range; the message names the file.
    """
    if not num_bytes:
        raise InputError(f"{path}: is empty. Fix: export or download it again.")
    if num_bytes > MOST_BYTES:
        raise InputError(
            f"{path}: has {num_bytes >> 20} MiB. Fix: pass an annotation file of at most {MOST_BYTES >> 20} MiB."
        )


def short(given: Any) -> str:
    """File content for a message of one line: escaped, at most 60 characters."""
    text = _SHORT.repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_text(given: str) -> bool:
    """Whether UTF-8 can encode a string: it holds no half of a surrogate pair."""
    return not any("\ud800" <= sign <= "\udfff" for sign in given)


def is_plain(given: str) -> bool:
    """Whether a string is one line of text without control characters, safe in tables, messages and formats."""
    return is_text(given) and not any(
        sign < " " or "\x7f" <= sign <= "\x9f" or sign in "\u2028\u2029\ufffe\uffff" for sign in given
    )
