"""What a value of params may be: kinds and ranges, for the annotations of the sections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from histo_monai.utils.settings.registry import Registry


@dataclass(frozen=True)
class Range:
    """Closed range of a number; `exclusive_low` opens the lower end. Units stand in the field's name."""

    low: float
    high: float = float("inf")
    exclusive_low: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.exclusive_low else value >= self.low
        return above and value <= self.high and value < math.inf  # NaN fails

    def __str__(self) -> str:
        left = "(" if self.exclusive_low else "["
        right = ")" if self.high == float("inf") else "]"
        return f"{left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)
class Unique:
    """A list without an entry twice; with `at_least` so many."""

    at_least: int = 1

    def __str__(self) -> str:
        return (
            "a list with at least one entry and none twice" if self.at_least else "a list with no entry twice"
        )


@dataclass(frozen=True)
class Ascending:
    """Numbers, each larger than the one before; `length` of them, or any number from `at_least`."""

    length: int | None = None
    at_least: int = 0

    def __str__(self) -> str:
        count = {None: "one number or more" if self.at_least else "numbers", 3: "three numbers"}[self.length]
        return f"{count}, each larger than the one before"


@dataclass(frozen=True)
class NamedIn:
    """The name of a part in a registry; of one whose attribute `with_` is not None, where that is given."""

    registry: Registry
    with_: str = ""

    def __contains__(self, name: str) -> bool:
        if name not in self.registry:
            return False
        return not self.with_ or getattr(self.registry[name], self.with_) is not None

    def names(self) -> list[str]:
        """Parts that may be named."""
        return [name for name in self.registry if name in self]

    def __str__(self) -> str:
        return f"one of {', '.join(self.names())}"


@dataclass(frozen=True)
class SectionsOf:
    """Settings of parts in a registry, by name: each is what the part's attribute `settings` says.

    Attributes:
        registry: of the parts.
        settings: attribute of a part that holds a frozen dataclass; None there: it has no section of this kind.
        each: the dataclass, where it is the same for every part; `settings` then says only which have a section.
        beside: the sections stand beside the other fields of their own section, not in one of their name.
    """

    registry: Registry
    settings: str = "Settings"
    each: type | None = None
    beside: bool = False

    def section(self, name: str) -> type | None:
        """The dataclass of a part's section; None where no part of the name has one."""
        if name not in self.registry:
            return None
        own: type | None = self.registry.settings(name, self.settings)
        return None if own is None else self.each or own

    def names(self) -> list[str]:
        """Parts that have a section."""
        if self.settings == "Settings":  # which every part has: none needs to be imported
            return list(self.registry)
        return [name for name in self.registry if self.section(name) is not None]

    def __str__(self) -> str:
        return f"a section each for some of {', '.join(self.names())}"


@dataclass(frozen=True)
class ByName:
    """One value for all names, or a mapping of names to values.

    Attributes:
        hint: annotation of the value; for a dataclass each of its fields may be such a mapping.
        known: names that a mapping may have, in order; of parts in a registry a mapping may leave some out.
    """

    hint: Any
    known: tuple[str, ...] | NamedIn

    def names(self) -> list[str]:
        """Names that a mapping may have."""
        return self.known.names() if isinstance(self.known, NamedIn) else list(self.known)

    def needed(self) -> list[str]:
        """Names that a mapping must have."""
        return [] if isinstance(self.known, NamedIn) else list(self.known)

    def __str__(self) -> str:
        return "a section"


@dataclass(frozen=True)
class NumberOf:
    """A list of so many entries."""

    count: int

    def __str__(self) -> str:
        return f"a list of {self.count}"


_MOST = 10**12
Count = Annotated[int, Range(1, _MOST)]
CountOrZero = Annotated[int, Range(0, _MOST)]
Seed = Annotated[int, Range(0, 2**32 - 1)]
Fraction = Annotated[float, Range(0.0, 1.0)]
Positive = Annotated[float, Range(0.0, exclusive_low=True)]
MicronsPerPixel = Annotated[float, Range(0.05, 64.0)]
SlideMpp = Annotated[float, Range(0.05, 20.0)]
"""Range of a full resolution's µm/px: `slides.resolution.PLAUSIBLE_MPP`."""

Mpps = Annotated[tuple[MicronsPerPixel, ...], Ascending(3)]
Seeds = Annotated[tuple[Seed, ...], Unique()]
PositiveNumbers = Annotated[tuple[Positive, ...], Ascending(at_least=1)]
Milestones = Annotated[tuple[Annotated[int, Range(1)], ...], Ascending()]
