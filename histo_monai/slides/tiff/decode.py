"""Decode one tile with Pillow, for pages that cuCIM and OpenSlide lack, such as SubIFDs.

Pillow reads files, so a tile is wrapped as a TIFF of one tile; Pillow's libtiff undoes predictors, bit order and color
spaces. That libtiff lacks JPEG 2000, whose codestreams Pillow reads directly.
"""

from __future__ import annotations

import io
import struct

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.tiff.tables import ADOBE_DEFLATE, DEFLATE, JPEG, JPEG2000, LZW, UNCOMPRESSED, Page

_RGB, _YCBCR = 2, 6
_JPEG2000_RGB = 33005
_COLORS = {
    **dict.fromkeys((UNCOMPRESSED, LZW, DEFLATE, ADOBE_DEFLATE), (_RGB,)),
    **dict.fromkeys((JPEG, *JPEG2000), (_RGB, _YCBCR)),
}
"""Readable photometric interpretations, by codec."""

_SHORT, _LONG, _UNDEFINED = 3, 4, 7


def why_not_decoded(page: Page) -> str | None:
    """The reason why a page's tiles cannot be decoded, or None."""
    if not page.is_tiled:
        return "the image is not tiled"
    if page.num_channels != 3 or page.bits != 8 or page.sample_format != 1 or page.is_planar:
        return f"the image has {page.num_channels} channels of {page.bits} bits, not 3 of 8, interleaved"
    if page.compression not in _COLORS:
        return f"it does not decode TIFF compression {page.compression}"
    if page.photometric not in _COLORS[page.compression]:
        return f"it does not read the colors of photometric interpretation {page.photometric}"
    if page.predictor not in (None, 1, 2):
        return f"it does not undo predictor {page.predictor}"
    return None


def why_not_pillow(page: Page) -> str | None:
    """The reason why `decode_tile` cannot decode a page's tiles, or None."""
    if page.compression in JPEG2000 and (page.compression, page.photometric) != (_JPEG2000_RGB, _RGB):
        return "Pillow does not undo the colors of its JPEG 2000"
    return why_not_decoded(page)


def decode_tile(page: Page, data: bytes) -> NDArray[np.uint8]:
    """The pixels of a whole tile, shape (*tile_yx, 3), RGB.

    Raises:
        OSError, ValueError, SyntaxError: Pillow cannot decode it.
    """
    from PIL import Image

    if page.compression in JPEG2000:
        with Image.open(io.BytesIO(data), formats=("JPEG2000",)) as image:
            pixels = np.asarray(image)
    else:
        with Image.open(io.BytesIO(_one_tile_tiff(page, data)), formats=("TIFF",)) as image:
            pixels = np.asarray(image.convert("RGB"))
    if pixels.shape != (*page.tile_yx, 3):
        raise ValueError(f"it decodes to an array of shape {pixels.shape}")
    return pixels


def _one_tile_tiff(page: Page, data: bytes) -> bytes:
    """A little-endian TIFF with one tile."""
    height, width = page.tile_yx
    numbers = {
        256: (_LONG, width),
        257: (_LONG, height),
        259: (_SHORT, page.compression),
        262: (_SHORT, page.photometric),
        266: (_SHORT, page.fill_order),
        277: (_SHORT, 3),
        317: (_SHORT, page.predictor or 1),
        322: (_LONG, width),
        323: (_LONG, height),
        325: (_LONG, len(data)),
    }
    if page.compression not in (LZW, DEFLATE, ADOBE_DEFLATE):
        del numbers[317]
    num_tags = len(numbers) + 2 + bool(page.jpeg_tables)
    bits_at = 8 + 2 + 12 * num_tags + 4
    tables_at = bits_at + 6
    data_at = tables_at + len(page.jpeg_tables)
    entries = {tag: (kind, 1, value) for tag, (kind, value) in numbers.items()}
    entries[258] = (_SHORT, 3, bits_at)
    entries[324] = (_LONG, 1, data_at)
    if page.jpeg_tables:
        entries[347] = (_UNDEFINED, len(page.jpeg_tables), tables_at)
    rows = [struct.pack("<HHII", tag, *entries[tag]) for tag in sorted(entries)]
    head = struct.pack("<2sHIH", b"II", 42, 8, num_tags) + b"".join(rows) + bytes(4)
    return head + struct.pack("<3H", 8, 8, 8) + page.jpeg_tables + data
