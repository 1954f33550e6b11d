"""Rules for names that become file names."""

from __future__ import annotations

import re

from histo_monai.utils.errors import InputError

MAX_NAME_BYTES = 200
"""A file name has 255 bytes at most on every usual disk; drafts and suffixes need the rest."""

_FORBIDDEN = '/\\:*?"<>|'
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_OF_MAPS = ".map"
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols of Unicode that show nothing; all else that shows nothing Python calls not printable."""


def is_invisible(letter: str) -> bool:
    """Whether a character shows nothing, or not on its line; an ordinary blank does not count."""
    return not letter.isprintable() or _BLANK.match(letter) is not None


def check_visible(text: str, where: str) -> None:
    """Refuse a text that does not look like what it is: two such texts are one to a reader, and two to a program.

    Args:
        text: An id, or the name of a class.
        where: Where it stands, for the message: "slides.csv, row 3: patient_id".

    Raises:
        InputError: It holds a character that shows nothing; says which, and how to write it.
    """
    hidden = next((letter for letter in text if is_invisible(letter)), None)
    if hidden is None:
        return
    plain = "".join(
        " " if letter.isspace() else letter for letter in text if letter.isspace() or not is_invisible(letter)
    )
    plain = " ".join(plain.split())
    advice = f"write {plain!r}" if plain else "leave it empty"
    raise InputError(f"{where} {text[:60]!a} holds {hidden!a}, which nobody can see; {advice}")


def check_name(name: str, where: str) -> None:
    """Refuse a name that cannot be that of a file on every usual disk, or that would lead out of its folder.

    Args:
        name: What files are going to be named by, such as a slide_id.
        where: Where it stands, for the message: "slides.csv, row 3: slide_id".

    Raises:
        InputError: It cannot be; says why, and how to write it.
    """
    why = _fault(name)
    if why:
        shown = repr(name if len(name) <= 60 else f"{name[:50]}...")
        raise InputError(f"{where} {shown} {why}{_advice(name)}; files are named by it")


def _fault(name: str) -> str:
    """What is wrong with a name; empty where nothing is."""
    bad = next((c for c in name if c in _FORBIDDEN or is_invisible(c)), None)
    num_bytes = len(name.encode("utf-8", "replace"))
    for is_wrong, why in (
        (not name.strip(" ."), "is no name"),
        (bad is not None, f"holds {bad!a}"),
        (name.startswith("."), "begins with a dot"),
        (name != name.strip(" ") or name.endswith("."), "begins or ends with a blank or ends with a dot"),
        (_DEVICES.fullmatch(name) is not None, "is the name of a device on Windows"),
        (name.lower().endswith(_OF_MAPS), f"ends in {_OF_MAPS}, as maps of slides do"),
        (num_bytes > MAX_NAME_BYTES, f"is {num_bytes} bytes long, {MAX_NAME_BYTES} at most"),
    ):
        if is_wrong:
            return why
    return ""


def _advice(name: str) -> str:
    plain = "".join("_" if c in _FORBIDDEN or is_invisible(c) else c for c in name)
    plain = plain.strip(" .") or "slide"
    if _DEVICES.fullmatch(plain) or plain.lower().endswith(_OF_MAPS):
        plain = f"{plain.replace('.', '_')}_1"
    return f"; write {plain!r}" if not _fault(plain) else "; shorten it"
