"""Ids that look alike or read as missing, tables of other encodings and separators, consoles that show few letters."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator

from tests.hostile.case import ACCEPTED, Case
from tests.hostile.project import INDEX as TABLES
from tests.hostile.project import OWN, all_of, edit, with_cell, write_text

ALIKE, HIDDEN, MISSING = "ids that look alike", "ids with what nobody sees", "ids that read as missing"
ENCODINGS, CONSOLES = "encodings and separators", "consoles"
INDEX = ("index",)
SLIDES, PATCHES = OWN / "slides.csv", OWN / "patches.csv"
ROW, OTHER_ROW = 3, 7  # s1 of P1, train; s5 of P5, test

PATIENTS: dict[str, tuple[str, str]] = {
    "17 and 17.0": ("17", "17.0"),
    "17 and 017": ("17", "017"),
    "17 and +17": ("17", "+17"),
    "17 and 1.7E+01": ("17", "1.7E+01"),
    "1000 and 1e3": ("1000", "1e3"),
    "1000 and 1,000": ("1000", "1,000"),
    "1000 and 1,000.0": ("1000", "1,000.0"),
    "digits of double width": ("17", "\uff11\uff17"),
    "Arabic digits": ("17", "\u0661\u0667"),
    "a zero within": ("P7", "P07"),
    "a dot at the end": ("P7", "P7."),
    "case": ("P7", "p7"),
    "a blank": ("P7", "P 7"),
    "a Cyrillic letter": ("P7", "\u04207"),
    "a Greek letter": ("P7", "\u03a17"),
    "a letter of double width": ("P7", "\uff307"),
    "an en dash": ("P-7", "P\u20137"),
    "a hyphen of Unicode": ("P-7", "P\u20107"),
    "a hyphen that does not break": ("P-7", "P\u20117"),
    "a minus": ("P-7", "P\u22127"),
    "a dash of double width": ("P-7", "P\uff0d7"),
    "a letter in two parts": ("M\u00fcller", "Mu\u0308ller"),
    "a sharp s": ("Stra\u00dfe", "Strasse"),
    "a ligature": ("\ufb01g", "fig"),
}
SLIDES_ALIKE: dict[str, str] = {
    "case": "S0",
    "a zero within": "s00",
    "a Cyrillic letter": "\u04550",
    "a letter of double width": "\uff530",
    "a digit of double width": "s\uff10",
    "a blank": "s 0",
}
HIDDEN_SIGNS: dict[str, str] = {
    "a space of no width": "\u200b",
    "a byte order mark": "\ufeff",
    "a left-to-right mark": "\u200e",
    "a word joiner": "\u2060",
    "a soft hyphen": "\u00ad",
    "a joiner of no width": "\u200d",
    "a joiner of graphemes": "\u034f",
    "a Hangul filler": "\u3164",
    "a Hangul filler of half width": "\uffa0",
    "an empty Braille cell": "\u2800",
    "a variation selector": "\ufe0f",
    "a space that does not break": "\u00a0",
    "an override of direction": "\u202e",
}
READ_AS_MISSING = (
    *("NA", "nan", "None", "null", "inf", "-inf", "1e5", "TRUE", "false", "007", "01.10", "-1", "0", "N_A"),
)
NO_CLASSES = ("NA", "nan", "NaN", "None", "NULL", "null", "N/A", "<NA>", "#N/A")
OTHER_ENCODINGS: dict[str, str] = {
    "cp1252": "M\u00fcller",
    "latin-1": "J\u00f6rg",
    "cp1250": "Dvo\u0159\u00e1k",
    "mac-roman": "Jos\u00e9",
    "cp437": "Se\u00f1or",
    "gbk": "\u5f20\u4f1f",
    "big5": "\u5f35\u5049",
    "shift-jis": "\u7530\u4e2d",
    "euc-kr": "\uae40\ucca0\uc218",
    "koi8-r": "\u0418\u0432\u0430\u043d",
    "cp1251": "\u0418\u0432\u0430\u043d",
}
FEW_LETTERS = ("ascii", "gbk", "shift_jis", "koi8-r", "cp437", "latin-1")


def _renamed(slide_id: str) -> Callable[[], None]:
    """s1 has another id, in both tables."""

    def change() -> None:
        for path in (SLIDES, PATCHES):
            rows = list(csv.reader(io.StringIO(path.read_text())))
            into = io.StringIO()
            csv.writer(into, lineterminator="\n").writerows(
                [slide_id if cell == "s1" else cell for cell in row] for row in rows
            )
            write_text(path, into.getvalue())

    return change


def _indexed(slide_id: str) -> Callable[[], None]:
    """The tables of the index hold the id as it is."""

    def check() -> None:
        for name in ("slides.csv", "whole_slides.csv", "patches.csv", "centers.csv"):
            with (TABLES / name).open(newline="", encoding="utf-8") as file:
                assert slide_id in {row["slide_id"] for row in csv.DictReader(file)}, name

    return check


def _two_patients(one: str, other: str) -> Callable[[], None]:
    return all_of(
        with_cell(SLIDES, ROW, "patient_id", one), with_cell(SLIDES, OTHER_ROW, "patient_id", other)
    )


def _console(encoding: str) -> Callable[[], None]:
    """Stdout and stderr of this encoding, which refuse what they cannot show."""

    def change() -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding=encoding, errors="strict")  # type: ignore[union-attr]

    return change


def _in(encoding: str, name: str) -> Callable[[], None]:
    def change() -> None:
        text = SLIDES.read_text().replace("P1", name)
        write_text(SLIDES, text.encode(encoding))

    return change


def _patch_ids(first: str, second: str) -> Callable[[], None]:
    return all_of(with_cell(PATCHES, 2, "patch_id", first), with_cell(PATCHES, 4, "patch_id", second))


def _with_columns(num: int) -> None:
    names = "".join(f",c{i}" for i in range(num))
    edit(
        SLIDES,
        lambda text: (
            "\n".join(line + (names if i == 0 else "," * num) for i, line in enumerate(text.splitlines()))
            + "\n"
        ),
    )


def _separated(first: str, separator: str) -> Callable[[], None]:
    return lambda: edit(SLIDES, lambda text: first + text.replace(",", separator))


def _alike() -> Iterator[Case]:
    for name, pair in PATIENTS.items():
        mentions = ("patients that look alike", *map(repr, pair))
        yield Case(ALIKE, f"patients: {name}", INDEX, _two_patients(*pair), mentions, ACCEPTED)
    for name, slide_id in SLIDES_ALIKE.items():
        mentions = ("slides that look alike", "'s0'", repr(slide_id))
        yield Case(
            ALIKE, f"slides: {name}", INDEX, _renamed(slide_id), mentions, ACCEPTED, check=_indexed(slide_id)
        )


def _hidden() -> Iterator[Case]:
    for name, sign in HIDDEN_SIGNS.items():
        for column, value in (
            ("slide_id", f"s{sign}1"),
            ("patient_id", f"P{sign}1"),
            ("label", f"nor{sign}mal"),
        ):
            mentions = ("slides.csv", "row 3", column, ascii(sign)[1:-1])
            yield Case(HIDDEN, f"{column}: {name}", INDEX, with_cell(SLIDES, ROW, column, value), mentions)
    for column in ("label", "patient_id", "patch_id"):
        mentions = ("patches.csv", "row 3", column)
        yield Case(HIDDEN, f"{column} of a patch", INDEX, with_cell(PATCHES, 3, column, "x\u2060y"), mentions)


def _missing() -> Iterator[Case]:
    for name in READ_AS_MISSING:
        yield Case(
            MISSING, f"a slide called {name}", INDEX, _renamed(name), code=ACCEPTED, check=_indexed(name)
        )
    for name in NO_CLASSES:
        mentions = ("slides.csv", "row 3", "label", repr(name))
        yield Case(
            MISSING, f"a slide of class {name}", INDEX, with_cell(SLIDES, ROW, "label", name), mentions
        )
    for name in NO_CLASSES[:4]:
        mentions = ("patches.csv", "row 3", "label", repr(name))
        yield Case(MISSING, f"a patch of class {name}", INDEX, with_cell(PATCHES, 3, "label", name), mentions)
    for name in NO_CLASSES[:4]:
        mentions = ("patients named", repr(name))
        change = with_cell(SLIDES, ROW, "patient_id", name)
        yield Case(MISSING, f"a patient called {name}", INDEX, change, mentions, ACCEPTED)


def _encodings() -> Iterator[Case]:
    for encoding, name in OTHER_ENCODINGS.items():
        yield Case(ENCODINGS, encoding, INDEX, _in(encoding, name), ("slides.csv", "row 3", "UTF-8"))
    yield Case(ENCODINGS, "sep=,", INDEX, _separated("sep=,\n", ","), code=ACCEPTED)
    yield Case(ENCODINGS, "sep=, of Windows", INDEX, _separated("sep=,\r\n", ","), code=ACCEPTED)
    for name, separator in (("semicolons", ";"), ("tabs", "\t"), ("bars", "|")):
        mentions = ("slides.csv", name)
        yield Case(
            ENCODINGS, f"sep= and {name}", INDEX, _separated(f"sep={separator}\n", separator), mentions
        )
    yield Case(ENCODINGS, "bars", INDEX, _separated("", "|"), ("slides.csv", "bars"))
    yield Case(
        ENCODINGS, "sep=, above a bad row", INDEX,
        all_of(with_cell(SLIDES, ROW, "split", "dev"), _separated("sep=,\n", ",")), ("slides.csv", "row 4", "dev"),
    )  # fmt: skip
    yield Case(ENCODINGS, "30,000 columns", INDEX, lambda: _with_columns(30_000), ("slides.csv", "c0"))
    for name, pair in {"a patch twice": ("p", "p"), "a patch twice but for blanks": ("p", " p ")}.items():
        yield Case(ENCODINGS, name, INDEX, _patch_ids(*pair), ("patches.csv", "row 4", "row 2", "'p'"))


def _consoles() -> Iterator[Case]:
    clef = "P\N{MUSICAL SYMBOL G CLEF}"
    for encoding in FEW_LETTERS:
        console = _console(encoding)
        yield Case(
            CONSOLES, f"{encoding}: patients in a warning", INDEX,
            all_of(console, _two_patients(clef, clef.lower())), (r"P\U0001d11e", r"p\U0001d11e"), ACCEPTED,
        )  # fmt: skip
        yield Case(
            CONSOLES, f"{encoding}: a file in an error", INDEX,
            all_of(console, with_cell(SLIDES, ROW, "path", f"{clef}.tif")), (r"P\U0001d11e.tif",),
        )  # fmt: skip
        yield Case(
            CONSOLES, f"{encoding}: a file in a call", ("convert", f"{clef}.xml", "o.geojson"), console,
            (r"P\U0001d11e.xml",),
        )  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the five kinds."""
    for some in (_alike, _hidden, _missing, _encodings, _consoles):
        yield from some()
