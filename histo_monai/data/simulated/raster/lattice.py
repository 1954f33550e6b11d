"""Random fields and points as functions of the place alone.

Every value is a hash of (seed, lattice cell). So a tile rendered alone equals its area in a larger rendering, and no
part of a slide stays in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy import fft

from histo_monai.utils.process.products import product

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_Y = np.uint64(0x9E3779B97F4A7C15)
_X = np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class Grid:
    """Raster of sample points: row i at `y_um + (i + 0.5) * step_um`, column j at `x_um + (j + 0.5) * step_um`."""

    y_um: float
    x_um: float
    step_um: float
    height: int
    width: int

    def rows_um(self) -> F32:
        """Positions of the rows, float32, relative to the slide's top left corner."""
        return (self.y_um + (np.arange(self.height) + 0.5) * self.step_um).astype(np.float32)

    def columns_um(self) -> F32:
        """Positions of the columns, float32."""
        return (self.x_um + (np.arange(self.width) + 0.5) * self.step_um).astype(np.float32)

    def sample(self, values: F32, y_um: F32, x_um: F32) -> F32:
        """Values of a field on this grid at points (the nearest sample; the border repeats)."""
        row = np.clip(((y_um - self.y_um) / self.step_um).astype(np.int64), 0, self.height - 1)
        column = np.clip(((x_um - self.x_um) / self.step_um).astype(np.int64), 0, self.width - 1)
        return values[row, column]


def derive(seed: int, *path: int | str) -> int:
    """A child seed, 0..2^63-1, for a named purpose; different paths give independent seeds."""
    value = np.uint64(seed % 2**64)
    with np.errstate(over="ignore"):
        for part in path:
            word = int.from_bytes(part.encode()[:8].ljust(8), "little") if isinstance(part, str) else part
            value = _mix(value * _Y + np.uint64(word % 2**64) + _X)
    return int(value >> np.uint64(1))


def _mix(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(30))) * _M1
    value = (value ^ (value >> np.uint64(27))) * _M2
    return value ^ (value >> np.uint64(31))


