"""Perceptual hash of an image, 144 bits, nearly equal for re-encoded, resized, mirrored or rotated copies.

The bits are the signs of the lowest 12 × 12 cosine coefficients of the image at 32 × 32 gray pixels (after Zauner,
Implementation and Benchmarking of Perceptual Image Hash Functions, 2010). Mirroring negates the coefficients of odd
order; a rotation by 90° also exchanges rows and columns. So one hash gives all eight orientations.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.fft import dctn

MAX_DISTANCE = 28
"""Most differing bits of 143 for near copies; measured in docs/audit.md."""

_SIDE_PX = 32
_ORDER = 12
_NUM_BYTES = _ORDER**2 // 8
_PER_CLASS = _ORDER**2 // 4
_GRAY_LEVELS = 8
_LEAST_FRACTION = 0.25


def fingerprint(pixels: NDArray[np.uint8]) -> bytes:
    """The 144 bits of an image; the first is always 0.

    Args:
        pixels: Shape (H, W, 3), uint8, RGB.

    Returns:
        18 bytes; empty if less than a quarter of the image differs from its median by more than 8 gray levels, as on
        glass with a corner of tissue.
    """
    gray = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
    small = cv2.resize(gray, (_SIDE_PX, _SIDE_PX), interpolation=cv2.INTER_AREA).astype(np.float64)
    if (np.abs(small - np.median(small)) > _GRAY_LEVELS).mean() < _LEAST_FRACTION:
        return b""
    bits = dctn(small, norm="ortho")[:_ORDER, :_ORDER] > 0
    bits[0, 0] = False
    return np.packbits(bits).tobytes()


def class_words(fingerprints: Sequence[bytes]) -> NDArray[np.uint64]:
    """Fingerprints as words for `distances`, of images and of their transposes.

    Returns:
        Shape (2, 4, n). A word holds the coefficients of even or odd rows and even or odd columns, so mirroring inverts
        all or none of its bits.
    """
    packed = np.frombuffer(b"".join(fingerprints), np.uint8).reshape(-1, _NUM_BYTES)
    bits = np.unpackbits(packed, axis=1).reshape(-1, _ORDER, _ORDER)
    return np.stack([_words(bits), _words(bits.transpose(0, 2, 1))])


def distances(left: NDArray[np.uint64], right: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Number of differing bits in the best of eight orientations, for all pairs.

    Args:
        left: Shape (4, m), the untransposed part of `class_words`.
        right: Shape (2, 4, n).

    Returns:
        Shape (m, n), 0 to 143.
    """
    best = np.full((left.shape[1], right.shape[2]), _ORDER**2, np.uint8)
    for turned in right:
        even, across, down, both = (
            np.bitwise_count(one[:, None] ^ other) for one, other in zip(left, turned, strict=True)
        )
        # Change of the distance if all bits of a word are inverted, -36 to 36; a mirror image inverts two words.
        one, two, three = (
            (np.uint8(_PER_CLASS) - np.uint8(2) * some).view(np.int8) for some in (across, down, both)
        )
        change = np.minimum(one + two, 0)
        np.minimum(change, one + three, out=change)
        np.minimum(change, two + three, out=change)
        # Bytes wrap at 256: adding a negative one subtracts.
        np.minimum(best, even + across + down + both + change.view(np.uint8), out=best)
    return best


def _words(bits: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Shape (n, 12, 12) -> (4, n)."""
    classes = [bits[:, row::2, column::2] for row in (0, 1) for column in (0, 1)]
    padded = np.zeros((4, len(bits), 8), np.uint8)
    for into, some in zip(padded, classes, strict=True):
        into[:, : -(-_PER_CLASS // 8)] = np.packbits(some.reshape(len(bits), -1), axis=1)
    return padded.view(np.uint64)[..., 0]
