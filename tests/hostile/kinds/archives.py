"""Zips: damaged, encrypted, with two members of one name, and bombs."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2

from tests.hostile.case import ACCEPTED, EITHER, Case
from tests.hostile.project import OWN, tissue, write_image, write_text

KIND = "zips"
INDEX = ("index",)
ZIP = OWN / "p.zip"
MEMBER = "p/a.png"


def png(seed: int = 77) -> bytes:
    """An image of 32 px."""
    return cv2.imencode(".png", tissue(seed, 32))[1].tobytes()


def packed(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return buffer.getvalue()


def _lying(stream: bytes, size: int, method: int = 8, flags: int = 0, crc: int = 0) -> bytes:
    """A zip of one member, made by hand: `stream` is what is stored, and `size` what it says to hold."""
    name = MEMBER.encode()
    common = struct.pack("<HHHHHIIIHH", 20, flags, method, 0, 33, crc, len(stream), size, len(name), 0)
    local = b"PK\x03\x04" + common + name + stream
    central = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def _bomb(num_bytes: int) -> bytes:
    """Zeros: 4 GB in 4 MB."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = squeeze.compress(bytes(2**20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    stream = block * (num_bytes // 2**20) + squeeze.flush()
    return _lying(stream, num_bytes)


def _damaged(data: bytes) -> bytes:
    at = data.index(b"IDAT") + 8
    return data[:at] + b"\xff\xff\xff\xff" + data[at + 4 :]


def _encrypted() -> bytes:
    return _lying(os.urandom(12) + png(), len(png()), method=0, flags=1)


GOOD = packed((MEMBER, png()))
REFUSALS: dict[str, bytes] = {
    "an empty file": b"",
    "text": b"no zip" * 99,
    "half a zip": GOOD[: len(GOOD) // 2],
    "a zip without its end": GOOD[:-30],
    "an empty zip": packed(),
    "another member": packed(("p/b.png", png())),
    "a member in another folder": packed(("q/a.png", png())),
    "a damaged member": _damaged(GOOD),
    "an encrypted member": _encrypted(),
    "a method nobody knows": _lying(png(), len(png()), method=99),
    "a member whose stated size is too large": _lying(zlib.compress(png(), 9)[2:-4], 2**31),
    "a member whose stated size is too small": _lying(zlib.compress(png(), 9)[2:-4], 10),
    "a bomb of 4 GB": _bomb(4 * 2**30 - 2**20),
    "a zip in a zip": packed((MEMBER, GOOD)),
    "a member that is a folder": packed((MEMBER + "/", b"")),
    "a member that is text": packed((MEMBER, b"no picture")),
    "an empty member": packed((MEMBER, b"")),
    "another kind of archive": b"7z\xbc\xaf\x27\x1c" + bytes(500),
}
ODD: dict[str, tuple[bytes, int | None]] = {
    "deflated": (packed((MEMBER, png()), method=zipfile.ZIP_DEFLATED), ACCEPTED),
    "LZMA": (packed((MEMBER, png()), method=zipfile.ZIP_LZMA), ACCEPTED),
    "something before it": (b"#!/bin/sh\n" + GOOD, ACCEPTED),
    "members that would lie elsewhere": (
        packed((MEMBER, png()), ("../../evil", b"x"), ("/tmp/evil", b"x")),
        ACCEPTED,
    ),
    "a name of an escape sequence beside it": (packed((MEMBER, png()), ("\x1b[2J.png", png())), ACCEPTED),
    "a thousand other members": (packed((MEMBER, png()), *((f"q/{i}", b"") for i in range(1000))), ACCEPTED),
}


def _twice() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(MEMBER, png())
        file.writestr("p/b.png", png(78))
    return buffer.getvalue().replace(b"p/b.png", b"p/a.png")


def _images(row: str = "p.zip/p/a.png,a,more,train") -> None:
    rows = ["path,label,patient_id,split"]
    for number, split in enumerate(("train", "validation", "test")):
        for i in range(4):
            write_image(OWN / f"images/{split}{i}.png", seed=10 * number + i)
            rows.append(f"images/{split}{i}.png,{'ab'[i % 2]},{split},{split}")
    write_text(OWN / "patches.csv", "\n".join([*rows, row]) + "\n")


def _zip(content: bytes) -> Callable[[], None]:
    return lambda: (_images(), write_text(ZIP, content))[0]


def _special(make: Callable[[], object]) -> Callable[[], None]:
    def change() -> None:
        _images()
        make()

    return change


def _folder() -> None:
    write_text(ZIP / MEMBER, png())


KATHER = Path("data/raw/kather")


def _zip_tree(name: str, leading: bool, keep: bool = False, cut: bool = False) -> Callable[[], None]:
    def change() -> None:
        folder = KATHER / name
        with zipfile.ZipFile(KATHER / f"{name}.zip", "w") as file:
            for path in sorted(folder.rglob("*.tif")):
                file.write(path, path.relative_to(folder.parent if leading else folder))
        if not keep:
            os.rename(folder, Path("data/raw") / name)
        if cut:
            data = (KATHER / f"{name}.zip").read_bytes()
            write_text(KATHER / f"{name}.zip", data[: len(data) // 2])

    return change


def cases() -> Iterator[Case]:
    """All of the kind."""
    for name, content in REFUSALS.items():
        yield Case(KIND, name, INDEX, _zip(content), ("p.zip",))
    for name, (content, code) in ODD.items():
        yield Case(KIND, name, INDEX, _zip(content), code=code)
    yield Case(KIND, "a member twice", INDEX, _zip(_twice()), code=EITHER, mentions=("p.zip",))
    yield Case(KIND, "no zip", INDEX, _images, ("p.zip",))
    yield Case(KIND, "a folder named like a zip", INDEX, _special(_folder), code=ACCEPTED)
    yield Case(KIND, "a FIFO", INDEX, _special(lambda: os.mkfifo(ZIP)), ("p.zip",))
    yield Case(KIND, "a device without end", INDEX, _special(lambda: ZIP.symlink_to("/dev/zero")), ("p.zip",))
    yield Case(KIND, "a link to itself", INDEX, _special(lambda: ZIP.symlink_to("p.zip")), ("p.zip",))
    train, test = "NCT-CRC-HE-100K", "CRC-VAL-HE-7K"
    for name, change in (("with", _zip_tree(train, True)), ("without", _zip_tree(train, False))):
        yield Case(
            KIND, f"Kather's folder {name} its name in the zip", INDEX, change, code=ACCEPTED, state="kather"
        )
    yield Case(
        KIND,
        "Kather's folder and its zip",
        INDEX,
        _zip_tree(train, True, keep=True),
        (train,),
        state="kather",
    )
    yield Case(
        KIND, "half of Kather's test zip", INDEX, _zip_tree(test, True, cut=True), (test,), state="kather"
    )
