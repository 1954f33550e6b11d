"""Oddities of the public trees: what is missing, twice, misnamed, or left there by a Mac."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.project import replaced, write_image, write_slide, write_text
from tests.hostile.trees import LESION, asap

INDEX = ("index",)
RAW = Path("data/raw")
C16, KATHER, BPQ = RAW / "camelyon16", RAW / "kather", RAW / "breastpathq"
OUTLINES, REFERENCE = C16 / "training/lesion_annotations", C16 / "testing/reference.csv"
TRAIN_CSV, TEST_CSV = BPQ / "breastpathq/datasets/train_labels.csv", BPQ / "breastpathq-test/test_labels.csv"
ADI = KATHER / "NCT-CRC-HE-100K/ADI"
LINE = '<Annotation Name="_8" Type="Polygon" PartOfGroup="_2"><Coordinates>' \
    '<Coordinate Order="0" X="1" Y="1" /><Coordinate Order="1" X="2" Y="2" /></Coordinates></Annotation>'  # fmt: skip

Odd = dict[str, tuple[Callable[[], object], int | None, tuple[str, ...]]]


def _removed(path: Path) -> Callable[[], None]:
    return lambda: shutil.rmtree(path) if path.is_dir() else path.unlink()


def _copied(source: Path, target: Path) -> Callable[[], object]:
    return lambda: shutil.copy(source, target)


def _renamed(source: Path, name: str) -> Callable[[], None]:
    return lambda: os.rename(source, source.with_name(name))


def _text(path: Path, text: str | bytes) -> Callable[[], None]:
    return lambda: write_text(path, text)


def _mac(folder: Path, name: str) -> Callable[[], None]:
    """What a Mac leaves beside each file that it copies."""
    return lambda: (
        write_text(folder / f"._{name}", b"\0\x05\x16\x07" + bytes(90)),
        write_text(folder / ".DS_Store", b"x"),
    )[0]


def _zipped_outlines() -> None:
    with zipfile.ZipFile(OUTLINES.with_suffix(".zip"), "w") as file:
        for path in sorted(OUTLINES.iterdir()):
            file.write(path, path.relative_to(OUTLINES.parent))
    shutil.rmtree(OUTLINES)


CAMELYON16: Odd = {
    "no normal slides": (_removed(C16 / "training/normal"), REFUSED, ("normal",)),
    "no training": (_removed(C16 / "training"), REFUSED, ("training",)),
    "no outlines": (_removed(OUTLINES), REFUSED, ("tumor",)),
    "a tumor slide without outlines": (_removed(OUTLINES / "tumor_002.xml"), REFUSED, ("tumor_002",)),
    "outlines of a normal slide": (
        _copied(OUTLINES / "tumor_001.xml", OUTLINES / "normal_002.xml"), REFUSED, ("normal_002",),
    ),
    "outlines of no slide": (_copied(OUTLINES / "tumor_001.xml", OUTLINES / "tumor_099.xml"), REFUSED, ("tumor_099",)),
    "a group nobody knows": (
        _text(OUTLINES / "tumor_002.xml", asap(("a", "Necrosis", LESION))), REFUSED, ("tumor_002.xml", "Necrosis"),
    ),
    "outlines of holes alone": (
        _text(OUTLINES / "tumor_002.xml", asap(("a", "_2", LESION))), REFUSED, ("tumor_002.xml",),
    ),
    "an outline of two points": (
        replaced(OUTLINES / "tumor_002.xml", "</Annotations>", f"{LINE}</Annotations>"), ACCEPTED, ("tumor_002",),
    ),
    "empty outlines": (_text(OUTLINES / "tumor_002.xml", ""), REFUSED, ("tumor_002.xml",)),
    "outlines in a zip": (_zipped_outlines, ACCEPTED, ()),
    "no reference": (_removed(REFERENCE), REFUSED, ("reference.csv",)),
    "an empty reference": (_text(REFERENCE, ""), REFUSED, ("reference.csv",)),
    "a reference of three columns": (_text(REFERENCE, "test_001,Tumor,x\n"), REFUSED, ("reference.csv", "row 1")),
    "a reference of another label": (
        replaced(REFERENCE, "Normal", "Benign"), REFUSED, ("reference.csv", "row 2"),
    ),
    "a reference with a slide twice": (
        _text(REFERENCE, "test_001,Tumor,IDC,Macro\ntest_1,Normal,None,None\n"), REFUSED, ("reference.csv", "row 2"),
    ),
    "a reference of a slide that is not there": (
        _text(REFERENCE, "test_001,Tumor\ntest_002,Normal\ntest_003,Normal\n"), REFUSED, ("test_003",),
    ),
    "a test slide without a reference": (_text(REFERENCE, "test_001,Tumor\n"), REFUSED, ("test_002",)),
    "a reference with a header, of Windows": (
        _text(REFERENCE, "image,type\r\nTest_001.tif,TUMOR\r\nTest_002.tif,normal\r\n"), ACCEPTED, (),
    ),
    "a reference with a byte order mark": (
        _text(REFERENCE, b"\xef\xbb\xbftest_001,Tumor\ntest_002,Normal\n"), ACCEPTED, (),
    ),
    "names in capitals": (_renamed(C16 / "training/normal/normal_002.tif", "Normal_002.TIF"), ACCEPTED, ()),
    "a slide twice": (
        _copied(C16 / "training/tumor/tumor_002.tif", C16 / "training/tumor/Tumor_2.tif"), REFUSED, ("umor_",),
    ),
    "too few slides": (
        lambda: [path.unlink() for path in (C16 / "training/normal").glob("*_00[234].tif")], REFUSED, ("normal",),
    ),
    "a training slide among the test slides": (
        _copied(C16 / "training/normal/normal_002.tif", C16 / "testing/images/test_002.tif"), REFUSED, ("normal_002",),
    ),
    "the release's duplicate": (
        lambda: (write_slide(C16 / "testing/images/test_049.tif", seed=32), write_text(
            REFERENCE, REFERENCE.read_text() + "test_049,Normal,None,None\n")), ACCEPTED, ("test_049",),
    ),
    "what a Mac leaves": (_mac(C16 / "training/tumor", "tumor_001.tif"), ACCEPTED, ()),
    "what a Mac leaves beside outlines": (_mac(OUTLINES, "tumor_001.xml"), ACCEPTED, ()),
    "files of others": (_text(C16 / "training/normal/Thumbs.db", b"x"), ACCEPTED, ()),
    "the header of a slide alone": (
        lambda: _text(C16 / "training/tumor/tumor_002.tif", b"II*\0\x08\0\0\0")(),
        REFUSED, ("tumor_002.tif",),
    ),
}  # fmt: skip

KATHERS: Odd = {
    "a class that is missing": (_removed(ADI), REFUSED, ("ADI",)),
    "a class without images": (lambda: [path.unlink() for path in ADI.iterdir()], REFUSED, ("ADI",)),
    "a class nobody knows": (lambda: shutil.copytree(ADI, ADI.with_name("FAT")), REFUSED, ("FAT",)),
    "an image beside the classes": (_copied(ADI / "ADI-A0.tif", ADI.with_name("stray.tif")), REFUSED, ("stray.tif",)),
    "a folder in a class": (
        lambda: ((ADI / "deep").mkdir(), write_image(ADI / "deep/x.tif", side_px=224)), REFUSED, ("deep",),
    ),
    "no test folder": (_removed(KATHER / "CRC-VAL-HE-7K"), REFUSED, ("CRC-VAL-HE-7K",)),
    "an image of 223 pixels": (
        lambda: write_image(ADI / "ADI-A0.tif", side_px=223), REFUSED, ("ADI-A0.tif", "224"),
    ),
    "half an image": (
        lambda: write_text(ADI / "ADI-A0.tif", (ADI / "ADI-A0.tif").read_bytes()[:9000]), REFUSED, ("ADI-A0.tif",),
    ),
    "an empty image": (_text(ADI / "ADI-A0.tif", b""), REFUSED, ("ADI-A0.tif",)),
    "a training image among the test images": (
        _copied(ADI / "ADI-A0.tif", KATHER / "CRC-VAL-HE-7K/ADI/ADI-copy.tif"), REFUSED, ("ADI-A0.tif",),
    ),
    "a training image in two classes": (
        _copied(ADI / "ADI-A0.tif", ADI.with_name("MUS") / "MUS-copy.tif"), EITHER, ("ADI-A0.tif",),
    ),
    "names in capitals": (_renamed(ADI / "ADI-A0.tif", "ADI-A0.TIF"), ACCEPTED, ()),
    "what a Mac leaves": (_mac(ADI, "ADI-A0.tif"), ACCEPTED, ()),
    "files of others": (_text(ADI / "Thumbs.db", b"x"), ACCEPTED, ()),
    "a link that leads back": (lambda: (ADI / "loop").symlink_to("../.."), REFUSED, ("loop",)),
}  # fmt: skip

BREASTPATHQ: Odd = {
    "no slides": (_removed(BPQ / "slides"), REFUSED, (".svs",)),
    "no test": (_removed(BPQ / "breastpathq-test"), REFUSED, ("breastpathq-test",)),
    "no scores": (_removed(TRAIN_CSV), REFUSED, ("train_labels.csv",)),
    "scores without their column": (replaced(TRAIN_CSV, ",y", ",score"), REFUSED, ("train_labels.csv", "'y'")),
    "a score above 1": (replaced(TRAIN_CSV, "0.1", "1.1"), REFUSED, ("train_labels.csv", "row 2")),
    "a score of nan": (replaced(TRAIN_CSV, "0.1", "nan"), REFUSED, ("train_labels.csv", "row 2")),
    "a score that is missing": (replaced(TRAIN_CSV, "0.1", ""), REFUSED, ("train_labels.csv", "row 2")),
    "a score twice": (replaced(TRAIN_CSV, "90001,2", "90001,1"), REFUSED, ("train_labels.csv", "row 3")),
    "a comma at the end of each row": (
        lambda: write_text(TRAIN_CSV, TRAIN_CSV.read_text().replace("\n", ",\n").replace("y,\n", "y\n")), REFUSED,
        ("train_labels.csv", "row 2"),
    ),
    "a score without image": (
        _removed(BPQ / "breastpathq/datasets/train/90001_1.tif"), REFUSED, ("train_labels.csv", "row 2"),
    ),
    "an image without score": (replaced(TRAIN_CSV, "90001,1,0.1\n", ""), REFUSED, ("90001_1",)),
    "an image twice": (
        lambda: write_image(BPQ / "breastpathq/datasets/train/90001_1.png", side_px=512), REFUSED, ("90001_1",),
    ),
    "an image of 511 pixels": (
        lambda: write_image(BPQ / "breastpathq/datasets/train/90001_1.tif", side_px=511), REFUSED,
        ("90001_1.tif", "512"),
    ),
    "one rater": (replaced(TEST_CSV, ",p2", ",p3"), REFUSED, ("test_labels.csv", "p2")),
    "a rater's score that is missing": (replaced(TEST_CSV, "0.4,0.5", "0.4,"), REFUSED, ("test_labels.csv", "row 2")),
    "two tables of validation that differ": (
        _text(BPQ / "breastpathq-test/val_labels.csv", "slide,rid,y\n90003,1,0.4\n"), REFUSED, ("val_labels.csv",),
    ),
    "patients without the column": (
        _text(BPQ / "breastpathq-test/test_patient_ids.csv", "a,b\n1,2\n"), REFUSED, ("test_patient_ids.csv",),
    ),
    "a test slide without patient": (
        _text(BPQ / "breastpathq-test/test_patient_ids.csv", "slide,patient\n90005,7\n"), REFUSED, ("90006",),
    ),
    "two slides of one name": (
        lambda: ((BPQ / "slides/more").mkdir(), shutil.copy(BPQ / "slides/1_1.svs", BPQ / "slides/more/1_1.svs")),
        REFUSED, ("1_1",),
    ),
    "a slide of the test": (_renamed(BPQ / "slides/3_1.svs", "90005.svs"), EITHER, ()),
    "what a Mac leaves": (_mac(BPQ / "slides", "1_1.svs"), EITHER, ("._1_1.svs",)),
    "scores of Windows": (
        lambda: write_text(TRAIN_CSV, TRAIN_CSV.read_text().replace("\n", "\r\n")), ACCEPTED, (),
    ),
    "names in capitals": (_renamed(BPQ / "breastpathq/datasets/train/90001_1.tif", "90001_1.TIF"), ACCEPTED, ()),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the three kinds."""
    for state, kind, odd in (
        ("camelyon16", "Camelyon16's tree", CAMELYON16),
        ("kather", "Kather's tree", KATHERS),
        ("breastpathq", "BreastPathQ's tree", BREASTPATHQ),
    ):
        for name, (prepare, code, mentions) in odd.items():
            yield Case(kind, name, INDEX, prepare, mentions, code=code, state=state)
