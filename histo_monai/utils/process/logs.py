"""Logging to stderr: messages of this package, and of noisy libraries warnings alone."""

from __future__ import annotations

import logging
import sys
import warnings

from histo_monai.utils.escapes import printable

_NOISY = ("monai", "matplotlib", "PIL", "tifffile")


class _OneLine(logging.Formatter):
    """Messages hold ids and labels of anybody: no control character of theirs reaches the terminal or begins a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback of an error as it is."""
        message = printable(record.getMessage())
        return super().format(logging.makeLogRecord({**vars(record), "msg": message, "args": None}))


def log_to_stderr(level: int = logging.INFO) -> None:
    """Log messages of a level or above; where the root logger has a handler already, it keeps that and its level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # A class in letters that the font lacks is drawn as boxes; the table beside the picture has the name.
    warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
    logging.getLogger("ignite").setLevel(logging.CRITICAL)  # it logs a traceback of what is raised anyway
