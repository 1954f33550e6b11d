"""The error that a user can mend; every other one is the code's, and keeps its traceback."""

from __future__ import annotations


class InputError(ValueError):
    """A file, a parameter or an argument cannot be used: one line with what is wrong, where, and how to mend it."""
