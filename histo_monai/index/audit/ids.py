"""Ids that are perhaps meant to be one, and ids that are missing."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import pandas as pd

from histo_monai.tables.manifests import first_five


def similar_ids(ids: Iterable[str], what: str, why: str) -> list[str]:
    """A warning, if ids differ only by upper and lower case, blanks, or the way Unicode writes a letter.

    Args:
        ids: with or without repetition; empty ones are none.
        what: they are ids of.
        why: it matters, the end of the sentence.
    """
    known = pd.Series(sorted({one for one in ids if one}), dtype=str)
    plain = known.map(lambda one: "".join(unicodedata.normalize("NFKC", one).casefold().split()))
    alike = [group.tolist() for _, group in known.groupby(plain) if len(group) > 1]
    if not alike:
        return []
    named = [" and ".join(map(repr, group)) for group in alike]
    return [f"{what} that differ only by case or blanks: {first_five(named)}; {why}"]


def no_patients(table: pd.DataFrame) -> list[str]:
    """A warning, if no labeled patch has a patient_id.

    Args:
        table: `tables.columns.PATCH_COLUMNS`.
    """
    if table.empty or (table["patient_id"] != "").any():
        return []
    counted = (
        "each slide counts as a patient of its own"
        if (table["slide_id"] != "").all()
        else "none can be told apart"
    )
    return [
        f"no patient ids: {counted}, so one patient may be in two splits without being noticed, and figures too good"
    ]
