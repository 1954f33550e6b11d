"""User texts, escaped so that the target language reads them as text only.

Labels, ids, paths, licenses and authors come from tables and models that users share. Each function serves one
language. Writers that escape by themselves (JSON, csv, XML, jinja with autoescape, protobuf) need none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_MONAI = re.compile(r"^[$%@]|[%@](?=#|::)|#")
_MARKDOWN = re.compile(r"[\\`*~|\[\]]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<![^\W_])_+|_+(?![^\W_])")
_LONGEST_WORD = 40


def printable(text: str) -> str:
    """One line of text for logs, terminals and pictures; unprintable characters become `\\n`, `\\x1b` or `\\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def monai(value: Any) -> Any:
    """JSON values that MONAI's ConfigParser returns unchanged: it runs, replaces and looks up nothing in them.

    The parser runs texts that begin with `$`, reads `%` as a macro and `@` as a reference, and writes `::` for `#`. It
    knows no escape. Where it would interpret one of these characters, the text holds a Python escape, such as `\\x24`.
    """
    if isinstance(value, str):
        return _MONAI.sub(lambda match: f"\\x{ord(match[0]):02x}", value)
    if isinstance(value, dict):
        return {monai(key): monai(one) for key, one in value.items()}
    return [monai(one) for one in value] if isinstance(value, list | tuple) else value


def markdown(text: str) -> str:
    """One line of Markdown, or one table cell, that shows a text: no markup, no HTML, no link, no picture."""
    return _MARKDOWN.sub(
        lambda match: _HTML.get(match[0]) or re.sub("(.)", r"\\\1", match[0]), printable(text)
    )


_HTML = {"<": "&lt;", "&": "&amp;"}


def in_script(value: Any) -> str:
    """JSON for a `<script>` of HTML; it cannot end the script."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def file_words(labels: Sequence[str]) -> dict[str, str]:
    """Label -> a word for file names: letters, digits, `_` and `-`; unique even if case is ignored."""
    words: dict[str, str] = {}
    for label in labels:
        word = re.sub(r"[^\w-]+", "_", label).strip("_")[:_LONGEST_WORD] or "class"
        names = (word if number == 1 else f"{word}-{number}" for number in range(1, len(labels) + 2))
        taken = {name.casefold() for name in words.values()}
        words[label] = next(name for name in names if name.casefold() not in taken)
    return words


def figure(drawing: Any) -> None:
    """Switch off formulas in all texts of a matplotlib Figure: `$` is a character like others.

    Args:
        drawing: a finished `matplotlib.figure.Figure`.
    """
    for text in drawing.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        text.set_parse_math(False)
        text.set_text("\n".join(printable(line) for line in text.get_text().split("\n")))
