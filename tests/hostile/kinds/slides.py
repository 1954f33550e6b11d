"""Files of slides: what is no slide, what is half of one, and headers that lie."""

from __future__ import annotations

import os
import socket
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import tifffile

from tests.hostile.case import ACCEPTED, EITHER, REFUSED, Case
from tests.hostile.kinds import tiff
from tests.hostile.project import OWN, replaced, slide_pixels, tissue, write_image, write_slide, write_text

FILES, HEADERS, TILES, ODD = "slide files", "slide headers", "slide tiles", "slides that are odd but right"
INDEX = ("index",)
VICTIM = OWN / "s1.tif"
NAMED = ("s1.tif",)
SPECIAL_NAMES = {
    "a name of two lines": "s1\n.tif",
    "a name with an escape sequence": "s1\x1b[31m.tif",
    "a name that is not UTF-8": "s1\udcff.tif",
}

Bytes = Callable[[bytes], bytes]


def _changed(change: Bytes) -> Callable[[], None]:
    return lambda: write_text(VICTIM, change(VICTIM.read_bytes()))


def _instead(make: Callable[[], object]) -> Callable[[], None]:
    def change() -> None:
        VICTIM.unlink()
        make()

    return change


def _listen() -> None:
    kept = socket.socket(socket.AF_UNIX)
    here = os.open(".", os.O_RDONLY)
    os.chdir(VICTIM.parent)  # The name of a socket must be short.
    kept.bind(VICTIM.name)
    os.fchdir(here)
    os.close(here)


def _zip() -> None:
    with zipfile.ZipFile(VICTIM, "w") as file:
        file.writestr("s1.tif", b"II*\0")


