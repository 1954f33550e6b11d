"""Size of an image from its header, before a decoder allocates memory."""

from __future__ import annotations

import struct

_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WIDTH, _HEIGHT = 256, 257
_SHORT, _LONG, _LONG8 = 3, 4, 16


def image_size(data: bytes) -> tuple[int, int] | None:
    """Height and width in the header of a PNG, JPEG or TIFF (first page); None if damaged or another format."""
    for start, read in (
        (b"\x89PNG\r\n\x1a\n", _png),
        (b"\xff\xd8", _jpeg),
        (b"II", _tiff),
        (b"MM", _tiff),
    ):
        if data.startswith(start):
            try:
                return read(data)
            except (struct.error, IndexError, OverflowError):  # OverflowError: a place beyond 2^63
                return None
    return None


def _png(data: bytes) -> tuple[int, int] | None:
    width, height = struct.unpack_from(">II", data, 16)
    return (height, width) if data[12:16] == b"IHDR" else None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    while data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # fill byte
            place += 1
        elif marker in _WITHOUT_LENGTH:
            place += 2
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return height, width
        else:
            place += 2 + struct.unpack_from(">H", data, place + 2)[0]
    return None


def _tiff(data: bytes) -> tuple[int, int] | None:
    order = "<" if data.startswith(b"II") else ">"
    is_big = struct.unpack_from(f"{order}H", data, 2)[0] == 43
    place = struct.unpack_from(f"{order}Q" if is_big else f"{order}I", data, 8 if is_big else 4)[0]
    num = struct.unpack_from(f"{order}Q" if is_big else f"{order}H", data, place)[0]
    place += 8 if is_big else 2
    sides = {}
    for number in range(min(num, 4096)):
        tag, kind = struct.unpack_from(f"{order}HH", data, place + number * (20 if is_big else 12))
        if tag in (_WIDTH, _HEIGHT):
            code = {_SHORT: "H", _LONG: "I", _LONG8: "Q"}.get(kind)
            value = place + number * (20 if is_big else 12) + (12 if is_big else 8)
            sides[tag] = 0 if code is None else struct.unpack_from(order + code, data, value)[0]
    return (sides[_HEIGHT], sides[_WIDTH]) if len(sides) == 2 else None
