"""Order of texts, and rows that come twice, against what Python says of each pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from histo_monai.data.tables.texts import SharedTexts, come_again, order_of

TEXTS = st.lists(st.text(st.characters(exclude_characters="\0"), max_size=5), max_size=30)
"""Any code points, lone surrogates too: names of files have them."""


@given(TEXTS)
def test_texts_stand_as_python_sorts_them(texts: list[str]) -> None:
    expected = sorted(range(len(texts)), key=texts.__getitem__)
    assert order_of(pd.Series(texts, dtype=object)).tolist() == expected


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "é", ""]), st.integers(0, 3)), max_size=30))
def test_rows_come_again_where_an_earlier_one_is_the_same(rows: list[tuple[str, int]]) -> None:
    table = pd.DataFrame(rows, columns=["name", "number"]).astype({"name": "str", "number": "int64"})
    for columns in (["name"], ["number"], ["name", "number"]):
        wanted = np.zeros(len(rows), bool)
        for (_, one), (place, other) in combinations(enumerate(table[columns].values.tolist()), 2):
            wanted[place] |= one == other
        assert come_again(table, columns).tolist() == wanted.tolist()


def test_many_different_rows() -> None:
    """More than there are texts of one hash bucket, none of them twice; then the last is the first."""
    table = pd.DataFrame({"name": [f"slide_{number % 97:03d}-{number}" for number in range(20_000)]})
    assert not come_again(table, ["name"]).any()
    table.loc[19_999, "name"] = "slide_000-0"
    assert np.flatnonzero(come_again(table, ["name"])).tolist() == [19_999]


@pytest.mark.parametrize("dtype", ["str", object])
def test_texts_that_are_the_same_become_one_object(dtype: type) -> None:
    """Over pieces and columns; texts that are nearly all different stay what they are."""
    few = [f"slide {number % 7}{'é' * (number % 2)}" for number in range(150_000)]
    many = [f"patch {number}" for number in range(150_000)]
    shared = SharedTexts()
    for texts, wanted in ((few, 14), (list(map(str.lower, few)), 14), (many, 150_000)):
        given = pd.Series(texts, dtype=dtype, name="texts", index=range(5, 150_005))
        found = shared.of(given)
        pd.testing.assert_series_equal(found, given.astype("str"))
        assert len({id(text) for text in found.to_numpy(dtype=object)}) == wanted
    again = shared.of(pd.Series(few[:14])).to_numpy(dtype=object)
    assert {id(text) for text in again} == {
        id(text) for text in shared.of(pd.Series(few)).to_numpy(dtype=object)
    }
    columns = [shared.of(pd.Series(list(map(str.upper, few)))).to_numpy(dtype=object) for _ in range(2)]
    assert len({id(text) for text in np.concatenate(columns)}) == 14
