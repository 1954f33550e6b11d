"""slides.csv, and ids that become names of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.project import OWN, replaced, with_cell, with_line, write_text
from tests.hostile.victim import Victim

KIND, IDS = "slides.csv", "ids"
INDEX = ("index",)
FILE = OWN / "slides.csv"
NAME = "slides.csv"
ROW = 3  # s1: P1, normal, train

_VICTIM = Victim(FILE, ROW)
_cell, _text, _instead = _VICTIM.cell, _VICTIM.text, _VICTIM.instead

REFUSALS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "no file": (FILE.unlink, (NAME,)),
    "an empty file": (_text(lambda text: ""), (NAME,)),
    "a header alone": (_text(lambda text: text.splitlines()[0] + "\n"), (NAME,)),
    "blank lines alone": (_text(lambda text: "\n\n\n"), (NAME,)),
    "no header": (_text(lambda text: text.split("\n", 1)[1]), (NAME,)),
    "an unknown column": (_text(lambda text: text.replace("label", "lable", 1)), (NAME, "lable")),
    "a column twice": (_text(lambda text: text.replace("label", "path", 1)), (NAME, "path")),
    "no column path": (_text(lambda text: text.replace("path", "file", 1)), (NAME, "path")),
    "a column without a name": (_text(lambda text: text.replace("label", "", 1)), (NAME,)),
    "semicolons": (_text(lambda text: text.replace(",", ";")), (NAME,)),
    "tabs": (_text(lambda text: text.replace(",", "\t")), (NAME,)),
    "a comma at the end of each row": (_text(lambda text: _in_rows(text, lambda line: line + ",")), (NAME, "row 2")),
    "a comma at the end of one row": (with_line(FILE, ROW, "s1,s1.tif,P1,normal,train,"), (NAME, "row 3")),
    "a cell too many": (with_line(FILE, ROW, "s1,s1.tif,P1,normal,train,why"), (NAME, "row 3")),
    "a cell too few": (with_line(FILE, ROW, "s1,s1.tif,P1,normal"), (NAME, "row 3")),
    "a comma in a name": (with_line(FILE, ROW, "s1,s1.tif,Doe, John,normal,train"), (NAME, "row 3")),
    "a quote that is not closed": (with_line(FILE, ROW, 's1,"s1.tif,P1,normal,train'), (NAME,)),
    "a bad row after a blank line": (
        _text(lambda text: text.replace("\ns1,", "\n\ns1,").replace("P3,normal,train", "P3,normal,Train")),
        (NAME, "row 6"),
    ),
    "a bad row after a cell of two lines": (
        _text(lambda text: text.replace("P0", '"P\n0"').replace("P3,normal,train", "P3,normal,Train")), (NAME,),
    ),
    "an id twice": (_cell("slide_id", "s0"), (NAME, "row 3", "s0")),
    "an id twice but for blanks": (_cell("slide_id", " s0 "), (NAME, "row 3", "s0")),
    "an empty path": (_cell("path", ""), (NAME, "row 3", "path")),
    "a path with a null character": (_cell("path", "s1\0.tif"), (NAME,)),
    "a path of 5,000 characters": (_cell("path", "x" * 5000 + ".tif"), ()),
    "a path on the web": (_cell("path", "https://example.org/s1.tif"), ("s1.tif",)),
    "a path in a home folder": (_cell("path", "~/s1.tif"), ("s1.tif",)),
    "a path with an escape sequence": (_cell("path", "\x1b]0;owned\x07s1.tif"), ("s1.tif",)),
    "no µm/px": (_cell("mpp", "0"), (NAME, "row 3", "mpp")),
    "negative µm/px": (_cell("mpp", "-1"), (NAME, "row 3", "mpp")),
    "infinite µm/px": (_cell("mpp", "inf"), (NAME, "row 3", "mpp")),
    "µm/px of nan": (_cell("mpp", "nan"), (NAME, "row 3", "mpp")),
    "µm/px in words": (_cell("mpp", "1 µm"), (NAME, "row 3", "mpp")),
    "µm/px with a decimal comma": (_cell("mpp", "0,25"), (NAME, "row 3", "mpp")),
    "µm/px that were meant as m/px": (_cell("mpp", "1e-6"), (NAME, "row 3", "mpp")),
    "a hundred µm/px": (_cell("mpp", "100"), (NAME, "row 3", "mpp")),
    "an unknown split": (_cell("split", "tuning"), (NAME, "row 3", "split", "tuning")),
    "a split in capitals": (_cell("split", "Train"), (NAME, "row 3", "split", "Train")),
    "one row without a split": (_cell("split", ""), (NAME, "row 3", "split")),
    "test slides alone": (_text(lambda text: text.replace("train", "test").replace("validation", "test")), ()),
    "no validation slide": (_text(lambda text: text.replace("validation", "train")), ()),
    "one slide": (_text(lambda text: "\n".join(text.splitlines()[:2]).replace(",train", ",") + "\n"), ()),
    "slides of one patient": (
        _text(lambda text: "slide_id,path,patient_id\n" + "".join(f"s{i},s{i}.tif,P\n" for i in range(7))), (),
    ),
    "UTF-16": (_text(lambda text: text.encode("utf-16")), (NAME,)),
    "Latin-1 with an umlaut": (_text(lambda text: text.replace("P1", "Müller").encode("latin-1")), (NAME,)),
    "noise": (_text(lambda text: bytes(range(256)) * 64), (NAME,)),
    "an Excel file": (_text(lambda text: b"PK\x03\x04" + bytes(2000)), (NAME,)),
    "a patient of a null character": (_cell("patient_id", "P\0"), (NAME, "row 3")),
    "a FIFO": (_instead(lambda: os.mkfifo(FILE)), (NAME,)),
    "a folder": (_instead(FILE.mkdir), (NAME,)),
    "an empty device": (_instead(lambda: FILE.symlink_to("/dev/null")), (NAME,)),
    "a device without end": (_instead(lambda: FILE.symlink_to("/dev/zero")), (NAME,)),
    "a link to itself": (_instead(lambda: FILE.symlink_to(NAME)), (NAME,)),
    "a file nobody may read": (lambda: FILE.chmod(0), (NAME,)),
    "a digest that differs": (_cell("sha256", "0" * 64), (NAME, "row 3", "s1")),
    "a digest that is none": (_cell("sha256", "md5:abc"), (NAME, "row 3", "sha256")),
}  # fmt: skip

RIGHT: dict[str, Callable[[], object]] = {
    "a byte order mark": _text(lambda text: b"\xef\xbb\xbf" + text.encode()),
    "line ends of Windows": _text(lambda text: text.replace("\n", "\r\n")),
    "blank lines at the end": _text(lambda text: text + "\n\n\n"),
    "no line end at the end": _text(lambda text: text.rstrip("\n")),
    "blanks around cells": _text(lambda text: text.replace(",", " , ")),
    "cells in quotes": _text(lambda text: _in_rows(text, lambda line: '"' + line.replace(",", '","') + '"')),
    "absolute paths": lambda: replaced(FILE, "s1.tif", str(Path.cwd() / OWN / "s1.tif"))(),
    "a path through ..": _cell("path", "../own/s1.tif"),
    "columns in another order": _text(
        lambda text: _in_rows(text, lambda line: ",".join(line.split(",")[::-1]), header=True)
    ),
    "patients with umlauts": _cell("patient_id", "Müller, Jörg"),
    "a digest that holds": lambda: _cell("sha256", _digest())(),
}

BAD_IDS = {
    "a path upwards": "../../escaped",
    "an absolute path": "/tmp/escaped",
    "a folder and a name": "batch1/skin",
    "two dots": "..",
    "one dot": ".",
    "nothing": "",
    "blanks": "   ",
    "a null character": "s\0x",
    "300 characters": "s" * 300,
    "256 bytes in umlauts": "ä" * 128,
    "two lines": "s\nx",
    "a bell": "s\ax",
    "an escape sequence": "\x1b[2Jx",
    "a right-to-left override": "\u202egpj.x",
    "a line separator": "s\u2028x",
    "a hidden name": ".x",
}
GOOD_IDS = {
    "umlauts": "Präparat-1",
    "a blank": "slide 1",
    "dots": "TCGA-AA.01.svs",
    "Chinese": "切片一",
    "a number": "007",
}


def _in_rows(text: str, change: Callable[[str], str], header: bool = True) -> str:
    lines = text.splitlines()
    return "\n".join(line if i == 0 and not header else change(line) for i, line in enumerate(lines)) + "\n"


def _digest() -> str:
    import hashlib

    return hashlib.sha256((OWN / "s1.tif").read_bytes()).hexdigest()


def _id(value: str) -> Callable[[], None]:
    def change() -> None:
        with_cell(FILE, ROW, "slide_id", value)()
        path = OWN / "patches.csv"
        lines = path.read_text().splitlines()
        write_text(path, "\n".join(line for line in lines if not line.startswith("s1,")) + "\n")

    return change


def _image_below(name: str) -> Callable[[], None]:
    """Slides found by their names: BreastPathQ's."""
    slide = Path("data/raw/breastpathq/slides/1_1.svs")
    return lambda: os.rename(slide, slide.with_name(name))


