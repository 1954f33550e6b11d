"""Annotation files -> bytes, and what may stand in a message about them."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import Any

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import read_bytes

MOST_BYTES = 2**29
"""Larger than any annotation file that QuPath or ASAP can show; what is larger fills the memory and gives nothing."""

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring = 2, 3, 2, 40


def read_content(path: Path) -> bytes:
    """The bytes of an annotation file.

    Raises:
        InputError: it cannot be read, is no regular file, is empty, or has more than `MOST_BYTES`; names it.
    """
    content = read_bytes(path, MOST_BYTES)
    check_size(path, len(content))
    return content


def check_size(path: Path, num_bytes: int) -> None:
    """Refuse what is empty, or has more than `MOST_BYTES`.

    Raises:
        InputError: see above; names the file.
    """
    if not num_bytes:
        raise InputError(f"{path}: is empty; export or download it again")
    if num_bytes > MOST_BYTES:
        raise InputError(
            f"{path}: has {num_bytes >> 20} MiB; an annotation file has at most {MOST_BYTES >> 20}"
        )


def short(given: Any) -> str:
    """Content of a file, as it may stand in a message of one line: escaped, and never long."""
    text = _SHORT.repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_text(given: str) -> bool:
    """Whether it can be written as UTF-8: it holds no half of a surrogate pair."""
    return not any("\ud800" <= sign <= "\udfff" for sign in given)


def is_plain(given: str) -> bool:
    """Whether it can stand in a table, in a message and in any format: one line of text, no control characters."""
    return is_text(given) and not any(
        sign < " " or "\x7f" <= sign <= "\x9f" or sign in "\u2028\u2029\ufffe\uffff" for sign in given
    )
