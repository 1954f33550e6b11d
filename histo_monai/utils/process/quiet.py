"""GPU libraries print warnings where there is no GPU; a user's terminal is no place for them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def quiet_library() -> Iterator[None]:
    """Keep what C libraries print away from the terminal and pass it to the log at DEBUG instead."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    saved = [(number, os.dup(number)) for number in (1, 2)]
    with tempfile.TemporaryFile() as sink:
        try:
            for number, _ in saved:
                os.dup2(sink.fileno(), number)
            yield
        finally:
            for number, copy in saved:
                os.dup2(copy, number)
                os.close(copy)
            sink.seek(0)
            for line in sink.read().decode("utf-8", "replace").splitlines():
                logger.debug("%s", line)
