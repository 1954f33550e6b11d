"""A table of the user's that cases spoil."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.project import with_cell, write_text


@dataclass(frozen=True)
class Victim:
    """A csv; what is made here spoils it when it is called.

    Attributes:
        path: Of the csv.
        row: That is spoiled where no other is named; the header is row 1.
    """

    path: Path
    row: int

    def cell(self, column: str, value: str, row: int | None = None) -> Callable[[], None]:
        """Another value in one cell."""
        return with_cell(self.path, self.row if row is None else row, column, value)

    def text(self, change: Callable[[str], str | bytes]) -> Callable[[], None]:
        """Another text."""
        return lambda: write_text(self.path, change(self.path.read_text()))

    def instead(self, make: Callable[[], object]) -> Callable[[], None]:
        """Something else in its place."""

        def change() -> None:
            self.path.unlink()
            make()

        return change
