"""Hide the warnings that GPU libraries print on machines without a GPU."""

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
    """Redirect output of C libraries from the terminal to the log at DEBUG."""
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