def _named(name: str) -> Callable[[], None]:
    """The slide under a name that no terminal should see as it is, and cut off in the middle."""

    def change() -> None:
        data = VICTIM.read_bytes()
        write_text(OWN / name, data[: len(data) // 2])
        text = (OWN / "slides.csv").read_text().replace("s1.tif", f'"{name}"')
        write_text(OWN / "slides.csv", text.encode("utf-8", "surrogateescape"))

    return change


NO_SLIDES: dict[str, Callable[[], object]] = {
    "no file": VICTIM.unlink,
    "an empty file": _changed(lambda data: b""),
    "one byte": _changed(lambda data: b"I"),
    "the header alone": _changed(lambda data: data[:8]),
    "half of it": _changed(lambda data: data[: len(data) // 2]),
    "all but the last byte": _changed(lambda data: data[:-1]),
    "all but the first 100 bytes": _changed(lambda data: data[100:]),
    "zeros": _changed(lambda data: bytes(len(data))),
    "zeros after the header": _changed(lambda data: data[:8] + bytes(len(data) - 8)),
    "zeros in its second half": _changed(lambda data: data[: len(data) // 2] + bytes(len(data) - len(data) // 2)),
    "noise": _changed(lambda data: np.random.default_rng(0).bytes(len(data))),
    "noise after the header": _changed(lambda data: data[:8] + np.random.default_rng(0).bytes(len(data))),
    "text": _changed(lambda data: b"slide_id,path\n" * 1000),
    "a page with the title 404": _changed(lambda data: b"<!DOCTYPE html><title>404 Not Found</title>" * 50),
    "a PNG": lambda: (write_image(OWN / "x.png", side_px=256), os.replace(OWN / "x.png", VICTIM)),
    "a JPEG": lambda: (write_image(OWN / "x.jpg", side_px=256), os.replace(OWN / "x.jpg", VICTIM)),
    "a zip": _instead(_zip),
    "a folder": _instead(lambda: VICTIM.mkdir()),
    "a FIFO": _instead(lambda: os.mkfifo(VICTIM)),
    "a socket": _instead(_listen),
    "an empty device": _instead(lambda: VICTIM.symlink_to("/dev/null")),
    "a device without end": _instead(lambda: VICTIM.symlink_to("/dev/zero")),
    "a link to nowhere": _instead(lambda: VICTIM.symlink_to("elsewhere.tif")),
    "a link to itself": _instead(lambda: VICTIM.symlink_to("s1.tif")),
    "a file nobody may read": lambda: VICTIM.chmod(0),
    "in a folder nobody may enter": lambda: (
        (OWN / "closed").mkdir(), os.rename(VICTIM, OWN / "closed/s1.tif"),
        replaced(OWN / "slides.csv", "s1.tif", "closed/s1.tif")(), (OWN / "closed").chmod(0),
    ),
    "below a file": replaced(OWN / "slides.csv", "s1.tif", "s0.tif/s1.tif"),
    "white glass alone": lambda: write_slide(VICTIM, pixels=np.full((512, 512, 3), 245, np.uint8)),
    "black alone": lambda: write_slide(VICTIM, pixels=np.zeros((512, 512, 3), np.uint8)),
    "smaller than a patch": lambda: write_slide(VICTIM, pixels=tissue(1, 64)[:48, :48]),
    "one pixel": lambda: write_slide(VICTIM, pixels=tissue(1, 8)[:1, :1]),
    "one pixel high": lambda: write_slide(VICTIM, pixels=tissue(1, 512)[:1]),
    "coarser than the patches": lambda: write_slide(VICTIM, seed=1, mpp=4.0),
}  # fmt: skip

TAGS: dict[str, Bytes] = {
    "a width of 0": lambda data: tiff.with_tag(data, tiff.WIDTH, 0),
    "a height of 0": lambda data: tiff.with_tag(data, tiff.HEIGHT, 0),
    "a width of 4 thousand millions": lambda data: tiff.with_tag(data, tiff.WIDTH, 2**32 - 1),
    "2 million by 2 million pixels": lambda data: tiff.with_tag(
        tiff.with_tag(data, tiff.WIDTH, 2**21), tiff.HEIGHT, 2**21
    ),
    "a tile of no width": lambda data: tiff.with_tag(data, tiff.TILE_WIDTH, 0),
    "a tile of 4 thousand million pixels": lambda data: tiff.with_tag(data, tiff.TILE_WIDTH, 2**32 - 16),
    "a tile of 127 pixels": lambda data: tiff.with_tag(data, tiff.TILE_WIDTH, 127),
    "larger tiles than its tiles": lambda data: tiff.with_tag(
        tiff.with_tag(data, tiff.TILE_WIDTH, 256), tiff.TILE_LENGTH, 256
    ),
    "65,535 channels": lambda data: tiff.with_tag(data, tiff.CHANNELS, 65_535, kind=tiff.SHORT),
    "no channel": lambda data: tiff.with_tag(data, tiff.CHANNELS, 0, kind=tiff.SHORT),
    "a compression nobody knows": lambda data: tiff.with_tag(data, tiff.COMPRESSION, 49_999, kind=tiff.SHORT),
    "another compression than it has": lambda data: tiff.with_tag(data, tiff.COMPRESSION, 7, kind=tiff.SHORT),
    "JPEG 2000 that it has not": lambda data: tiff.with_tag(data, tiff.COMPRESSION, 33_005, kind=tiff.SHORT),
    "LZW that it has not": lambda data: tiff.with_tag(data, tiff.COMPRESSION, 5, kind=tiff.SHORT),
    "no compression, which it has": lambda data: tiff.with_tag(data, tiff.COMPRESSION, 1, kind=tiff.SHORT),
    "too few tiles": lambda data: tiff.with_tag(data, tiff.HEIGHT, 5120),
    "tiles beyond the end": lambda data: tiff.with_numbers(
        data, tiff.TILE_OFFSETS, lambda numbers: [2**32 - 1] * len(numbers)
    ),
    "tiles that are the header": lambda data: tiff.with_numbers(
        data, tiff.TILE_OFFSETS, lambda numbers: [0] * len(numbers)
    ),
    "tiles of 4 GB": lambda data: tiff.with_numbers(
        data, tiff.TILE_COUNTS, lambda numbers: [2**32 - 1] * len(numbers)
    ),
    "tiles of 1 byte": lambda data: tiff.with_numbers(
        data, tiff.TILE_COUNTS, lambda numbers: [1] * len(numbers)
    ),
    "tiles that were never written": lambda data: tiff.with_numbers(
        data, tiff.TILE_COUNTS, lambda numbers: [0] * len(numbers)
    ),
    "a list of 4 thousand million tiles": lambda data: tiff.with_tag(
        data, tiff.TILE_OFFSETS, 8, count=2**32 - 1
    ),
    "a directory that follows itself": lambda data: _linked_to_itself(data),
    "a directory beyond the end": lambda data: data[:4] + struct.pack("<I", 2**31) + data[8:],
    "no directory": lambda data: data[:4] + bytes(4) + data[8:],
    "a directory of 65,535 tags": lambda data: _with_count(data, 65_535),
    "a directory without tags": lambda data: _with_count(data, 0),
    "a BigTIFF of 10^18 tags": lambda data: b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 10**18) + bytes(64),
    "no resolution": lambda data: tiff.without_tag(data, tiff.X_RESOLUTION),
    "a resolution without unit": lambda data: tiff.with_tag(data, tiff.RESOLUTION_UNIT, 1, kind=tiff.SHORT),
    "a resolution in miles": lambda data: tiff.with_tag(data, tiff.RESOLUTION_UNIT, 9, kind=tiff.SHORT),
    "a resolution of 0 in 0": lambda data: tiff.with_ratio(data, tiff.X_RESOLUTION, 0, 0),
    "a resolution of 0": lambda data: tiff.with_ratio(data, tiff.X_RESOLUTION, 0, 1),
    "an infinite resolution": lambda data: tiff.with_ratio(data, tiff.X_RESOLUTION, 1, 0),
    "72 dpi": lambda data: _dpi(data, 72),
    "an electron microscope's resolution": lambda data: tiff.with_ratio(
        tiff.with_ratio(data, tiff.X_RESOLUTION, 10**8, 1), tiff.Y_RESOLUTION, 10**8, 1
    ),
    "pixels that are no squares": lambda data: tiff.with_ratio(data, tiff.X_RESOLUTION, 20_000, 1),
}
PLAIN = {
    "32-bit floats": lambda: write_slide(VICTIM, pixels=slide_pixels(1).astype(np.float32) / 255),
    "one channel": lambda: _gray(),
    "Aperio without a number": lambda: write_slide(VICTIM, seed=1, mpp=None, description="Aperio|MPP = n/a"),
    "Aperio of 0 µm/px": lambda: write_slide(VICTIM, seed=1, mpp=None, description="Aperio|MPP = 0"),
    "Aperio of 10^400 µm/px": lambda: write_slide(VICTIM, seed=1, mpp=None, description="Aperio|MPP = 1" + "0" * 400),
}  # fmt: skip


def _gray() -> None:
    write_slide(VICTIM, pixels=slide_pixels(1)[..., 0], photometric="minisblack")


def _linked_to_itself(data: bytes) -> bytes:
    (offset,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, offset)
    place = offset + 2 + 12 * count
    return data[:place] + struct.pack("<I", offset) + data[place + 4 :]


def _with_count(data: bytes, count: int) -> bytes:
    (offset,) = struct.unpack_from("<I", data, 4)
    return data[:offset] + struct.pack("<H", count) + data[offset + 2 :]


def _dpi(data: bytes, dpi: int) -> bytes:
    for tag in (tiff.X_RESOLUTION, tiff.Y_RESOLUTION):
        data = tiff.with_ratio(data, tag, dpi, 1)
    return tiff.with_tag(data, tiff.RESOLUTION_UNIT, 2, kind=tiff.SHORT)


def _tiles(change: Callable[[int, bytes], bytes]) -> Callable[[], None]:
    return lambda: tiff.write_jpeg_slide(VICTIM, slide_pixels(1), change)


def _only(victim: int, change: Bytes) -> Callable[[], None]:
    return _tiles(lambda number, tile: change(tile) if number == victim else tile)


def _middle(data: bytes, what: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + what + data[at + len(what) :]


DAMAGED_TILES: dict[str, Callable[[], object]] = {
    "a frame of 512 pixels in a tile of 128": _only(5, lambda tile: tiff.with_frame_size(tile, 512, 512)),
    "a frame of 65,500 pixels": _only(5, lambda tile: tiff.with_frame_size(tile, 65_500, 65_500)),
    "a frame of no pixels": _only(5, lambda tile: tiff.with_frame_size(tile, 0, 0)),
    "a frame of 64 pixels": _only(5, lambda tile: tiff.with_frame_size(tile, 64, 64)),
    "every frame of 512 pixels": _tiles(lambda number, tile: tiff.with_frame_size(tile, 512, 512)),
    "a tile without its start": _only(5, lambda tile: tile[20:]),
    "a tile without its end": _only(5, lambda tile: tile[: len(tile) // 2]),
    "a tile of zeros": _only(5, lambda tile: bytes(len(tile))),
    "a tile that is a picture of one channel": _only(5, lambda tile: tiff.jpeg(tissue(1, 128)[..., 0])),
    "a tile that is a PNG": _only(5, lambda tile: b"\x89PNG\r\n\x1a\n" + tile[8:]),
}  # fmt: skip


def _as_pyramid(factors: tuple[int, ...], **tags: Any) -> None:
    VICTIM.unlink()
    with tifffile.TiffWriter(VICTIM, **tags) as writer:
        for factor in factors:
            pixels = slide_pixels(1)[::factor, ::factor]
            writer.write(
                pixels, tile=(128, 128), photometric="rgb", compression="deflate", metadata=None,
                subfiletype=int(factor > 1), resolution=(10_000 / factor,) * 2, resolutionunit="CENTIMETER",
            )  # fmt: skip


def _renamed(name: str) -> Callable[[], None]:
    def change() -> None:
        (OWN / name).parent.mkdir(exist_ok=True)
        os.rename(VICTIM, OWN / name)
        replaced(OWN / "slides.csv", "s1.tif", name)()

    return change


RIGHT: dict[str, tuple[Callable[[], object], int | None, tuple[str, ...]]] = {
    "a BigTIFF": (partial(_as_pyramid, (1, 2), bigtiff=True), ACCEPTED, ()),
    "a TIFF of the other byte order": (partial(_as_pyramid, (1, 2), byteorder=">"), ACCEPTED, ()),
    "a pyramid of thirds": (partial(_as_pyramid, (1, 3)), ACCEPTED, ()),
    "JPEG tiles": (_tiles(lambda number, tile: tile), ACCEPTED, ()),
    "a name with blanks and an umlaut": (_renamed("Präparat 1 (neu).tif"), ACCEPTED, ()),
    "a name in capitals": (_renamed("S1.TIF"), ACCEPTED, ()),
    "a name in a folder": (_renamed("batch 1/s1.tif"), ACCEPTED, ()),
    "a name that begins with a dash": (_renamed("-s1.tif"), ACCEPTED, ()),
    "a name with a percent sign": (_renamed("100%s.tif"), ACCEPTED, ()),
    "a name with brackets": (_renamed("s[1].tif"), ACCEPTED, ()),
    "a link to a slide": (
        lambda: (os.rename(VICTIM, OWN / "real.tif"), VICTIM.symlink_to("real.tif")), ACCEPTED, (),
    ),
    "a read-only slide in a read-only folder": (
        lambda: (VICTIM.chmod(0o444), OWN.chmod(0o555)), ACCEPTED, (),
    ),
    "a manifest that contradicts the file": (
        lambda: (
            replaced(OWN / "slides.csv", "patient_id,label", "patient_id,mpp,label")(),
            replaced(OWN / "slides.csv", ",normal", ",,normal", 9)(),
            replaced(OWN / "slides.csv", ",tumor", ",,tumor", 9)(),
            replaced(OWN / "slides.csv", "P1,,normal", "P1,0.8,normal")(),
        ), ACCEPTED, ("the manifest: 0.8 µm/px, the file: 1",),
    ),
    "16 bits": (
        lambda: write_slide(VICTIM, pixels=slide_pixels(1).astype(np.uint16) * 257), EITHER, NAMED,
    ),
    "five channels": (
        lambda: write_slide(VICTIM, pixels=np.dstack([slide_pixels(1)] * 2)[..., :5], extrasamples=(0, 0)),
        EITHER, NAMED,
    ),
    "a JPEG tile that ends in its middle": (_only(5, lambda tile: _middle(tile, b"\xff\xd9")), EITHER, NAMED),
    "a JPEG tile with a marker in its middle": (
        _only(5, lambda tile: _middle(tile, b"\xff\xc4\x00\x00\xff\xdb")), EITHER, NAMED,
    ),
    "stripes, no tiles": (lambda: write_slide(VICTIM, seed=1, tile=None, rowsperstrip=16), EITHER, NAMED),
    "an alpha channel": (
        lambda: write_slide(VICTIM, pixels=np.dstack([slide_pixels(1), np.full((512, 512), 255, np.uint8)]),
                            extrasamples=("unassalpha",)), EITHER, NAMED,
    ),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the four kinds."""
    for name, prepare in NO_SLIDES.items():
        yield Case(FILES, name, INDEX, prepare, NAMED)
    for name, odd in SPECIAL_NAMES.items():
        mentions = "slides.csv" if "UTF-8" in name else "s1"
        yield Case(FILES, name, INDEX, _named(odd), (mentions,))
    for name, change in TAGS.items():
        yield Case(HEADERS, name, INDEX, _changed(change), NAMED)
    for name, prepare in PLAIN.items():
        yield Case(HEADERS, name, INDEX, prepare, NAMED)
    for name, prepare in DAMAGED_TILES.items():
        yield Case(TILES, name, INDEX, prepare, NAMED, code=REFUSED)
    for name, (prepare, code, mentions) in RIGHT.items():
        yield Case(ODD, name, INDEX, prepare, mentions, code=code)
