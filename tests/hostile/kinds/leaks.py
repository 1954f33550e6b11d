"""What is tested on and was trained on: patients, files, copies, and copies that somebody saved anew."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from tests.hostile.case import ACCEPTED, REFUSED, Case
from tests.hostile.kinds import tiff
from tests.hostile.project import (
    OWN,
    all_of,
    slide_pixels,
    tissue,
    with_cell,
    write_image,
    write_slide,
    write_text,
)

SLIDES, PATCHES = "leaks of whole slides", "leaks of patches"
INDEX = ("index",)
MANIFEST, LABELS = OWN / "slides.csv", OWN / "patches.csv"
TRAIN, VALIDATION, TEST = OWN / "s0.tif", OWN / "s4.tif", OWN / "s6.tif"
TEST_ROW, VALIDATION_ROW = 8, 6


def _unlabeled(*slides: str) -> Callable[[], None]:
    """Slides without patches: they are mapped and diagnosed, or pretrained on, and that is all."""

    def change() -> None:
        lines = LABELS.read_text().splitlines()
        write_text(LABELS, "\n".join(line for line in lines if line.split(",")[0] not in slides) + "\n")

    return change


def _file(target: Path, make: Callable[[], object]) -> Callable[[], None]:
    def change() -> None:
        target.unlink()
        make()

    return change


def _all_test_are_train() -> None:
    for number in (5, 6):
        shutil.copy(OWN / f"s{number - 5}.tif", OWN / f"s{number}.tif")


def _without_patients() -> None:
    lines = [line.split(",") for line in MANIFEST.read_text().splitlines()]
    write_text(MANIFEST, "\n".join(",".join((*cells[:2], *cells[3:])) for cells in lines) + "\n")


def _jpeg_copy() -> None:
    tiff.write_jpeg_slide(TEST, slide_pixels(0))


def _copy(change: Callable[[np.ndarray], np.ndarray], mpp: float = 1.0) -> Callable[[], None]:
    return lambda: write_slide(TEST, mpp=mpp, pixels=np.ascontiguousarray(change(slide_pixels(0))))


def _halved(pixels: np.ndarray) -> np.ndarray:
    return cv2.resize(pixels, None, fx=0.8, fy=0.8, interpolation=cv2.INTER_AREA)


EXACT: dict[str, Callable[[], object]] = {
    "a patient": with_cell(MANIFEST, TEST_ROW, "patient_id", "P0"),
    "a file": with_cell(MANIFEST, TEST_ROW, "path", "s0.tif"),
    "a file, once by its whole path": lambda: with_cell(
        MANIFEST, TEST_ROW, "path", str(Path.cwd() / TRAIN)
    )(),
    "a link": _file(TEST, lambda: TEST.symlink_to("s0.tif")),
    "a hard link": _file(TEST, lambda: os.link(TRAIN, TEST)),
    "a copy": partial(shutil.copy, TRAIN, TEST),
    "the same pixels in another file": lambda: write_slide(TEST, seed=0, description="copied"),
}
ALIKE: dict[str, Callable[[], object]] = {
    "saved anew as JPEG": _jpeg_copy,
    "mirrored": _copy(lambda pixels: pixels[:, ::-1]),
    "turned by 90 degrees": _copy(np.rot90),
    "turned upside down": _copy(lambda pixels: pixels[::-1]),
    "brighter by a little": _copy(lambda pixels: np.clip(pixels.astype(int) + 4, 0, 255).astype(np.uint8)),
}
UNLIKE: dict[str, Callable[[], object]] = {  # noticed as often as docs/audit.md says, these not
    "scanned at another resolution": _copy(_halved, mpp=1.25),
    "shifted by a little": _copy(lambda pixels: np.roll(pixels, (3, 5), (0, 1))),
}


def _images(*odd: tuple[str, Callable[[Path], object], str]) -> Callable[[], None]:
    """Labeled images; odd ones are (name, how to write it, its cells label, patient and split)."""

    def change() -> None:
        rows = ["path,label,patient_id,split"]
        for number, split in enumerate(("train", "validation", "test")):
            for i in range(4):
                write_image(OWN / f"images/{split}{i}.png", seed=10 * number + i, side_px=64)
                rows.append(f"images/{split}{i}.png,{'ab'[i % 2]},{split}{i},{split}")
        for name, write, cells in odd:
            write(OWN / "images" / name)
            rows.append(f"images/{name},{cells}")
        write_text(LABELS, "\n".join(rows) + "\n")

    return change


def _train_image(path: Path, change: Callable[[np.ndarray], np.ndarray] = np.asarray) -> None:
    write_image(path, pixels=np.ascontiguousarray(change(tissue(0, 64))))


def _zipped() -> None:
    _images()()
    with zipfile.ZipFile(OWN / "more.zip", "w") as file:
        file.write(OWN / "images/train0.png", "again.png")
    write_text(LABELS, LABELS.read_text() + "more.zip/again.png,a,other,test\n")


IMAGES: dict[str, tuple[Callable[[], object], int, tuple[str, ...]]] = {
    "a patient in train and test": (
        _images(("x.png", lambda path: write_image(path, seed=99), "a,train0,test")), REFUSED, ("train0",),
    ),
    "a patient in train and validation": (
        _images(("x.png", lambda path: write_image(path, seed=99), "a,train0,validation")), REFUSED, ("train0",),
    ),
    "a patient that differs in capitals": (
        _images(("x.png", lambda path: write_image(path, seed=99), "a,Train0,test")), ACCEPTED, ("Train0",),
    ),
    "the same pixels in train and test": (
        _images(("x.png", _train_image, "a,other,test")), REFUSED, ("train0.png",),
    ),
    "the same pixels as TIFF": (_images(("x.tif", _train_image, "a,other,test")), REFUSED, ("train0.png",)),
    "the same pixels in train and validation": (
        _images(("x.png", _train_image, "a,other,validation")), REFUSED, ("train0.png",),
    ),
    "the same pixels in a zip": (_zipped, REFUSED, ("train0.png",)),
    "the same pixels with two labels": (
        _images(("x.png", _train_image, "b,train0,train")), ACCEPTED, ("train0.png", "x.png"),
    ),
    "a JPEG of the same picture": (
        _images(("x.jpg", _train_image, "a,other,test")), ACCEPTED, ("x.jpg", "train0.png"),
    ),
    "a mirrored picture": (
        _images(("x.png", lambda path: _train_image(path, lambda pixels: pixels[:, ::-1]), "a,other,test")),
        ACCEPTED, ("x.png", "train0.png"),
    ),
    "a turned picture": (
        _images(("x.png", lambda path: _train_image(path, np.rot90), "a,other,test")), ACCEPTED,
        ("x.png", "train0.png"),
    ),
    "a smaller picture": (
        _images(("x.png", lambda path: _train_image(path, lambda one: cv2.resize(one, (56, 56))), "a,other,test")),
        ACCEPTED, ("x.png", "train0.png"),
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Both kinds."""
    yield Case(SLIDES, "nothing at all", INDEX, _unlabeled("s6"), code=ACCEPTED)
    for name, leak in EXACT.items():
        mentions = ("P0",) if name == "a patient" else ("s6",)
        yield Case(SLIDES, f"{name} in train and test", INDEX, all_of(_unlabeled("s6"), leak), mentions)
    yield Case(
        SLIDES, "all test slides are training slides", INDEX,
        all_of(_unlabeled("s5", "s6"), _all_test_are_train), ("s5",)
    )  # fmt: skip
    yield Case(
        SLIDES, "a patient in train and validation", INDEX,
        all_of(_unlabeled("s4"), with_cell(MANIFEST, VALIDATION_ROW, "patient_id", "P0")), ("P0",),
    )  # fmt: skip
    copied = partial(shutil.copy, TRAIN, VALIDATION)
    yield Case(SLIDES, "a copy in train and validation, labeled", INDEX, copied, ("s4",))
    unlabeled = all_of(LABELS.unlink, copied)
    yield Case(
        SLIDES, "a copy in the pretraining's validation", INDEX, unlabeled, ("s0", "s4"), code=ACCEPTED
    )
    yield Case(SLIDES, "no patient is known", INDEX, _without_patients, ("patient",), code=ACCEPTED)
    for name, leak in (ALIKE | UNLIKE).items():
        change = all_of(_unlabeled("s6"), leak)
        mentions = ("s0", "s6") if name in ALIKE else ()
        yield Case(SLIDES, f"a copy {name}", INDEX, change, mentions, code=ACCEPTED)
    yield Case(PATCHES, "nothing at all", INDEX, _images(), code=ACCEPTED)
    for name, (change, code, mentions) in IMAGES.items():
        yield Case(PATCHES, name, INDEX, change, mentions, code=code)
