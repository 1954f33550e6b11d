"""What a page is made of: sections of blocks, rendered by one template."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from histo_monai.utils.escapes import in_script

TEMPLATE, STYLE, SCRIPT, VIEWER_SCRIPT = "page.html", "report.css", "report.js", "viewer.js"
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Lines:
    """Sentences, one below the other.

    Attributes:
        lines: plain text.
        look: "" | "lead" (the first thing to read) | "warning" | "missing" (a part of the run that is not there).
    """

    kind: ClassVar[str] = "lines"
    lines: Sequence[str]
    look: str = ""


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what is shown.
        value: what rows are sorted by, where it is a number.
        strong: the best of its column.
        slide: slide_id that a click shows in the viewer.
        long: a sentence, which takes several lines.
    """

    text: str
    value: float | None = None
    strong: bool = False
    slide: str = ""
    long: bool = False


@dataclass(frozen=True)
class Table:
    """Attributes: title; head, names of columns; rows of as many cells; note, below it; folded: opened by a click."""

    kind: ClassVar[str] = "table"
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Facts:
    """What is so, name by name."""

    kind: ClassVar[str] = "facts"
    title: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Chart:
    """A drawing in Vega-Lite; `words` say what it shows to those who cannot see it, and stand below it."""

    kind: ClassVar[str] = "chart"
    title: str
    spec: Mapping[str, Any]
    words: str
    wide: bool = False


@dataclass(frozen=True)
class Picture:
    """Attributes: path, relative to the page; alt; caption; pixels: small, shown enlarged as it is."""

    path: str
    alt: str
    caption: str = ""
    pixels: bool = False


@dataclass(frozen=True)
class Pictures:
    """Side by side, as many as fit."""

    kind: ClassVar[str] = "pictures"
    title: str
    pictures: Sequence[Picture]
    note: str = ""
    large: bool = False


@dataclass(frozen=True)
class Code:
    """Text as it is, opened by a click."""

    kind: ClassVar[str] = "code"
    title: str
    text: str


@dataclass(frozen=True)
class Viewer:
    """Whole slides to pan and zoom in, with maps over them.

    Attributes:
        slides: what `viewer.js` lists, see `viewer.SlideEntry`.
        models: names of the maps' models.
        classes: whose probabilities are mapped; empty where it is one, or a score.
        threshold: in percent, below which neither cells nor detections are shown at first.
    """

    kind: ClassVar[str] = "viewer"
    slides: Sequence[Mapping[str, Any]]
    models: Sequence[str]
    classes: Sequence[str]
    threshold: int


Block = Lines | Table | Facts | Chart | Pictures | Code | Viewer


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading; `id` is what links name."""

    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def missing(what: str, how: str) -> Lines:
    """A part of the run that is not there, and what brings it."""
    return Lines([f"{what}: {how}"], "missing")


def number(value: float, low: float = math.nan, high: float = math.nan, *, strong: bool = False) -> Cell:
    """ "0.778 (0.70 to 0.85)", sorted by its value; a dash where it is unknown."""
    if math.isnan(value):
        return Cell("—")
    ends = "" if math.isnan(low) else f" ({low:z.2f} to {high:z.2f})"
    return Cell(f"{value:z.3f}{ends}", value, strong)


def render(title: str, subtitle: str, sections: Sequence[Section], scripts: Sequence[str]) -> str:
    """The page.

    Args:
        sections: in their order.
        scripts: of libraries, relative to the page, in the order in which they are loaded.

    Returns:
        HTML that asks for nothing but files beside it.
    """
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marked"] = _marked
    charts = [block.spec for section in sections for block in section.blocks if isinstance(block, Chart)]
    slides = [block for section in sections for block in section.blocks if isinstance(block, Viewer)]
    return environment.get_template(TEMPLATE).render(
        title=title,
        subtitle=subtitle,
        sections=sections,
        scripts=scripts,
        charts=in_script(charts),
        slides=in_script([dict(entry) for viewer in slides for entry in viewer.slides]),
    )


def _marked(text: str) -> Markup:
    """`What stands in such marks` is shown as code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a mark alone
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts)
    )
