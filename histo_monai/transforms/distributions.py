"""Distributions of augmentation parameters: one or more values per patch, from one random state, on the CPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from histo_monai.utils.errors import InputError

Range = tuple[float, float]

MAX_MAGNITUDE = 10


@dataclass(frozen=True)
class Source:
    """Source of random values for the operations of a batch.

    Attributes:
        shape: N samples, S patches of each.
        size_px: Side of the views.
        magnitudes: Magnitudes of the current operation, 1..10, shape (N, S); None for a policy without magnitudes.
    """

    random: np.random.RandomState
    shape: tuple[int, int]
    size_px: int
    magnitudes: NDArray | None = None

    def uniform(self, low: float, high: float, *axes: int) -> torch.Tensor:
        """Uniform random values, shape (N, S, *axes), float64."""
        return torch.from_numpy(self.random.uniform(low, high, (*self.shape, *axes)))


class Quantity(Protocol):
    """Distribution of one parameter of an operation."""

    @property
    def bounds(self) -> Range:
        """Smallest and largest possible value."""

    def sample(self, source: Source, *axes: int) -> torch.Tensor:
        """Random values, shape (N, S, *axes)."""


@dataclass(frozen=True)
class Uniform:
    """Uniform values from `low` to `high`, plus `shift`: a factor minus 1 is `Uniform(0.6, 1.4, shift=-1)`."""

    low: float
    high: float
    shift: float = 0.0

    @property
    def bounds(self) -> Range:
        """Smallest and largest possible value."""
        return self.low + self.shift, self.high + self.shift

    def sample(self, source: Source, *axes: int) -> torch.Tensor:
        """Random values, shape (N, S, *axes)."""
        return source.uniform(self.low, self.high, *axes) + self.shift


@dataclass(frozen=True)
class Ramp:
    """Deterministic value, linear in the magnitude: `start` at magnitude 0, exactly `end` at 10."""

    start: float
    end: float

    @property
    def bounds(self) -> Range:
        """Smallest and largest possible value."""
        return min(self.start, self.end), max(self.start, self.end)

    def at(self, magnitudes: ArrayLike) -> NDArray:
        """The value at magnitudes of any shape."""
        fraction = np.asarray(magnitudes) / MAX_MAGNITUDE
        return self.start * (1 - fraction) + self.end * fraction

    def sample(self, source: Source, *axes: int) -> torch.Tensor:
        """Values at the magnitudes, shape (N, S, *axes)."""
        return _at_magnitudes(self.at, source, axes)


@dataclass(frozen=True)
class SignedRamp(Ramp):
    """Value at the ramp's distance from `center`, with a random sign."""

    center: float = 0.0

    @property
    def bounds(self) -> Range:
        """Smallest and largest possible value."""
        reach = max(abs(self.start), abs(self.end))
        return self.center - reach, self.center + reach

    def sample(self, source: Source, *axes: int) -> torch.Tensor:
        """Random values, shape (N, S, *axes)."""
        side = self._side(source.random.uniform(size=(*source.shape, *axes)))
        return self.center + super().sample(source, *axes) * torch.from_numpy(side)

    def _side(self, uniform: NDArray) -> NDArray:
        return np.where(uniform < 0.5, -1.0, 1.0)


@dataclass(frozen=True)
class RampLimit(SignedRamp):
    """Uniform values within the ramp's distance from `center`; uses as many random values as `SignedRamp`."""

    def _side(self, uniform: NDArray) -> NDArray:
        return 2 * uniform - 1


@dataclass(frozen=True)
class OddUniform:
    """Random odd number from `smallest` to `largest`, int64; ValueError if one limit is even."""

    smallest: int
    largest: int

    def __post_init__(self) -> None:
        _check_odd(self.smallest, self.largest)

    @property
    def bounds(self) -> Range:
        """Smallest and largest possible value."""
        return self.smallest, self.largest

    def sample(self, source: Source, *axes: int) -> torch.Tensor:
        """Random values, shape (N, S, *axes)."""
        half = source.random.randint(self.smallest // 2, self.largest // 2 + 1, (*source.shape, *axes))
        return torch.from_numpy(2 * half + 1)


@dataclass(frozen=True)
class OddSteps:
    """Deterministic `mild` up to magnitude 5, `strong` above; odd, int64; ValueError if one is even."""

    mild: int
    strong: int

    def __post_init__(self) -> None:
        _check_odd(self.mild, self.strong)

    @property
    def bounds(self) -> Range:
        """Smallest and largest possible value."""
        return min(self.mild, self.strong), max(self.mild, self.strong)

    def at(self, magnitudes: ArrayLike) -> NDArray:
        """The value at magnitudes of any shape."""
        return np.where(np.asarray(magnitudes) / MAX_MAGNITUDE <= 0.5, self.mild, self.strong)

    def sample(self, source: Source, *axes: int) -> torch.Tensor:
        """Values at the magnitudes, shape (N, S, *axes)."""
        return _at_magnitudes(self.at, source, axes)


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raise InputError with the name unless the value lies in low..high."""
    if not low <= value <= high:
        raise InputError(f"{name}: got {value}. Fix: use {low} to {high}.")


def check_range(name: str, value: Range, low: float, high: float) -> None:
    """Raise InputError with the name unless two numbers ascend within low..high."""
    if not low <= value[0] <= value[1] <= high:
        raise InputError(f"{name}: got {value}. Fix: use two ascending numbers from {low} to {high}.")


def _check_odd(*kernels: int) -> None:
    if any(kernel % 2 == 0 for kernel in kernels):
        raise ValueError(f"blur_kernel: got {kernels}, expected two odd numbers")


def _at_magnitudes(at: Callable[[NDArray], NDArray], source: Source, axes: tuple[int, ...]) -> torch.Tensor:
    """Values at a source's magnitudes, constant along the axes, shape (N, S, *axes)."""
    if source.magnitudes is None:
        raise ValueError(
            "a ramp needs magnitudes, and this policy has none: list the operation with a Uniform"
        )
    values = torch.from_numpy(at(source.magnitudes)).reshape(*source.shape, *[1] * len(axes))
    return values.expand(*source.shape, *axes)
