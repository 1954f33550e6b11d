"""What a program says, on stderr: its own lines, and of libraries what went wrong."""

from __future__ import annotations

import logging
import sys

_NOISY = ("monai", "matplotlib", "PIL", "tifffile")


def log_to_stderr(level: int = logging.INFO) -> None:
    """Let this process say what is of a level or above; where it has been told how already, nothing changes."""
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("ignite").setLevel(logging.CRITICAL)  # it logs a traceback of what is raised anyway
