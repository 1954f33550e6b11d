"""A slide's library of nuclei: each sprite is drawn once and stamped many times.

A sprite has two channels: hematoxylin optical density and coverage (how much of the background it hides).
Stamps are combined by their maximum, so that touching nuclei merge and the order of stamping does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from histo_monai.data.simulated.raster.lattice import F32, I64, derive, ramp

NUM_ANGLES = 16
SMALL_PX = 13  # Sprites up to this side are stamped together, which is faster.
_BATCH = 512


@dataclass(frozen=True)
class NucleusKind:
    """Appearance of one cell type's nuclei; lengths in µm, densities in optical density of hematoxylin.

    `long_um` and `wide_um` are the median axes, `spread` the log-normal spread of size between nuclei,
    `irregular` the roughness of the outline, `density` the mean chromatin, `clumps` the contrast of its texture,
    `rim` the membrane, `nucleoli` their usual number.
    """

    long_um: float
    wide_um: float
    spread: float
    irregular: float
    density: float
    clumps: float
    rim: float
    nucleoli: float
    grain_um: float = 0.7


KINDS: dict[str, NucleusKind] = {
    "lymphocyte": NucleusKind(6.9, 6.3, 0.09, 0.04, 1.15, 0.30, 0.15, 0.0),
    "blast": NucleusKind(9.6, 8.6, 0.12, 0.06, 0.66, 0.28, 0.30, 1.2),
    "histiocyte": NucleusKind(10.0, 6.2, 0.14, 0.10, 0.52, 0.20, 0.28, 0.5),
    "plasma": NucleusKind(7.0, 6.4, 0.08, 0.04, 1.0, 0.55, 0.25, 0.0, 1.0),
    "fibroblast": NucleusKind(14.0, 3.4, 0.24, 0.10, 0.92, 0.18, 0.10, 0.0),
    "muscle": NucleusKind(17.0, 3.9, 0.20, 0.06, 0.74, 0.18, 0.16, 0.0),
    "epithelium": NucleusKind(9.2, 5.8, 0.09, 0.05, 0.82, 0.22, 0.22, 0.3),
    "tumour": NucleusKind(12.2, 9.2, 0.18, 0.09, 0.72, 0.30, 0.34, 1.3, 0.8),
    # Not nuclei, but stamped in the same way: mucin and hemoglobin fill their coverage.
    "goblet": NucleusKind(9.0, 8.0, 0.16, 0.05, 0.1, 0.0, 0.0, 0.0),
    "erythrocyte": NucleusKind(6.4, 5.6, 0.08, 0.05, 0.1, 0.0, 0.0, 0.0),
    "fragment": NucleusKind(3.2, 2.6, 0.40, 0.14, 1.1, 0.10, 0.0, 0.0),
}
"""Name -> kind. The name seeds the sprites (`derive`), so another name changes the slide."""


def vary(kind: NucleusKind, *, size: float = 1.0, density: float = 1.0, spread: float = 1.0) -> NucleusKind:
    """The same cell type on another slide: relative size, chromatin density and pleomorphism."""
    return replace(
        kind,
        long_um=kind.long_um * size,
        wide_um=kind.wide_um * size,
        density=kind.density * density,
        spread=kind.spread * spread,
        irregular=kind.irregular * spread,
    )


class NucleusLibrary:
    """Sprites of one slide: for each kind `variants` individuals, each in `NUM_ANGLES` directions if elongated.

    A sprite is drawn at its first use. Its seed and look do not depend on other sprites.

    Args:
        kinds: Cell types by name.
        mpp: Resolution of the sprites, µm per px.
        seed: Seed of the individuals.
        variants: Number of individuals of each kind.
    """

    def __init__(self, kinds: dict[str, NucleusKind], mpp: float, seed: int, variants: int = 40) -> None:
        self.kinds, self.mpp = kinds, mpp
        self.angled: dict[str, bool] = {}
        self._seeds: dict[str, list[int]] = {}
        self._drawn: dict[str, dict[int, F32]] = {name: {} for name in kinds}
        for name, kind in kinds.items():
            rng = np.random.default_rng(derive(seed, name))
            self.angled[name] = kind.long_um > 1.25 * kind.wide_um
            count = max(12, variants // 4) * NUM_ANGLES if self.angled[name] else variants
            self._seeds[name] = rng.integers(2**62, size=count).tolist()

    def choose(self, name: str, random: F32, angle: F32 | None = None) -> list[F32]:
        """One sprite per point: `random` 0..1 selects the individual, `angle` (radians from +x) the direction."""
        count = len(self._seeds[name])
        if angle is None or not self.angled[name]:
            index = (random * count).astype(np.int64)
        else:
            step = np.rint(angle * (NUM_ANGLES / np.pi)).astype(np.int64) % NUM_ANGLES
            index = (random * (count // NUM_ANGLES)).astype(np.int64) * NUM_ANGLES + step
        order, drawn = index.tolist(), self._drawn[name]
        for i in set(order).difference(drawn):
            drawn[i] = self._draw(name, i)
        return [drawn[i] for i in order]

    def _draw(self, name: str, index: int) -> F32:
        angle = np.pi * (index % NUM_ANGLES) / NUM_ANGLES if self.angled[name] else None
        return draw_nucleus(self.kinds[name], self.mpp, self._seeds[name][index], angle)


def draw_nucleus(kind: NucleusKind, mpp: float, seed: int, angle: float | None) -> F32:
    """One nucleus. Shape (side, side, 2), float32: hematoxylin density (times coverage) and coverage 0..1."""
    rng = np.random.default_rng(seed)
    factor = max(2, int(np.ceil(mpp / 0.25)))
    step = mpp / factor
    size = float(np.exp(kind.spread * np.clip(rng.standard_normal(), -1.7, 2.2)))
    shape = float(np.exp(0.6 * kind.spread * rng.standard_normal()))
    half_long, half_wide = 0.5 * kind.long_um * size * shape, 0.5 * kind.wide_um * size / shape
    side = 2 * int(np.ceil((max(half_long, half_wide) * (1 + 2 * kind.irregular) + 0.5) / mpp)) + 1
    fine = side * factor
    axis = (np.arange(fine) + 0.5 - fine / 2 + rng.uniform(-0.5, 0.5) * factor) * step
    direction = rng.uniform(0, np.pi) if angle is None else angle + rng.normal(0, 0.08)
    dy, dx = axis[:, None], axis[None, :]
    u = dx * np.cos(direction) + dy * np.sin(direction)
    v = dy * np.cos(direction) - dx * np.sin(direction)
    v = v + u * u * (rng.normal(0, 0.35) * kind.irregular / max(half_long, 1.0))
    waves = [(k, kind.irregular * rng.normal() / k, rng.uniform(0, 2 * np.pi)) for k in (2, 3, 4, 5)]
    shortest = min(half_long, half_wide)
    long, wide = u / half_long, v / half_wide
    near = _within(long, wide, waves, 1 + 0.3 / shortest)
    u, v, long, wide = (a.ravel()[near] for a in (u, v, long, wide))
    theta = np.arctan2(wide, long)
    outline = 1 + sum(height * np.cos(k * theta + phase) for k, height, phase in waves)
    radius = np.sqrt(long**2 + wide**2) / outline
    depth = ((1 - radius) * shortest).astype(np.float32)  # µm inside the outline, roughly
    cover = ramp(depth, -0.3, 0.3)
    chromatin = _blobs(rng, fine, kind.grain_um / step).ravel()[near]
    density = kind.density * float(np.exp(0.14 * rng.standard_normal())) * (1 + kind.clumps * chromatin)
    density += kind.rim * np.exp(-(((depth - 0.25) / 0.35) ** 2))
    for _ in range(rng.poisson(kind.nucleoli)):
        at = rng.uniform(-0.45, 0.45, 2)
        spot = ((u - at[0] * half_long) ** 2 + (v - at[1] * half_wide) ** 2) / rng.uniform(0.5, 0.9) ** 2
        density += 0.55 * np.exp(-spot)
    both = np.zeros((fine * fine, 2), np.float32)
    both[near, 0] = np.clip(density, 0.08, None) * cover
    both[near, 1] = cover
    square = both.reshape(fine, fine, 2)
    return np.ascontiguousarray(cv2.resize(square, (side, side), interpolation=cv2.INTER_AREA))


def _within(
    long: NDArray[np.float64], wide: NDArray[np.float64], waves: list[tuple[int, float, float]], reach: float
) -> NDArray[np.int64]:
    """Flat indices of the samples within `reach` radii of any possible outline; all others are empty."""
    highest = sum(abs(height) for _, height, _ in waves)
    if highest >= 1:  # an outline through its own center
        return np.arange(long.size)
    return np.flatnonzero(long * long + wide * wide < (1.001 * reach * (1 + highest)) ** 2)


def _blobs(rng: np.random.Generator, side: int, sigma_px: float) -> F32:
    blurred = cv2.GaussianBlur(
        rng.standard_normal((side, side)).astype(np.float32), (0, 0), max(sigma_px, 0.6)
    )
    return np.asarray(blurred / (blurred.std() + 1e-6), dtype=np.float32)


def stamp(target: F32, sprites: list[F32], y_px: F32, x_px: F32) -> None:
    """Combine sprites with `target` (h, w, 2) by maximum, centered at the given pixels, clipped at the edge."""
    height, width = target.shape[:2]
    side = np.fromiter(map(len, sprites), np.int64, len(sprites))
    top, left = (np.floor(at).astype(np.int64) - (side >> 1) for at in (y_px, x_px))
    whole = (top >= 0) & (left >= 0) & (top + side <= height) & (left + side <= width)
    touching = (top + side > 0) & (left + side > 0) & (top < height) & (left < width)
    together = whole & (side <= SMALL_PX) & target.flags.c_contiguous
    for size in set(side[together].tolist()):
        members = np.flatnonzero(together & (side == size))
        _stamp_whole(target, [sprites[i] for i in members.tolist()], top[members], left[members])
    maximum = np.maximum
    others = np.flatnonzero(touching & ~together)
    for i, row, column in zip(others.tolist(), top[others].tolist(), left[others].tolist(), strict=True):
        sprite = sprites[i]
        view = target[max(row, 0) : row + len(sprite), max(column, 0) : column + len(sprite)]
        cut = sprite[max(-row, 0) :, max(-column, 0) :][: view.shape[0], : view.shape[1]]
        maximum(view, cut, out=view)


def _stamp_whole(target: F32, sprites: list[F32], top: I64, left: I64) -> None:
    """Stamp a batch of small sprites of one size that lie inside the target."""
    side, width = len(sprites[0]), target.shape[1]
    flat = target.reshape(-1)
    within = (2 * width * np.arange(side)[:, None] + np.arange(2 * side)).ravel()
    start = 2 * (top * width + left)
    for first in range(0, len(sprites), _BATCH):
        values = np.concatenate(sprites[first : first + _BATCH]).reshape(-1)
        np.maximum.at(flat, (start[first : first + _BATCH, None] + within).ravel(), values)
