"""Renamed parts of the public API: the earlier name works with a warning for one minor version (docs/api.md)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def warn_renamed(old: str, new: str, removed_in: str, stacklevel: int = 3) -> None:
    """Warn that a name has changed.

    Args:
        old: The earlier name.
        new: The present name.
        removed_in: Version without the earlier name.
        stacklevel: Frames up to the user's line, as `warnings.warn` counts them.
    """
    text = f"{old} is now called {new}; version {removed_in} removes {old}"
    # Python shows a FutureWarning by default, a DeprecationWarning only in the user's own script.
    warnings.warn(text, FutureWarning, stacklevel=stacklevel)


def renamed_argument(old: str, new: str, removed_in: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator that takes an argument's earlier name, with a warning.

    Args:
        old: Earlier name of the argument.
        new: Its present name.
        removed_in: Version without the earlier name.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if old in kwargs:
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got both {new} and its earlier name {old}")
                warn_renamed(f"{function.__name__}({old}=...)", f"{new}=...", removed_in)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
