"""patches.csv, and images as patches."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator

import cv2
import numpy as np
from PIL import Image

from tests.hostile.case import ACCEPTED, EITHER, Case
from tests.hostile.project import OWN, tissue, with_line, write_image, write_text
from tests.hostile.victim import Victim

KIND, IMAGES = "patches.csv", "images as patches"
INDEX = ("index",)
FILE = OWN / "patches.csv"
NAME = "patches.csv"
SQUARE = "s0,{y},{x},{mpp},tumor,train"

_VICTIM = Victim(FILE, 3)
_cell, _text, _instead = _VICTIM.cell, _VICTIM.text, _VICTIM.instead


def _square(y: object = 150, x: object = 150, mpp: object = 1) -> Callable[[], None]:
    return with_line(FILE, 3, SQUARE.format(y=y, x=x, mpp=mpp))


REFUSALS: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "an empty file": (_text(lambda text: ""), (NAME,)),
    "a header alone": (_text(lambda text: text.splitlines()[0] + "\n"), (NAME,)),
    "an unknown column": (_text(lambda text: text.replace("label", "tissue", 1)), (NAME, "tissue")),
    "a column twice": (_text(lambda text: text.replace("mpp", "x", 1)), (NAME, "x")),
    "a comma at the end of one row": (with_line(FILE, 3, "s0,150,250,1,normal,train,"), (NAME, "row 3")),
    "a comma at the end of all rows but the header": (
        _text(lambda text: "\n".join(line + "," * (i > 0) for i, line in enumerate(text.splitlines()))),
        (NAME, "row 2"),
    ),
    "a cell too few": (with_line(FILE, 3, "s0,150,250,1,normal"), (NAME, "row 3")),
    "a slide nobody knows": (_cell("slide_id", "s9"), (NAME, "row 3", "s9")),
    "a slide and a path": (_cell("path", "s0.tif"), (NAME, "row 3")),
    "neither slide nor path": (_cell("slide_id", ""), (NAME, "row 3")),
    "a place in words": (_square(y="top"), (NAME, "row 3", "y")),
    "an infinite place": (_square(y="inf"), (NAME, "row 3", "y")),
    "a place of nan": (_square(x="nan"), (NAME, "row 3", "x")),
    "a negative place": (_square(y=-150), (NAME, "row 3", "y")),
    "a place beyond the slide": (_square(y=5000), (NAME, "row 3")),
    "a place of 10^300": (_square(y="1e300"), (NAME, "row 3")),
    "a place at the edge": (_square(y=5), (NAME, "row 3")),
    "an empty place": (_square(y=""), (NAME, "row 3", "y")),
    "no µm/px": (_square(mpp=0), (NAME, "row 3", "mpp")),
    "empty µm/px": (_square(mpp=""), (NAME, "row 3", "mpp")),
    "µm/px finer than the slide": (_square(mpp="0.1"), (NAME, "s0")),
    "an empty label": (_cell("label", ""), (NAME, "row 3", "label")),
    "a label of an escape sequence": (_cell("label", "\x1b[31mtumor"), ()),
    "a label of two lines": (_cell("label", "tu\nmor"), ()),
    "labels and scores": (_cell("score", "0.5"), (NAME, "row")),
    "a score above 1": (
        _text(lambda text: text.replace("label", "score").replace("tumor", "1.1").replace("normal", "0.9")),
        (NAME, "row 3"),
    ),
    "a score in percent": (
        _text(lambda text: text.replace("label", "score").replace("tumor", "90%").replace("normal", "0.1")),
        (NAME, "row 3"),
    ),
    "an unknown split": (_cell("split", "dev"), (NAME, "row 3", "dev")),
    "another patient than the slide's": (_cell("patient_id", "P9"), (NAME, "row 3", "P9", "P0")),
    "another split than the slide's": (_cell("split", "test"), ("s0",)),
    "one class": (_text(lambda text: text.replace("normal", "tumor")), ("tumor",)),
    "a class in the test alone": (_cell("label", "cyst", row=22), ("cyst",)),
    "a class that differs in capitals": (_cell("label", "Tumor"), ("Tumor",)),
    "a side of 64.7 pixels": (_cell("side_px", "64.7"), (NAME, "row 3", "side_px", "64.7")),
    "a side of 0": (_cell("side_px", "0"), (NAME, "row 3", "side_px")),
    "a side of 10^9": (_cell("side_px", "1e9"), (NAME, "row 3", "side_px")),
    "a patch_id twice": (
        _text(lambda text: _with_ids(text, ["a", "a"])), ("a",),
    ),
    "the same square with two labels": (with_line(FILE, 3, "s0,150,150,1,tumor,train"), ("s0",)),
    "the same square in train and validation": (with_line(FILE, 19, "s0,150,150,1,normal,validation"), ()),
    "UTF-16": (_text(lambda text: text.encode("utf-16")), (NAME,)),
    "a null character": (_text(lambda text: text.replace("tumor", "tu\0mor", 1)), ()),
    "noise": (_text(lambda text: bytes(range(256)) * 64), (NAME,)),
    "a FIFO": (_instead(lambda: os.mkfifo(FILE)), (NAME,)),
    "a folder": (_instead(FILE.mkdir), (NAME,)),
    "a link to nowhere": (_instead(lambda: FILE.symlink_to("elsewhere.csv")), (NAME,)),
    "a file nobody may read": (lambda: FILE.chmod(0), (NAME,)),
}  # fmt: skip


def _with_ids(text: str, ids: list[str]) -> str:
    lines = text.splitlines()
    lines[0] += ",patch_id"
    lines[1:] = [f"{line},{ids[i] if i < len(ids) else ''}" for i, line in enumerate(lines[1:])]
    return "\n".join(lines) + "\n"


def _encoded(mode: str, format_: str, side: int = 32, **settings: object) -> bytes:
    picture = Image.fromarray(tissue(1, side))
    buffer = io.BytesIO()
    picture.convert(mode).save(buffer, format_, **settings)
    return buffer.getvalue()


def _png_bomb() -> bytes:
    """A PNG that says 50,000 x 50,000 and holds a few bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


