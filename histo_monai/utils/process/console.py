"""Text on a console of any encoding: characters that it cannot show become escapes, not errors."""

from __future__ import annotations

import io
import sys


def escape_unencodable() -> None:
    r"""Let stdout and stderr write "\xb5m" where their encoding (ASCII, GBK, Shift-JIS, ...) has no "µ".

    Streams that are not files, such as those of notebooks, take any text as they are.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
