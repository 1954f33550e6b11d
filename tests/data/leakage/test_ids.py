"""Ids that may be meant to be one are named; those that are not are left alone."""

from __future__ import annotations

import pytest

from histo_monai.data.leakage.ids import named_missing, similar_ids

ALIKE = {
    "a number with a point": ("17", "17.0"),
    "a number with a zero before it": ("17", "017"),
    "a number with a sign": ("17", "+17"),
    "a number with an exponent": ("17", "1.7E+01"),
    "thousands": ("1000", "1,000"),
    "a thousand with an exponent": ("1000", "1e3"),
    "large numbers": ("1e400", "1E+400"),
    "zero": ("0", "00"),
    "wide digits": ("17", "\uff11\uff17"),
    "Arabic digits": ("17", "\u0661\u0667"),
    "a zero inside": ("P1", "P01"),
    "a dot at the end": ("P1", "P1."),
    "case": ("P1", "p1"),
    "a blank": ("P1", "P 1"),
    "a Cyrillic letter": ("P1", "\u04201"),
    "a Greek letter": ("P1", "\u03a11"),
    "a wide letter": ("P1", "\uff301"),
    "an en dash": ("P-1", "P\u20131"),
    "a hyphen of Unicode": ("P-1", "P\u20101"),
    "a hyphen that does not break": ("P-1", "P\u20111"),
    "a minus sign": ("P-1", "P\u22121"),
    "an em dash": ("P-1", "P\u20141"),
    "a letter in two parts": ("M\u00fcller", "Mu\u0308ller"),
    "a sharp s": ("Stra\u00dfe", "STRASSE"),
    "a ligature": ("o\ufb03ce", "office"),
}


@pytest.mark.parametrize("pair", ALIKE.values(), ids=ALIKE)
def test_ids_that_look_alike_are_one_warning_with_both(pair: tuple[str, str]) -> None:
    (warning,) = similar_ids([*pair, "another"], "patients", "use one spelling")
    assert all(repr(one) in warning for one in pair)
    assert "another" not in warning


@pytest.mark.parametrize(
    "pair",
    [("17", "18"), ("1.1", "1.01"), ("-1", "1"), ("P1", "P11"), ("P-1", "P_1"), ("10", "1"), ("1e3", "1e4")],
)
def test_other_ids_are_not(pair: tuple[str, str]) -> None:
    assert similar_ids(pair, "patients", "x") == []


def test_letters_that_look_alike_are_named() -> None:
    (warning,) = similar_ids(["P1", "\u04201"], "patients", "x")
    assert "CYRILLIC SMALL LETTER ER" in warning


@pytest.mark.parametrize("name", ["NA", "nan", "None", "null", "N/A"])
def test_a_patient_named_as_a_missing_value_is_a_warning(name: str) -> None:
    (warning,) = named_missing(["P1", name, name])
    assert repr(name) in warning
    assert named_missing(["P1", "Nancy", ""]) == []
