"""Rules for names that become file names."""

from __future__ import annotations

import re

from histo_monai.utils.errors import InputError

MAX_NAME_BYTES = 200
"""Most disks allow 255 bytes in a file name; drafts and suffixes need the rest."""

_FORBIDDEN = '/\\:*?"<>|'
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_OF_MAPS = ".map"
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible letters, marks and symbols of Unicode that Python calls printable."""


def is_invisible(letter: str) -> bool:
    """Whether a character is invisible or a line break; an ordinary blank is not."""
    return not letter.isprintable() or _BLANK.match(letter) is not None


def check_visible(text: str, where: str) -> None:
    """Refuse a text with invisible characters: two such texts may look equal to a reader and differ to a program.

    Args:
        text: An id, or the name of a class.
        where: Place for the message: "slides.csv, row 3: patient_id".

    Raises:
        InputError: The text holds an invisible character; names it and the right spelling.
    """
    hidden = next((letter for letter in text if is_invisible(letter)), None)
    if hidden is None:
        return
    plain = "".join(
        " " if letter.isspace() else letter for letter in text if letter.isspace() or not is_invisible(letter)
    )
    plain = " ".join(plain.split())
    advice = f"write {plain!r}" if plain else "leave it empty"
    raise InputError(f"{where} {text[:60]!a} holds {hidden!a}, which is invisible. Fix: {advice}.")


def check_name(name: str, where: str) -> None:
    """Refuse a name that some disks do not allow for a file, or that leads out of its folder.

    Args:
        name: Name of later files, such as a slide_id.
        where: Place for the message: "slides.csv, row 3: slide_id".

    Raises:
        InputError: The name is not allowed; states the reason and a valid spelling.
    """
    why = _fault(name)
    if why:
        shown = repr(name if len(name) <= 60 else f"{name[:50]}...")
        raise InputError(f"{where} {shown} cannot name a file: it {why}. Fix: {_advice(name)}.")


def _fault(name: str) -> str:
    """The problem of a name; empty for a valid name."""
    bad = next((c for c in name if c in _FORBIDDEN or is_invisible(c)), None)
    num_bytes = len(name.encode("utf-8", "replace"))
    for is_wrong, why in (
        (not name.strip(" ."), "has only dots and blanks"),
        (bad is not None, f"holds {bad!a}"),
        (name.startswith("."), "begins with a dot"),
        (name != name.strip(" ") or name.endswith("."), "begins or ends with a blank or ends with a dot"),
        (_DEVICES.fullmatch(name) is not None, "is the name of a device on Windows"),
        (name.lower().endswith(_OF_MAPS), f"ends in {_OF_MAPS}, as maps of slides do"),
        (num_bytes > MAX_NAME_BYTES, f"has {num_bytes} bytes, more than {MAX_NAME_BYTES}"),
    ):
        if is_wrong:
            return why
    return ""


def _advice(name: str) -> str:
    plain = "".join("_" if c in _FORBIDDEN or is_invisible(c) else c for c in name)
    plain = plain.strip(" .") or "slide"
    if _DEVICES.fullmatch(plain) or plain.lower().endswith(_OF_MAPS):
        plain = f"{plain.replace('.', '_')}_1"
    return f"write {plain!r}" if not _fault(plain) else "shorten it"
