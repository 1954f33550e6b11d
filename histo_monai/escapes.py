"""Texts of users, written so that the language they are written into reads them as text and as nothing else.

Labels, ids, paths, licenses and authors come from tables and models of anybody. Each function is for one language.
What has a parser that escapes by itself (JSON, csv, XML, jinja with autoescape, protobuf) needs none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_MONAI = re.compile(r"^[$%@]|[%@](?=#|::)|#")
_MARKDOWN = re.compile(r"[\\`*|\[\]]|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_LONGEST_WORD = 40


def printable(text: str) -> str:
    """A text in one line for logs, terminals and pictures: what cannot be printed as `\\n`, `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def monai(value: Any) -> Any:
    """JSON values that MONAI's ConfigParser gives back as they are: it runs, replaces and looks up nothing in them.

    The parser runs texts that begin with `$`, reads `%` as a macro and `@` as a reference, and writes `::` for `#`. It
    knows no escape, so that where these signs mean something they become `\\x24`, as in Python's texts.
    """
    if isinstance(value, str):
        return _MONAI.sub(lambda match: f"\\x{ord(match[0]):02x}", value)
    if isinstance(value, dict):
        return {monai(key): monai(one) for key, one in value.items()}
    return [monai(one) for one in value] if isinstance(value, list | tuple) else value


def markdown(text: str) -> str:
    """A text in one line of Markdown, or in a cell of its tables: no markup, no HTML, no link, no picture."""
    return _MARKDOWN.sub(lambda match: _MARKUP.get(match[0], f"\\{match[0]}"), printable(text))


_MARKUP = {"<": "&lt;", "&": "&amp;"}


def in_script(value: Any) -> str:
    """JSON for a `<script>` of HTML, which it cannot end."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def file_words(labels: Sequence[str]) -> dict[str, str]:
    """Label -> a word for names of files: letters, digits, `_` and `-`, no two alike where case is ignored."""
    words: dict[str, str] = {}
    for label in labels:
        word = re.sub(r"[^\w-]+", "_", label).strip("_")[:_LONGEST_WORD] or "class"
        names = (word if number == 1 else f"{word}-{number}" for number in range(1, len(labels) + 2))
        taken = {name.casefold() for name in words.values()}
        words[label] = next(name for name in names if name.casefold() not in taken)
    return words


def figure(drawing: Any) -> None:
    """Let all texts of a Figure of matplotlib be drawn letter by letter: `$` begins no formula.

    Args:
        drawing: a `matplotlib.figure.Figure`, with all that is drawn on it.
    """
    for text in drawing.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        text.set_parse_math(False)
        text.set_text("\n".join(printable(line) for line in text.get_text().split("\n")))