def cases() -> Iterator[Case]:
    """Both kinds."""
    for name, (prepare, mentions) in REFUSALS.items():
        if name == "a comma at the end of each row":  # In the header too: a column without name and cells.
            prepare = _text(lambda text: _in_rows(text, lambda line: line + ",", header=False))
        yield Case(KIND, name, INDEX, prepare, mentions)
    for name, prepare in RIGHT.items():
        yield Case(KIND, name, INDEX, prepare, code=ACCEPTED)
    for name, value in BAD_IDS.items():
        mentions = (NAME, "row 3") if "\n" not in value else (NAME,)
        yield Case(IDS, f"a slide of {name}", INDEX, _id(value), mentions, code=REFUSED)
    for name, value in GOOD_IDS.items():
        yield Case(IDS, f"a good slide of {name}", INDEX, _id(value), code=ACCEPTED)
    yield Case(IDS, "slides that differ in capitals", INDEX, _id("S0"), ("S0",), code=ACCEPTED)
    yield Case(IDS, "a slide of a backslash and dots", INDEX, _id("..\\..\\x"), code=EITHER)
    yield Case(IDS, "slides that look alike", INDEX, _id("s\u0030\u0301"), code=EITHER)
    for name, patient in (("capitals", "p0"), ("a blank inside", "P 0"), ("a zero in front", "P00")):
        warned = ("P0",) if name != "a zero in front" else ()
        yield Case(
            IDS, f"patients that differ in {name}", INDEX, _cell("patient_id", patient), warned, code=ACCEPTED
        )
    for name, file in (
        ("two lines", "1\n1.svs"),
        ("an escape sequence", "\x1b[2J1.svs"),
        ("300 bytes", "ä" * 125 + ".svs"),
    ):
        code = EITHER if name == "300 bytes" else REFUSED
        yield Case(
            IDS,
            f"a file's name of {name}",
            INDEX,
            _image_below(file),
            ("svs",),
            code=code,
            state="breastpathq",
        )
