"""What an image looks like, in 144 bits: copies that were re-encoded, resized, mirrored or turned have nearly the same.

The signs of the lowest 12 × 12 coefficients of the cosine transform of the image at 32 × 32 gray pixels, a perceptual
hash (after Zauner, Implementation and Benchmarking of Perceptual Image Hash Functions, 2010). A mirror image has the
coefficients of odd order with the other sign, one turned by 90° has rows and columns exchanged as well: all eight
orientations follow from the bits of one.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn

MAX_DISTANCE = 28
"""Of 143 bits, up to which two images count as near copies; measured, see docs/audit.md."""

NUM_ORIENTATIONS = 8
_SIDE_PX = 32
_ORDER = 12
_NUM_BYTES = _ORDER * _ORDER // 8
_GRAY_LEVELS = 8
_LEAST_SHARE = 0.25


def fingerprint(pixels: NDArray[np.uint8]) -> bytes:
    """The 144 bits of an image, the first of which is always 0.

    Args:
        pixels: Shape (H, W, 3), uint8, RGB.

    Returns:
        18 bytes; none where too little is on the image to tell it from another: less than a quarter of it differs
        from its median by more than 8 gray levels, as on glass with a corner of tissue.
    """
    gray = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
    small = cv2.resize(gray, (_SIDE_PX, _SIDE_PX), interpolation=cv2.INTER_AREA).astype(np.float64)
    if (np.abs(small - np.median(small)) > _GRAY_LEVELS).mean() < _LEAST_SHARE:
        return b""
    bits = dctn(small, norm="ortho")[:_ORDER, :_ORDER] > 0
    bits[0, 0] = False
    return np.packbits(bits).tobytes()


def words(fingerprints: list[bytes]) -> NDArray[np.uint64]:
    """Fingerprints as words whose differing bits can be counted at once. Shape (n, 3)."""
    return _words(_bits(fingerprints))


def words_in_all_orientations(fingerprints: list[bytes]) -> NDArray[np.uint64]:
    """As `words`, of the images as they are, mirrored and turned by 90°, 180° and 270°. Shape (8, n, 3)."""
    bits = _bits(fingerprints)
    odd = np.arange(_ORDER) % 2 == 1
    found = [
        _words(turned ^ (odd[:, None] & down) ^ (odd & across))
        for turned in (bits, bits.transpose(0, 2, 1))
        for down in (False, True)
        for across in (False, True)
    ]
    return np.stack(found)


def _bits(fingerprints: list[bytes]) -> NDArray[np.bool_]:
    packed = np.frombuffer(b"".join(fingerprints), np.uint8).reshape(-1, _NUM_BYTES)
    return np.unpackbits(packed, axis=1).astype(bool).reshape(-1, _ORDER, _ORDER)


def _words(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    packed = np.packbits(bits.reshape(len(bits), -1), axis=1)
    padded = np.zeros((len(bits), -(-_NUM_BYTES // 8) * 8), np.uint8)
    padded[:, :_NUM_BYTES] = packed
    return padded.view(np.uint64)
