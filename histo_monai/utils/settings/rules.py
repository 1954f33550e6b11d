"""Types and ranges of params values, for annotations of sections."""

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
    """A list without repeated entries, with at least `at_least` entries."""

    at_least: int = 1

    def __str__(self) -> str:
        return (
            "a list with at least one entry and none twice" if self.at_least else "a list with no entry twice"
        )


@dataclass(frozen=True)
class OneOrSeveral(Unique):
    """One value, or a list of distinct values; a tuple after reading."""

    def __str__(self) -> str:
        return "one value, or a list with none twice"


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
    """The name of a plug-in in a registry, optionally of one whose attribute `with_` is not None."""

    registry: Registry
    with_: str = ""

    def __contains__(self, name: str) -> bool:
        if name not in self.registry:
            return False
        return not self.with_ or getattr(self.registry[name], self.with_) is not None

    def names(self) -> list[str]:
        """Valid names."""
        return [name for name in self.registry if name in self]

    def __str__(self) -> str:
        return f"one of {', '.join(self.names())}"


@dataclass(frozen=True)
class SectionsOf:
    """Settings of a registry's plug-ins, by name.

    Attributes:
        settings: Attribute of a plug-in with its settings dataclass; None: no section.
        each: One dataclass for every plug-in; `settings` then only selects the plug-ins with a section.
        beside: The sections are siblings of the other fields, not nested under the field's name.
    """

    registry: Registry
    settings: str = "Settings"
    each: type | None = None
    beside: bool = False

    def section(self, name: str) -> type | None:
        """Dataclass of a plug-in's section; None without one."""
        if name not in self.registry:
            return None
        own: type | None = self.registry.settings(name, self.settings)
        return None if own is None else self.each or own

    def names(self) -> list[str]:
        """Plug-ins with a section."""
        if self.settings == "Settings":  # which every part has: none needs to be imported
            return list(self.registry)
        return [name for name in self.registry if self.section(name) is not None]

    def __str__(self) -> str:
        return f"a section each for some of {', '.join(self.names())}"


@dataclass(frozen=True)
class ByName:
    """One value for all names, or a mapping of names to values.

    Attributes:
        hint: Annotation of the value; each field of a dataclass may be such a mapping.
        known: Valid names in order; a mapping may omit names of a registry.
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
    """A list of `count` entries."""

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
