"""Check the bytes of one tile against the TIFF before decoding.

cuCIM decodes into a buffer of the TIFF's tile size and ignores the tile's own header: a JPEG of 512 x 512 in a slide of
240 x 240 tiles ends the process. This module parses the headers (ITU-T T.81, annex B; T.800, annex A) and refuses
tiles that differ from the TIFF.
"""

from __future__ import annotations

import re
import struct
import zlib

from histo_monai.slides.tiff.tables import ADOBE_DEFLATE, DEFLATE, JPEG, JPEG2000, UNCOMPRESSED, Page
from histo_monai.utils.errors import InputError

_MAX_SCANS = 100
_MAX_INNER_TILES = 1024
_TAIL_BYTES = 16  # Some writers pad tiles by a few bytes after the end marker.
_SOI, _EOI, _SOS, _SOT = 0xD8, 0xD9, 0xDA, 0x90
_WITHOUT_LENGTH = (0x00, 0x01, *range(0xD0, 0xDA))
_PROGRESSIVE = 0xC2
_FRAMES = (0xC0, 0xC1, _PROGRESSIVE)  # the first two are baseline and extended
_OTHER_FRAMES = (0xC3, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
_NEVER_IN_PACKETS = re.compile(rb"\xff[\x90\x93-\xff]")  # 0x91 and 0x92 may stand between packets.


class NoTileError(InputError):
    """Bytes that are no tile of the page."""


def check_tile(page: Page, data: bytes) -> int:
    """Check the bytes of one written tile.

    Returns:
        Length of the tile's head: another tile of the page with equal first bytes is valid too. 0: check every tile.

    Raises:
        NoTileError: The bytes are no tile of this page.
    """
    if len(data) > most_bytes(page):
        raise NoTileError(f"it has {len(data)} bytes, but only {page.tile_bytes} decoded")
    if page.compression == JPEG:
        return _check_jpeg(page, data)
    if page.compression == UNCOMPRESSED:
        if len(data) < page.tile_bytes:
            raise NoTileError(f"it has {len(data)} of its {page.tile_bytes} bytes")
    elif page.compression in JPEG2000:
        _check_jpeg2000(page, data)
    elif page.compression in (DEFLATE, ADOBE_DEFLATE):
        _check_deflate(page, data)
    elif not any(data[-4:]):
        raise NoTileError("its end is zeros")
    return 0


def most_bytes(page: Page) -> int:
    """Upper limit of an encoded tile's size, bytes."""
    return 4 * page.tile_bytes + 2**20


def check_jpeg_tables(data: bytes) -> None:
    """Check the JPEG tables that a page's tiles use: they must hold no picture.

    Raises:
        NoTileError: The data are not tables alone.
    """
    position = 2 if data[:2] == b"\xff\xd8" else -1
    while position >= 0:
        marker, _, end = _segment(data, position)
        if marker == _EOI:
            return
        if marker in (*_FRAMES, *_OTHER_FRAMES, _SOS) or marker in _WITHOUT_LENGTH or end > len(data):
            break
        position = end
    raise NoTileError("they hold more than tables")


def _segment(data: bytes, position: int) -> tuple[int, int, int]:
    """A marker, and the begin and end of its segment, which are equal for a marker without a segment."""
    if data[position : position + 1] != b"\xff":
        raise NoTileError(f"no marker at byte {position}")
    while data[position : position + 1] == b"\xff":  # A marker may be preceded by any number of fill bytes.
        position += 1
    marker = data[position : position + 1]
    if not marker:
        raise NoTileError("the header is cut off")
    start = position + 1
    if marker[0] in _WITHOUT_LENGTH:
        return marker[0], start, start
    if start + 2 > len(data):
        raise NoTileError("the header is cut off")
    length = int.from_bytes(data[start : start + 2], "big")
    if length < 2:
        raise NoTileError(f"a segment of the header has {length} bytes")
    return marker[0], start, start + length


def _check_jpeg(page: Page, data: bytes) -> int:
    """Check the header before the first scan; returns the scan's offset, or 0 for several scans."""
    if data[:2] != b"\xff\xd8":
        raise NoTileError("it does not begin as a JPEG")
    position, marker, frame = 2, _SOI, b""
    while marker != _SOS:
        marker, start, position = _segment(data, position)
        if marker in _FRAMES and not frame:
            frame = bytes([marker]) + data[start:position]
            _check_frame(page, frame)
        elif marker in _FRAMES or marker in _OTHER_FRAMES:
            raise NoTileError(f"it is a JPEG of a kind that slides do not have (0x{marker:02x})")
        elif marker in _WITHOUT_LENGTH:
            raise NoTileError("it has no scan")
    if not frame or position > len(data):
        raise NoTileError("the header is cut off")
    if frame[0] != _PROGRESSIVE and data[start + 2] == page.num_channels:
        return position
    num_scans = data.count(b"\xff\xda", start)
    if num_scans > _MAX_SCANS:
        raise NoTileError(f"it has {num_scans} scans")
    return 0


def _check_frame(page: Page, frame: bytes) -> None:
    if len(frame) < 9 or len(frame) != 9 + 3 * frame[8]:
        raise NoTileError("its frame header is damaged")
    bits, height, width, num_channels = struct.unpack(">BHHB", frame[3:9])
    _check_header(page, height, width, num_channels, bits)
    for sampling in frame[10::3]:
        if sampling >> 4 not in (1, 2, 4) or sampling & 15 not in (1, 2, 4):
            raise NoTileError(f"it states a sampling of {sampling >> 4} x {sampling & 15}")


def _check_header(page: Page, height: int, width: int, num_channels: int, bits: int) -> None:
    """Check a tile's own header against the TIFF."""
    if (height, width) != page.tile_yx:
        tile_height, tile_width = page.tile_yx
        raise NoTileError(
            f"its own header states {width} x {height} px, the TIFF {tile_width} x {tile_height}"
        )
    if (num_channels, bits) != (page.num_channels, page.bits):
        raise NoTileError(
            f"its own header states {num_channels} channels of {bits} bits, the TIFF {page.num_channels} of {page.bits}"
        )


def _check_jpeg2000(page: Page, data: bytes) -> None:
    if data[:4] != b"\xff\x4f\xff\x51" or len(data) < 42:
        raise NoTileError("it does not begin as a JPEG 2000 codestream")
    length, _, right, bottom, left, top, *inner, num_channels = struct.unpack(">HH8IH", data[4:42])
    end = 4 + length
    if length != 38 + 3 * num_channels or end > len(data):
        raise NoTileError("its image header is damaged")
    channels = [tuple(data[at : at + 3]) for at in range(42, end, 3)]
    _check_header(page, bottom - top, right - left, num_channels, channels[0][0] + 1 if channels else 0)
    if (left, top) != (0, 0) or inner[2:] != [0, 0]:
        raise NoTileError("its own header states an offset")
    steps = [channel[1:] for channel in channels]
    if {channel[0] for channel in channels} != {page.bits - 1} or steps[0] != (1, 1):
        raise NoTileError("its channels differ")
    if len(set(steps[1:])) > 1 or not {step for pair in steps for step in pair} <= {1, 2}:
        raise NoTileError("its channels are sampled in a way that slides do not have")
    inner_width, inner_height = inner[:2]
    if min(inner[:2]) < 1 or -(-right // inner_width) * -(-bottom // inner_height) > _MAX_INNER_TILES:
        raise NoTileError(f"it is divided into parts of {inner_width} x {inner_height} px")
    _check_tile_parts(data, end)


def _check_tile_parts(data: bytes, position: int) -> None:
    """Check that tile-parts follow each other to the end and hold no marker inside packets."""
    while True:
        marker, start, end = _segment(data, position)
        if marker == _EOI:
            break
        if marker != _SOT:
            if marker in _WITHOUT_LENGTH or end > len(data):
                raise NoTileError("its header is damaged")
            position = end
            continue
        part = int.from_bytes(data[start + 4 : start + 8], "big")
        end = position + part if part else data.rfind(b"\xff\xd9")  # The last part may state no length.
        body = data.find(b"\xff\x93", start, end)
        if end - start < 12 or end > len(data) or body < 0:
            raise NoTileError("one of its parts is cut off")
        if _NEVER_IN_PACKETS.search(data, body + 2, end):
            raise NoTileError("its packets hold a marker")
        position = end
    if len(data) - start > _TAIL_BYTES and any(data[start:]):
        raise NoTileError("it continues after its end marker")


def _check_deflate(page: Page, data: bytes) -> None:
    # Decompress all: cuCIM does not notice a tile that ends early. The checksum (Adler-32) covers other damage.
    decoder = zlib.decompressobj()
    try:
        size = len(decoder.decompress(data, page.tile_bytes + 1))
    except zlib.error as error:
        raise NoTileError(str(error)) from None
    if size != page.tile_bytes or not decoder.eof:
        raise NoTileError(f"it decodes to {size} bytes, not {page.tile_bytes}")
