"""Log to stderr: this package's messages, and only warnings of noisy libraries."""

from __future__ import annotations

import logging
import sys
import warnings

from histo_monai.utils.escapes import printable

_NOISY = ("highdicom", "monai", "matplotlib", "PIL", "tifffile")


class _OneLine(logging.Formatter):
    """Formatter that escapes control characters, because messages quote ids and labels of users."""

    def format(self, record: logging.LogRecord) -> str:
        """The escaped message, followed by an unchanged traceback."""
        message = printable(record.getMessage())
        return super().format(logging.makeLogRecord({**vars(record), "msg": message, "args": None}))


def log_to_stderr(level: int = logging.INFO) -> None:
    """Log messages from a level on; an existing handler of the root logger stays unchanged."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    # Letters that the font lacks appear as boxes; the table beside the picture has the name.
    warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font", UserWarning)
    # torch 2.14 renames these two; the oldest torch that is allowed lacks the new names.
    old_names = r"(torch\.distributed\.nn|`broadcast_buffers`).* is deprecated"
    warnings.filterwarnings("ignore", old_names, FutureWarning)
    logging.getLogger("ignite").setLevel(
        logging.CRITICAL
    )  # It logs tracebacks of errors that are raised anyway.
