"""TIFF files of any structure: pages in any order, SubIFDs, any tag; written from scratch."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

NONE, LZW, JPEG, DEFLATE, JPEG2000 = 1, 5, 7, 8, 33005
_ASCII, _SHORT, _LONG, _RATIONAL, _LONG8 = 2, 3, 4, 5, 16
_FORMATS = {_SHORT: "H", _LONG: "I", _LONG8: "Q"}
_BYTES = {_ASCII: 1, _SHORT: 2, _LONG: 4, _RATIONAL: 8, _LONG8: 8}


@dataclass
class DrawnPage:
    """One image.

    Attributes:
        pixels: Shape (h, w, 3), uint8.
        tile_px: Side of its tiles; None for strips of 16 rows.
        compression: TIFF's number.
        predictor: 1 or 2; 2 with `DEFLATE` alone.
        subfile_type: NewSubfileType; None leaves the tag out.
        description: ImageDescription; empty leaves the tag out.
        software: Software; empty leaves the tag out.
        mpp: µm per pixel of the resolution tags, or None.
        unit: Of the resolution tags: 2 inch, 3 centimeter.
        is_reversed: FillOrder 2: the bits of every byte in reverse.
        sub_pages: Of its SubIFDs.
    """

    pixels: NDArray[np.uint8]
    tile_px: int | None = 64
    compression: int = DEFLATE
    predictor: int = 1
    subfile_type: int | None = None
    description: str = ""
    software: str = ""
    mpp: float | None = None
    unit: int = 3
    is_reversed: bool = False
    sub_pages: list[DrawnPage] = field(default_factory=list)


def write_tiff(path: Path, pages: list[DrawnPage], *, big: bool = False, order: str = "<") -> Path:
    """A TIFF of these pages, in this order."""
    word, kind = ("Q", _LONG8) if big else ("I", _LONG)
    out = io.BytesIO()
    mark = {"<": b"II", ">": b"MM"}[order]
    out.write(mark + (struct.pack(order + "HHHQ", 43, 8, 0, 0) if big else struct.pack(order + "HI", 42, 0)))
    links = [out.tell() - struct.calcsize(word)]

    def directory(page: DrawnPage) -> tuple[int, int]:
        """Where a page's directory begins, and where in it the next one's place is to be written."""
        subs = [directory(sub)[0] for sub in page.sub_pages]
        tags = _tags(page)
        places = []
        for data in _pieces(page):
            places.append((out.tell(), len(data)))
            out.write(data)
        offsets, counts = (324, 325) if page.tile_px else (273, 279)
        tags[offsets] = (kind, [place for place, _ in places])
        tags[counts] = (kind, [count for _, count in places])
        if subs:
            tags[330] = (kind, subs)
        entries = []
        for tag, (code, values) in sorted(tags.items()):
            raw = _raw(code, values, order)
            if len(raw) > struct.calcsize(word):
                out.write(bytes(out.tell() % 2))
                raw, at = struct.pack(order + word, out.tell()), raw
                out.write(at)
            count = len(values) // (2 if code == _RATIONAL else 1)
            entries.append(
                struct.pack(order + "HH" + word, tag, code, count) + raw.ljust(struct.calcsize(word), b"\0")
            )
        out.write(bytes(out.tell() % 2))
        start = out.tell()
        out.write(struct.pack(order + ("Q" if big else "H"), len(entries)) + b"".join(entries))
        link = out.tell()
        out.write(bytes(struct.calcsize(word)))
        return start, link

    for page in pages:
        start, link = directory(page)
        out.seek(links[-1])
        out.write(struct.pack(order + word, start))
        out.seek(0, io.SEEK_END)
        links.append(link)
    path.write_bytes(out.getvalue())
    return path


def _raw(code: int, values: bytes | list[int], order: str) -> bytes:
    if isinstance(values, bytes):
        return values
    letter = "I" if code == _RATIONAL else _FORMATS[code]
    return struct.pack(f"{order}{len(values)}{letter}", *values)


def _tags(page: DrawnPage) -> dict[int, tuple[int, bytes | list[int]]]:
    height, width = page.pixels.shape[:2]
    tags: dict[int, tuple[int, bytes | list[int]]] = {
        256: (_LONG, [width]),
        257: (_LONG, [height]),
        258: (_SHORT, [8, 8, 8]),
        259: (_SHORT, [page.compression]),
        262: (_SHORT, [6 if page.compression == JPEG else 2]),
        277: (_SHORT, [3]),
        284: (_SHORT, [1]),
    }
    if page.predictor != 1:
        tags[317] = (_SHORT, [page.predictor])
    if page.is_reversed:
        tags[266] = (_SHORT, [2])
    if page.tile_px:
        tags |= {322: (_LONG, [page.tile_px]), 323: (_LONG, [page.tile_px])}
    else:
        tags[278] = (_LONG, [16])
    if page.subfile_type is not None:
        tags[254] = (_LONG, [page.subfile_type])
    for tag, text in ((270, page.description), (305, page.software)):
        if text:
            tags[tag] = (_ASCII, text.encode() + b"\0")
    if page.mpp is not None:
        per_unit = round({2: 25_400, 3: 10_000}[page.unit] / page.mpp * 1000)
        tags |= {282: (_RATIONAL, [per_unit, 1000]), 283: (_RATIONAL, [per_unit, 1000])}
        tags[296] = (_SHORT, [page.unit])
    return tags


def _pieces(page: DrawnPage) -> list[bytes]:
    """Encoded tiles or strips."""
    height, width = page.pixels.shape[:2]
    if page.tile_px is None:
        return [_encode(page, page.pixels[y : y + 16]) for y in range(0, height, 16)]
    side = page.tile_px
    padded = np.pad(page.pixels, [(0, -height % side), (0, -width % side), (0, 0)], mode="edge")
    return [
        _encode(page, np.ascontiguousarray(padded[y : y + side, x : x + side]))
        for y in range(0, height, side)
        for x in range(0, width, side)
    ]


def _encode(page: DrawnPage, pixels: NDArray[np.uint8]) -> bytes:
    if page.compression in (JPEG, JPEG2000):
        buffer = io.BytesIO()
        how = {"quality": 98, "subsampling": 0} if page.compression == JPEG else {"no_jp2": True, "mct": 0}
        Image.fromarray(pixels).save(buffer, "JPEG" if page.compression == JPEG else "JPEG2000", **how)
        return buffer.getvalue()
    if page.predictor == 2:
        pixels = np.diff(pixels, axis=1, prepend=np.zeros_like(pixels[:, :1]))
    raw = np.ascontiguousarray(pixels).tobytes()
    data = {NONE: _as_is, LZW: _lzw, DEFLATE: _deflate}[page.compression](raw)
    return data.translate(_REVERSED) if page.is_reversed else data


_REVERSED = bytes(int(f"{value:08b}"[::-1], 2) for value in range(256))


def _as_is(raw: bytes) -> bytes:
    return raw


def _deflate(raw: bytes) -> bytes:
    return zlib.compress(raw, 1)


def _lzw(raw: bytes) -> bytes:
    """LZW without gain: a clear code (256) before the codes grow beyond nine bits, and every byte for itself."""
    values = np.frombuffer(raw, np.uint8).astype(np.uint16)
    codes = np.insert(values, np.arange(0, len(values), 200), 256)
    codes = np.append(codes, 257)
    bits = (codes[:, None] >> np.arange(8, -1, -1)) & 1
    return np.packbits(bits.astype(np.uint8).ravel()).tobytes()
