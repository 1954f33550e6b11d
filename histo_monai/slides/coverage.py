"""Area means at any scale and offset: rows first, then columns.

Bands of rows stay in a core's cache, because moving pixels dominates the cost of a patch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

_BAND_BYTES, _WIDE_BYTES = 512 * 1024, 4 * 2**20
"""Target bytes of a band's float pixels, and the limit for fields so wide that few rows fit."""

_FEW_ROWS = 16
"""Least result rows per band: smaller matrix products are slow."""


class Weights:
    """Area-coverage weights along one axis, for several inputs of one length.

    Output ``j`` covers ``[start + j * scale, start + (j + 1) * scale)`` of the input, whose pixel ``i`` covers
    ``[i, i + 1)``. The weights are the overlaps divided by ``scale``, renormalized where an output leaves the input.

    Args:
        starts: Where the first output of each input begins, shape (inputs,).
        scale: Input pixels per output pixel.
        num_out: Outputs per input.
        num_in: Pixels per input.
    """

    def __init__(self, starts: NDArray[np.float64], scale: float, num_out: int, num_in: int) -> None:
        weights, places = _overlaps(starts, scale, num_out, num_in)
        has_weight = weights > 0
        self._first = np.zeros((len(starts), num_out + 1), np.int32)
        np.cumsum(has_weight.sum(axis=0, dtype=np.int32), axis=1, out=self._first[:, 1:])
        self._of_input = np.concatenate([[0], np.cumsum(self._first[:, -1])]).tolist()
        in_order = np.ascontiguousarray(np.moveaxis(has_weight, 0, -1))
        self._weights = np.ascontiguousarray(np.moveaxis(weights, 0, -1))[in_order]
        self._places = np.ascontiguousarray(np.moveaxis(places, 0, -1))[in_order]
        self._matrices: dict[tuple[int, int], sparse.csr_array] = {}

    def first(self, number: int, outputs: slice) -> int:
        """The first input pixel with a weight in the given outputs."""
        begin, end = self._range(number, outputs)
        return int(self._places[begin]) if begin < end else 0

    def matrix(self, number: int, outputs: slice, first: int, num_in: int) -> sparse.csr_array:
        """The matrix that maps input pixels to outputs; valid until the next call.

        Args:
            outputs: Slice with `start` and `stop`.
            first, num_in: Range of input pixels; no pixel outside has a weight.

        Returns:
            Sparse, shape (outputs, num_in), float32; rows sum to 1.
        """
        begin, end = self._range(number, outputs)
        until = self._first[number, outputs.start : outputs.stop + 1]
        # One matrix is reused with new values: creating a matrix takes as long as multiplying by it.
        shape = (len(until) - 1, num_in)
        matrix = self._matrices.get(shape)
        if matrix is None:
            matrix = self._matrices[shape] = sparse.csr_array(shape, dtype=np.float32)
        matrix.data, matrix.indices = self._weights[begin:end], self._places[begin:end] - first
        matrix.indptr = until - until[0]
        return matrix

    def _range(self, number: int, outputs: slice) -> tuple[int, int]:
        begin, until = self._of_input[number], self._first[number]
        return begin + int(until[outputs.start]), begin + int(until[outputs.stop])


def _overlaps(
    starts: NDArray[np.float64], scale: float, num_out: int, num_in: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Weights and input positions, (taps, inputs, num_out) each; weights may be 0."""
    edges = np.clip(starts[:, None] + np.arange(num_out + 1) * scale, 0, num_in)
    lower, upper = edges[:, :-1], edges[:, 1:]
    places = np.floor(lower).astype(np.int32) + np.arange(ceil(scale) + 1, dtype=np.int32)[:, None, None]
    overlaps = np.minimum(upper, places + 1)
    overlaps -= np.maximum(lower, places)
    np.maximum(overlaps, 0, out=overlaps)
    overlaps /= np.maximum(overlaps.sum(axis=0), 1e-12)
    return overlaps.astype(np.float32), np.minimum(places, num_in - 1)


def mean_bands(
    fields: Iterable[NDArray[np.uint8]],
    field_yx: tuple[int, int],
    starts_yx: Sequence[tuple[float, float]],
    scale_yx: tuple[float, float],
    size_yx: tuple[int, int],
) -> Iterator[tuple[int, slice, NDArray[np.uint8]]]:
    """Area means of fields, band by band.

    Args:
        fields: Shape (*field_yx, 3) each, uint8.
        starts_yx: Where the first pixel of each result begins, pixels of the field.
        scale_yx: Pixels of the field per pixel of the result.
        size_yx: Height and width of each result.

    Yields:
        Field number, result rows, and their pixels, shape (columns, 3, rows), uint8, rounded to the nearest level.
    """
    (height, width), (num_rows, num_columns) = field_yx, size_yx
    starts = np.array(starts_yx, np.float64)
    along_y = Weights(starts[:, 0], scale_yx[0], num_rows, height)
    along_x = Weights(starts[:, 1], scale_yx[1], num_columns, width)
    row_bytes = 12 * width * max(1.0, scale_yx[0])
    fit = max(1, int(min(max(_BAND_BYTES, _FEW_ROWS * row_bytes), _WIDE_BYTES) / row_bytes))
    step = ceil(num_rows / ceil(num_rows / fit))
    most = min(height, ceil(step * scale_yx[0]) + 2)
    values = np.empty((most, width * 3), np.float32)
    turned = np.empty(width * 3 * step, np.float32)
    for number, field in enumerate(fields):
        flat = field.reshape(height, width * 3)
        columns = along_x.matrix(number, slice(0, num_columns), 0, width)
        for start in range(0, num_rows, step):
            band = slice(start, min(start + step, num_rows))
            top = along_y.first(number, band)
            bottom = min(top + most, height)
            values[: bottom - top] = flat[top:bottom]
            rows = along_y.matrix(number, band, top, most) @ values
            # OpenCV transposes several times as fast as a copy in another order.
            reduced = cv2.transpose(rows, turned[: rows.size].reshape(width * 3, -1))
            levels = cv2.convertScaleAbs(columns @ reduced.reshape(width, -1))
            yield number, band, levels.reshape(num_columns, 3, -1)
