"""The error for problems that the user can fix; other errors keep their traceback."""

from __future__ import annotations


class InputError(ValueError):
    """A file, parameter or argument is unusable: one line "place: problem. Fix: action."."""

    @property
    def problem(self) -> str:
        """The line without its fix."""
        return str(self).partition(". Fix: ")[0]
