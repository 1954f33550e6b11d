"""Sections whose values may differ by name: by label kind or dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Section = TypeVar("Section")


def value_for(value: Any, name: str) -> Any:
    """The entry of a mapping for a name, or the value itself."""
    return value[name] if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class SectionByName(Generic[Section]):
    """A section for each name.

    Attributes:
        section: dataclass of the section.
        values: field -> value for all names, or a mapping of names to values.
    """

    section: type[Section]
    values: Mapping[str, Any]

    def of(self, name: str) -> Section:
        """The section of a name.

        Raises:
            KeyError: a mapping has no value for the name.
        """
        return self.section(**{key: value_for(value, name) for key, value in self.values.items()})

    def without(self, name: str) -> list[str]:
        """Fields whose mapping has no value for the name."""
        return [key for key, value in self.values.items() if isinstance(value, Mapping) and name not in value]
