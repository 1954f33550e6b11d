"""Quantities that operations draw: one number or more for each patch, all from one random state, on the CPU."""

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
    """Where the operations of a batch draw from.

    Attributes:
        random: Source of randomness.
        shape: N samples, S patches of each.
        size_px: Side of the views.
        magnitudes: Of the operation that draws, 1..10, shape (N, S); None for a policy without magnitudes.
    """

    random: np.random.RandomState
    shape: tuple[int, int]
    size_px: int
    magnitudes: NDArray | None = None

    def uniform(self, low: float, high: float, *axes: int) -> torch.Tensor:
        """Shape (N, S, *axes), float64."""
        return torch.from_numpy(self.random.uniform(low, high, (*self.shape, *axes)))


class Quantity(Protocol):
    """How one parameter of an operation is drawn."""

    @property
    def bounds(self) -> Range:
        """Smallest and largest value that can be drawn."""

    def draw(self, source: Source, *axes: int) -> torch.Tensor:
        """Shape (N, S, *axes)."""


@dataclass(frozen=True)
class Uniform:
    """Uniform from `low` to `high`, and `shift` is added: a factor less 1 is `Uniform(0.6, 1.4, shift=-1)`."""

    low: float
    high: float
    shift: float = 0.0

    @property
    def bounds(self) -> Range:
        """See `Quantity.bounds`."""
        return self.low + self.shift, self.high + self.shift

    def draw(self, source: Source, *axes: int) -> torch.Tensor:
        """See `Quantity.draw`."""
        return source.uniform(self.low, self.high, *axes) + self.shift


@dataclass(frozen=True)
class Ramp:
    """Linear in the magnitude: `start` where magnitude 0 would lie, exactly `end` at 10. Nothing is random."""

    start: float
    end: float

    @property
    def bounds(self) -> Range:
        """See `Quantity.bounds`."""
        return min(self.start, self.end), max(self.start, self.end)

    def at(self, magnitudes: ArrayLike) -> NDArray:
        """The value at magnitudes of any shape."""
        share = np.asarray(magnitudes) / MAX_MAGNITUDE
        return self.start * (1 - share) + self.end * share

    def draw(self, source: Source, *axes: int) -> torch.Tensor:
        """See `Quantity.draw`."""
        return _at_magnitudes(self.at, source, axes)


@dataclass(frozen=True)
class SignedRamp(Ramp):
    """At the distance of the ramp from `center`, on either side of it: magnitudes are values, signs are random."""

    center: float = 0.0

    @property
    def bounds(self) -> Range:
        """See `Quantity.bounds`."""
        reach = max(abs(self.start), abs(self.end))
        return self.center - reach, self.center + reach

    def draw(self, source: Source, *axes: int) -> torch.Tensor:
        """See `Quantity.draw`."""
        side = self._side(source.random.uniform(size=(*source.shape, *axes)))
        return self.center + super().draw(source, *axes) * torch.from_numpy(side)

    def _side(self, uniform: NDArray) -> NDArray:
        return np.where(uniform < 0.5, -1.0, 1.0)


@dataclass(frozen=True)
class RampLimit(SignedRamp):
    """Uniform within the distance of the ramp from `center`: magnitudes are limits. As many draws as `SignedRamp`."""

    def _side(self, uniform: NDArray) -> NDArray:
        return 2 * uniform - 1


@dataclass(frozen=True)
class OddUniform:
    """One of the odd numbers from `smallest` to `largest`, which are odd; int64.

    Raises:
        ValueError: One of them is even.
    """

    smallest: int
    largest: int

    def __post_init__(self) -> None:
        _check_odd(self.smallest, self.largest)

    @property
    def bounds(self) -> Range:
        """See `Quantity.bounds`."""
        return self.smallest, self.largest

    def draw(self, source: Source, *axes: int) -> torch.Tensor:
        """See `Quantity.draw`."""
        half = source.random.randint(self.smallest // 2, self.largest // 2 + 1, (*source.shape, *axes))
        return torch.from_numpy(2 * half + 1)


@dataclass(frozen=True)
class OddSteps:
    """`mild` up to magnitude 5, `strong` above; odd, int64. Nothing is random.

    Raises:
        ValueError: One of them is even.
    """

    mild: int
    strong: int

    def __post_init__(self) -> None:
        _check_odd(self.mild, self.strong)

    @property
    def bounds(self) -> Range:
        """See `Quantity.bounds`."""
        return min(self.mild, self.strong), max(self.mild, self.strong)

    def at(self, magnitudes: ArrayLike) -> NDArray:
        """The value at magnitudes of any shape."""
        return np.where(np.asarray(magnitudes) / MAX_MAGNITUDE <= 0.5, self.mild, self.strong)

    def draw(self, source: Source, *axes: int) -> torch.Tensor:
        """See `Quantity.draw`."""
        return _at_magnitudes(self.at, source, axes)


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raises InputError, with the name, unless the value lies in low..high."""
    if not low <= value <= high:
        raise InputError(f"{name}: {low} to {high} expected, got {value}")


def check_range(name: str, value: Range, low: float, high: float) -> None:
    """Raises InputError, with the name, unless the two ends ascend within low..high."""
    if not low <= value[0] <= value[1] <= high:
        raise InputError(f"{name}: two ascending numbers from {low} to {high} expected, got {value}")


def _check_odd(*kernels: int) -> None:
    if any(kernel % 2 == 0 for kernel in kernels):
        raise ValueError(f"blur_kernel: two odd numbers expected, got {kernels}")


def _at_magnitudes(at: Callable[[NDArray], NDArray], source: Source, axes: tuple[int, ...]) -> torch.Tensor:
    """The values at the magnitudes of a source, the same along the axes. Shape (N, S, *axes)."""
    if source.magnitudes is None:
        raise ValueError(
            "a ramp needs magnitudes, and this policy draws none: list the operation with a Uniform"
        )
    values = torch.from_numpy(at(source.magnitudes)).reshape(*source.shape, *[1] * len(axes))
    return values.expand(*source.shape, *axes)