def _large(side_px: int) -> bytes:
    return cv2.imencode(".png", np.zeros((side_px, side_px), np.uint8), [cv2.IMWRITE_PNG_COMPRESSION, 1])[
        1
    ].tobytes()


def _turned() -> bytes:
    """A JPEG of two halves whose EXIF says that it lies on its side."""
    exif = Image.Exif()
    exif[274] = 6
    return _encoded("RGB", "JPEG", exif=exif)


def _moving() -> bytes:
    frames = [Image.fromarray(tissue(seed, 32)) for seed in (1, 2)]
    buffer = io.BytesIO()
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:])
    return buffer.getvalue()


PICTURES: dict[str, tuple[str, Callable[[], bytes], int | None]] = {
    "no byte": ("p.png", lambda: b"", 1),
    "one pixel": ("p.png", lambda: _encoded("RGB", "PNG", side=1), 1),
    "two pixels a side": ("p.png", lambda: _encoded("RGB", "PNG", side=2), EITHER),
    "20,000 pixels a side": ("p.png", lambda: _large(20_000), 1),
    "50,000 pixels a side that are not there": ("p.png", _png_bomb, 1),
    "half a PNG": ("p.png", lambda: _half(_encoded("RGB", "PNG")), 1),
    "half a JPEG": ("p.jpg", lambda: _half(_encoded("RGB", "JPEG", side=64)), 1),
    "half a TIFF": ("p.tif", lambda: _half(_encoded("RGB", "TIFF")), 1),
    "a PNG with a flipped byte": ("p.png", lambda: _flipped(_encoded("RGB", "PNG")), 1),
    "text": ("p.png", lambda: b"not a picture" * 99, 1),
    "an SVG": ("p.png", lambda: b'<svg xmlns="http://www.w3.org/2000/svg" width="32" height="32"/>', 1),
    "a GIF": ("p.gif", lambda: _encoded("P", "GIF"), EITHER),
    "a WebP": ("p.webp", lambda: _encoded("RGB", "WEBP"), EITHER),
    "a JPEG named PNG": ("p.png", lambda: _encoded("RGB", "JPEG"), EITHER),
    "twice as long as wide": ("p.png", lambda: cv2.imencode(".png", tissue(1, 64)[:32])[1].tobytes(), 1),
    "16 bits": ("p.png", lambda: cv2.imencode(".png", tissue(1, 32).astype(np.uint16) * 257)[1].tobytes(), 1),
    "32-bit floats": ("p.tif", lambda: cv2.imencode(".tif", tissue(1, 32).astype(np.float32))[1].tobytes(), 1),
    "gray": ("p.png", lambda: _encoded("L", "PNG"), ACCEPTED),
    "gray with alpha": ("p.png", lambda: _encoded("LA", "PNG"), EITHER),
    "black and white": ("p.png", lambda: _encoded("1", "PNG"), EITHER),
    "a palette": ("p.png", lambda: _encoded("P", "PNG"), ACCEPTED),
    "alpha": ("p.png", lambda: _encoded("RGBA", "PNG"), ACCEPTED),
    "CMYK": ("p.jpg", lambda: _encoded("CMYK", "JPEG"), EITHER),
    "a turned JPEG": ("p.jpg", _turned, ACCEPTED),
    "a moving picture": ("p.png", _moving, EITHER),
    "a name of two lines": ("p\nq.png", lambda: b"", 1),
    "a name with an escape sequence": ("p\x1b[2J.png", lambda: b"", 1),
}  # fmt: skip


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :]


