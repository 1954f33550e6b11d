"""Coordinates of patches of own slides: HDF5 that is none, that lies, or that other tools call otherwise."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.hostile.case import ACCEPTED, REFUSED, Case
from tests.hostile.project import OWN, all_of, replaced, write_text

KIND, INDEX, PLACES = "coordinates of patches", ("index",), OWN / "coordinates"


def corners(
    values: Any = None, about: dict[str, Any] | None = None, **settings: Any
) -> Callable[[Path], None]:
    """Writes corners of places on the tissue, or others."""

    def write(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        places = [(x, y) for x in range(96, 352, 32) for y in range(96, 352, 32)]
        with h5py.File(path, "w") as file:
            data = np.array(places) if values is None and "shape" not in settings else values
            dataset = file.create_dataset("coords", data=data, **settings)
            dataset.attrs.update({"patch_size": 64} if about is None else about)

    return write


def _linked(link: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        with h5py.File(path, "w") as file:
            file["coords"] = link

    return write


def _low_level(kind: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        with h5py.File(path, "w") as file:
            h5py.h5d.create(file.id, b"coords", kind, h5py.h5s.create_simple((3, 2)))
            file["coords"].attrs["patch_size"] = 64

    return write


def _opaque() -> Any:
    kind = h5py.h5t.create(h5py.h5t.OPAQUE, 4)
    kind.set_tag(b"\x1b[2J")
    return kind


def _named(name: str) -> Callable[[], object]:
    return lambda: corners()(PLACES / name)


def _damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        corners()(path)
        write_text(path, change(path.read_bytes()))

    return write


NUMBERS = np.array([(100, 100), (200, 200)])
LEVEL = {"patch_size": 16, "patch_level": 1, "downsample": [4.0, 4.0]}
NO_CORNERS: dict[str, Callable[[Path], object]] = {
    "an empty file": lambda path: write_text(path, b""),
    "text": lambda path: write_text(path, "x,y\n1,2\n"),
    "half a file": _damaged(lambda data: data[: len(data) // 2]),
    "the header alone": _damaged(lambda data: data[:96]),
    "zeros after the header": _damaged(lambda data: data[:96] + bytes(len(data) - 96)),
    "complex numbers": corners(NUMBERS.astype(complex)),
    "truth": corners(NUMBERS > 100),
    "text for numbers": corners(NUMBERS.astype("S8")),
    "opaque bytes": _low_level(_opaque()),
    "times": _low_level(h5py.h5t.UNIX_D32LE),
    "bits": _low_level(h5py.h5t.STD_B8LE),
    "references": _low_level(h5py.h5t.STD_REF_OBJ),
    "nan": corners(NUMBERS * np.nan),
    "infinity": corners(NUMBERS * np.inf),
    "one column": corners(NUMBERS[:, :1]),
    "three columns": corners(np.zeros((4, 3))),
    "one number": corners(7),
    "no row": corners(NUMBERS[:0]),
    "nothing at all": corners(h5py.Empty("f8")),
    "2^29 rows that are not there": corners(shape=(2**29, 2), dtype="i8"),
    "2^40 rows in chunks that are not there": corners(shape=(2**40, 2), dtype="i8", chunks=(1024, 2)),
    "ten rows that were never written": corners(shape=(10, 2), dtype="i8"),
    "rows in a device": corners(shape=(10, 2), dtype="i8", external=[("/dev/zero", 0, 160)]),
    "a link to itself": _linked(h5py.SoftLink("/coords")),
    "a link to another file": _linked(h5py.ExternalLink("other.h5", "coords")),
    "a link to a device": _linked(h5py.ExternalLink("/dev/zero", "coords")),
    "a type for rows": _linked(np.dtype("f8")),
    "no side": corners(NUMBERS, {}),
    "an empty side": corners(NUMBERS, {"patch_size": h5py.Empty("f4")}),
    "a side of no number": corners(NUMBERS, {"patch_size": np.zeros(0)}),
    "a side of text": corners(NUMBERS, {"patch_size": "64"}),
    "a side of 0": corners(NUMBERS, {"patch_size_level0": 0}),
    "a complex side": corners(NUMBERS, {"patch_size": 3 + 1j}),
    "an infinite side": corners(NUMBERS, {"patch_size_level0": np.inf}),
    "an infinite level": corners(NUMBERS, LEVEL | {"patch_level": np.inf}),
    "level nan": corners(NUMBERS, LEVEL | {"patch_level": np.nan}),
    "level 0.5": corners(NUMBERS, LEVEL | {"patch_level": 0.5}),
    "an empty level": corners(NUMBERS, LEVEL | {"patch_level": h5py.Empty("i8")}),
    "an empty downsample": corners(NUMBERS, LEVEL | {"downsample": np.zeros(0)}),
    "a downsample of 8,000 numbers": corners(NUMBERS, LEVEL | {"downsample": np.ones(8000)}),
    "an infinite downsample": corners(NUMBERS, LEVEL | {"downsample": np.inf}),
    "a thousand other attributes": corners(NUMBERS, {f"a{i}\n": i for i in range(1000)}),
    "places of another slide": corners(NUMBERS + 10**6),
    "places of 1e300": corners(NUMBERS * 1e300),
}

PLACED: dict[str, tuple[Callable[[], object], int | None, tuple[str, ...]]] = {
    "as TRIDENT names it": (_named("s1_patches.h5"), ACCEPTED, ()),
    "as CLAM names it": (_named("s1.h5"), ACCEPTED, ()),
    "both names of one slide": (all_of(_named("s1.h5"), _named("s1_patches.h5")), REFUSED, ("s1_patches.h5", "s1.h5")),
    "patches of no slide": (_named("s9_patches.h5"), REFUSED, ("s9_patches.h5", "slides.csv")),
    "patches twice": (_named("s1_patches_patches.h5"), REFUSED, ("s1_patches_patches.h5",)),
    "a slide that is called as patches": (
        all_of(
            replaced(OWN / "slides.csv", "s1,s1.tif", "s1_patches,s1.tif"),
            replaced(OWN / "patches.csv", "\ns1,", "\ns1_patches,", 4), _named("s1_patches.h5"),
        ), ACCEPTED, (),
    ),
    "a suffix in capitals": (_named("s1.H5"), ACCEPTED, ()),
    "other files beside it": (
        all_of(_named("s1.h5"), lambda: write_text(PLACES / "Thumbs.db", "x"),
               lambda: shutil.copy(PLACES / "s1.h5", PLACES / "s2.h5~")),
        ACCEPTED, ("2 files without the ending .h5", "Thumbs.db"),
    ),
    "what a Mac leaves": (
        all_of(_named("s1.h5"), lambda: write_text(PLACES / "._s1.h5", "x")), ACCEPTED, (),
    ),
    "a folder that is called as a file": (lambda: (PLACES / "s1.h5").mkdir(parents=True), REFUSED, ("s1.h5",)),
    "TRIDENT's other attributes": (
        lambda: corners(None, {"patch_size_level0": 64, "overlap": 0, "name": h5py.Empty("f4"), "savetodir": "x"})(
            PLACES / "s1_patches.h5"), ACCEPTED, (),
    ),
    "compressed, a row a chunk": (
        lambda: corners(None, compression="gzip", chunks=(1, 2))(PLACES / "s1.h5"), ACCEPTED, (),
    ),
    "half floats": (lambda: corners(NUMBERS.astype("f2"))(PLACES / "s1.h5"), ACCEPTED, ()),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the kind."""
    for name, write in NO_CORNERS.items():
        yield Case(KIND, name, INDEX, lambda write=write: write(PLACES / "s1.h5"), ("s1.h5",))
    for name, (prepare, code, mentions) in PLACED.items():
        yield Case(KIND, name, INDEX, prepare, mentions, code=code)
