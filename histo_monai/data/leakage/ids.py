"""Warnings on similar and missing ids."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from decimal import Decimal

import pandas as pd

from histo_monai.data.tables.manifests import MISSING, first_five

_LATIN = str.maketrans(
    {
        **dict(zip("авекмнорстухѕіјԁһԛԝүⅼ", "abekmhopctyxsijdhqwyl", strict=True)),  # Cyrillic, lower case
        **dict(
            zip("αβεζηικμνορτυχ", "abezhikmnoptyx", strict=True)
        ),  # Greek, as its capitals or small letters look
        **dict.fromkeys("‐‑‒–—―−⁃﹘﹣ー", "-"),
        **dict.fromkeys("’‘ʼ′´`", "'"),
    }
)
"""Letters, dashes and quotes that look like keyboard characters; letters are folded to lower case first."""

_NUMBER = re.compile(r"\+?([0-9]+|[0-9]{1,3}(,[0-9]{3})+)(\.[0-9]*)?(e[+-]?[0-9]{1,3})?")
_ZEROS = re.compile(r"(?<![0-9.])0+(?=[0-9])")


def looks_of(text: str) -> str:
    """The normal form of an id, equal for ids that look alike to a reader or a spreadsheet.

    Folds case, blanks, Unicode variants of letters and digits, look-alike letters and dashes, a final dot, and number
    formats: 17, 017, +17, 17.0, 1.7E+01.
    """
    plain = text
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", text).casefold().translate(_LATIN)
        plain = "".join(str(unicodedata.decimal(sign)) if sign.isdecimal() else sign for sign in plain)
    plain = "".join(plain.casefold().split()).rstrip(".")
    if _NUMBER.fullmatch(plain):
        value = Decimal(plain.replace(",", ""))
        return str(value.normalize()) if value else "0"
    return _ZEROS.sub("", plain)


def similar_ids(ids: Iterable[str], what: str, why: str) -> list[str]:
    """A warning if ids look alike or are one number in different formats (`looks_of`).

    Args:
        ids: With or without repetition; empty ids are ignored.
        what: Noun for the ids, in plural.
        why: Consequence and fix, the end of the sentence.
    """
    known = pd.Series(sorted({one for one in ids if one}), dtype=str)
    alike = [group.tolist() for _, group in known.groupby(known.map(looks_of)) if len(group) > 1]
    if not alike:
        return []
    named = [" and ".join(map(_shown, group)) for group in alike]
    return [f"{what} that look alike: {first_five(named)}; {why}"]


def _shown(text: str) -> str:
    """An id in quotes, with the Unicode names of its look-alike letters."""
    odd = {
        sign
        for sign in text.casefold()
        if ord(sign) in _LATIN or unicodedata.combining(sign) or unicodedata.normalize("NFKC", sign) != sign
    }
    names = [unicodedata.name(sign, f"U+{ord(sign):04X}") for sign in sorted(odd)]
    return f"{text!r} (with {', '.join(names[:2])})" if names else repr(text)


def named_missing(patients: Iterable[str]) -> list[str]:
    """A warning if a patient is named like a missing value of another program."""
    names = sorted(set(patients) & MISSING)
    if not names:
        return []
    return [
        f"patients named {', '.join(map(repr, names))} count as one patient each, with all slides of that name. "
        "Fix: leave patient_id empty where it is unknown"
    ]


def no_patients(table: pd.DataFrame) -> list[str]:
    """A warning if no labeled patch (`data.tables.columns.PATCH_COLUMNS`) has a patient_id."""
    if table.empty or (table["patient_id"] != "").any():
        return []
    counted = (
        "each slide counts as a patient of its own"
        if (table["slide_id"] != "").all()
        else "patients are unknown"
    )
    return [
        f"no patient ids: {counted}, so a patient may be in two splits, and results may be too good. Fix: fill "
        "patient_id if a patient has several slides or images"
    ]
