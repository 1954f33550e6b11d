"""The error for problems that the user can fix; other errors keep their traceback."""

from __future__ import annotations


class InputError(ValueError):
    """A file, parameter or argument is unusable: one line with place, problem and fix."""