def _with_picture(name: str, make: Callable[[], bytes]) -> Callable[[], None]:
    """Images with labels, one of them odd."""

    def change() -> None:
        rows = ["path,label,patient_id,split"]
        for number, split in enumerate(("train", "validation", "test")):
            for i in range(4):
                write_image(OWN / f"images/{split}{i}.png", seed=10 * number + i, side_px=32)
                rows.append(f"images/{split}{i}.png,{'ab'[i % 2]},{split},{split}")
        write_text(OWN / "images" / name, make())
        rows.append(f'"images/{name}",a,train,train')
        write_text(FILE, "\n".join(rows) + "\n")

    return change


def _special(make: Callable[[], object]) -> Callable[[], None]:
    def change() -> None:
        _with_picture("p.png", lambda: b"")()
        (OWN / "images/p.png").unlink()
        make()

    return change


SPECIAL: dict[str, Callable[[], object]] = {
    "no file": lambda: None,
    "a FIFO": lambda: os.mkfifo(OWN / "images/p.png"),
    "a folder": lambda: (OWN / "images/p.png").mkdir(),
    "a device without end": lambda: (OWN / "images/p.png").symlink_to("/dev/zero"),
    "an empty device": lambda: (OWN / "images/p.png").symlink_to("/dev/null"),
    "a link to itself": lambda: (OWN / "images/p.png").symlink_to("p.png"),
}


def cases() -> Iterator[Case]:
    """Both kinds."""
    for name, (prepare, mentions) in REFUSALS.items():
        yield Case(KIND, name, INDEX, prepare, mentions)
    yield Case(KIND, "a row that leaves the split to its slide", INDEX, _cell("split", ""), code=ACCEPTED)
    yield Case(KIND, "no file", INDEX, FILE.unlink, ("patches.csv: not found",), code=ACCEPTED)
    for name, (file, make, code) in PICTURES.items():
        yield Case(
            IMAGES, name, INDEX, _with_picture(file, make), ("images/p",) if code == 1 else (), code=code
        )
    for name, make_special in SPECIAL.items():
        yield Case(IMAGES, name, INDEX, _special(make_special), ("images/p.png",))