def hash_cells(seed: int, rows: I64, columns: I64) -> NDArray[np.uint64]:
    """64 random bits for each cell (row, column); SplitMix64 finalizer (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        value = rows.astype(np.uint64) * _Y + columns.astype(np.uint64) * _X + np.uint64(seed)
        value = (value ^ (value >> np.uint64(30))) * _M1
        value = (value ^ (value >> np.uint64(27))) * _M2
        return value ^ (value >> np.uint64(31))


def uniforms(seed: int, rows: I64, columns: I64, count: int) -> F32:
    """Random numbers of each cell. Shape (count, *rows.shape), float32, 0..1."""
    scale = np.float32(1 / 65536)
    out = np.empty((count, *rows.shape), np.float32)
    for first in range(0, count, 4):
        bits = hash_cells(seed + first * 0x51ED2701, rows, columns)
        for k in range(first, min(first + 4, count)):
            word = (bits >> np.uint64(16 * (k - first))) & np.uint64(0xFFFF)
            out[k] = (word.astype(np.float32) + 0.5) * scale
    return out


@lru_cache(maxsize=256)
def _spline(start_um: float, step_um: float, count: int, cell_um: float) -> tuple[F32, int]:
    """Cubic B-spline weights of `count` samples from `start_um` on, and the first lattice node with a weight.

    Returns:
        Shape (count, number of nodes), float32, read-only; the first node.
    """
    positions = (start_um + (np.arange(count) + 0.5) * step_um) / cell_um
    base = np.floor(positions).astype(np.int64)
    first, last = int(base[0]) - 1, int(base[-1]) + 3
    t = positions - base
    weights = np.stack(
        [(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3], axis=1
    )
    out = np.zeros((count, last - first), np.float32)
    np.put_along_axis(out, base[:, None] - first + np.arange(-1, 3), (weights / 6).astype(np.float32), axis=1)
    out.flags.writeable = False
    return out, first


# A cubic B-spline averages its lattice values; this factor restores a variance of about one.
_SPLINE_GAIN = 1.0 / 0.479


def noise(grid: Grid, cell_um: float, seed: int) -> F32:
    """Smooth random field of zero mean and unit variance with features of about `cell_um`.

    Returns:
        Shape (grid.height, grid.width), float32.
    """
    down, first_y = _spline(grid.y_um, grid.step_um, grid.height, cell_um)
    across, first_x = _spline(grid.x_um, grid.step_um, grid.width, cell_um)
    rows, columns = np.meshgrid(
        np.arange(first_y, first_y + down.shape[1]),
        np.arange(first_x, first_x + across.shape[1]),
        indexing="ij",
    )
    bits = uniforms(seed, rows, columns, 2)
    lattice = (bits[0] + bits[1] - 1.0) * np.float32(2.449 * _SPLINE_GAIN)
    values: F32 = product(product(down, lattice), across.T)
    return values


def fractal(grid: Grid, cell_um: float, seed: int, octaves: int, gain: float = 0.5) -> F32:
    """Sum of `octaves` noises of halving cell size, scaled to unit variance."""
    total = noise(grid, cell_um, seed)
    weight, power = 1.0, 1.0
    for octave in range(1, octaves):
        weight *= gain
        power += weight * weight
        total += np.float32(weight) * noise(grid, cell_um / 2**octave, seed + 7919 * octave)
    total /= np.float32(np.sqrt(power))
    return total


def scatter(
    bounds_um: tuple[float, float, float, float], spacing_um: float, jitter: float, seed: int, count: int = 4
) -> tuple[F32, F32, F32]:
    """Points of a jittered hexagonal lattice inside `bounds_um` = (top, left, bottom, right).

    Args:
        bounds_um: Area of the points, µm.
        spacing_um: Distance between neighbors before the jitter.
        jitter: Largest displacement as a fraction of the spacing.
        seed: Seed of the lattice.
        count: Number of further random numbers per point.

    Returns:
        y and x, shape (n,), float32, µm; random numbers, shape (count, n), float32, 0..1.
    """
    top, left, bottom, right = bounds_um
    pitch = spacing_um * 0.866
    rows = np.arange(int(np.floor(top / pitch)) - 1, int(np.ceil(bottom / pitch)) + 2)
    columns = np.arange(int(np.floor(left / spacing_um)) - 1, int(np.ceil(right / spacing_um)) + 2)
    row, column = (a.ravel() for a in np.meshgrid(rows, columns, indexing="ij"))
    random = uniforms(seed, row, column, count + 2)
    y = (row + (random[0] - 0.5) * (2 * jitter)) * pitch
    x = (column + 0.5 * (row & 1) + (random[1] - 0.5) * (2 * jitter)) * spacing_um
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    return y[inside].astype(np.float32), x[inside].astype(np.float32), random[2:, inside]


@lru_cache(maxsize=64)
def _frequencies(side: int) -> tuple[F32, F32]:
    f = np.fft.fftfreq(side).astype(np.float32)
    return f[:, None], f[None, : side // 2 + 1]


def periodic_texture(side: int, feature_yx_px: tuple[float, float], seed: int, waviness: float = 0.0) -> F32:
    """A tileable random texture of unit variance: white noise through a Gaussian low-pass.

    Args:
        side: Period, px.
        feature_yx_px: Width of the Gaussian down and across; unequal widths make fibers.
        seed: Seed of the texture.
        waviness: Fraction of a four times coarser version that is subtracted, which leaves a band of sizes.

    Returns:
        Shape (side, side), float32.
    """
    white = np.random.default_rng(seed).standard_normal((side, side), dtype=np.float32)
    transfer = _transfer(side, feature_yx_px, waviness)
    # In double precision with each axis rounded to single, as np.fft.rfft2 does for single precision. Columns with
    # zero transfer are omitted.
    rows = fft.rfft(white.astype(np.float64), axis=1, overwrite_x=True)[:, : transfer.shape[1]]
    rows = rows.astype(np.complex64).astype(np.complex128)
    waves = fft.fft(rows, axis=0, overwrite_x=True).astype(np.complex64)
    waves *= transfer
    out: F32 = fft.irfft(fft.ifft(waves, axis=0, overwrite_x=True), n=side, axis=1, overwrite_x=True)
    out /= out.std()
    return out


@lru_cache(maxsize=8)
def _transfer(side: int, feature_yx_px: tuple[float, float], waviness: float) -> F32:
    """Low-pass factor of each wave, shape (side, at most side // 2 + 1), up to the last column above 0."""
    fy, fx = _frequencies(side)

    def low_pass(scale: float) -> F32:
        sy, sx = feature_yx_px[0] * scale, feature_yx_px[1] * scale
        return np.exp(-2 * np.pi**2 * ((fy * sy) ** 2 + (fx * sx) ** 2)).astype(np.float32)

    transfer = low_pass(1.0) - waviness * low_pass(4.0)
    return np.ascontiguousarray(transfer[:, : int(np.flatnonzero(transfer.any(0))[-1]) + 1])


def wrap(texture: F32, top: int, left: int, height: int, width: int) -> F32:
    """The window of a periodic texture that starts at (top, left), any integers. Shape (height, width)."""
    side = texture.shape[0]
    out = np.empty((height, width), np.float32)
    for row in range(-(top % side), height, side):
        for column in range(-(left % side), width, side):
            block = out[max(row, 0) : row + side, max(column, 0) : column + side]
            block[:] = texture[max(-row, 0) :, max(-column, 0) :][: block.shape[0], : block.shape[1]]
    return out


def magnify(values: F32, factor: int) -> F32:
    """Upsamples a field by an integer factor, samples at the centers of their blocks."""
    if factor == 1:
        return values
    size = (values.shape[1] * factor, values.shape[0] * factor)
    return np.asarray(cv2.resize(values, size, interpolation=cv2.INTER_LINEAR), dtype=np.float32)


def ramp(values: F32, low: float, high: float) -> F32:
    """Linear step: 0 at `low`, 1 at `high`, clipped; `low` may lie above `high`. Float32."""
    out = values - np.float32(low)
    out *= np.float32(1 / (high - low))
    return np.clip(out, 0, 1, out=out)
