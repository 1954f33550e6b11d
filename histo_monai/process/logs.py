"""Logging to stderr: messages of this package, and of noisy libraries warnings alone."""

from __future__ import annotations

import logging
import sys

_NOISY = ("monai", "matplotlib", "PIL", "tifffile")


def log_to_stderr(level: int = logging.INFO) -> None:
    """Log messages of a level or above; where the root logger has a handler already, it keeps that and its level."""
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("ignite").setLevel(logging.CRITICAL)  # it logs a traceback of what is raised anyway
