"""The error for problems that the user can fix; other errors keep their traceback."""

from __future__ import annotations

import importlib


class InputError(ValueError):
    """A file, parameter or argument is unusable: one line "place: problem. Fix: action."."""

    @property
    def problem(self) -> str:
        """The line without its fix."""
        return str(self).partition(". Fix: ")[0]


def check_installed(packages: tuple[str, ...], extra: str) -> None:
    """Import packages that come with an extra of histo_monai.

    Raises:
        InputError: one is not installed.
    """
    for name in packages:
        try:
            importlib.import_module(name)
        except ImportError as error:
            fix = f"Fix: pip install './histo_monai[{extra}]'"
            raise InputError(f"{error.name}: not installed. {fix}") from None
