"""Blocks and sections of a page, rendered by one template."""

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
    """Sentences, one per line.

    Attributes:
        lines: texts.
        look: "" | "lead" (main message) | "warning" | "missing" (a result does not exist).
    """

    kind: ClassVar[str] = "lines"
    lines: Sequence[str]
    look: str = ""


@dataclass(frozen=True)
class Cell:
    """Table cell.

    Attributes:
        text: shown text.
        value: sort key of numbers.
        strong: best of its column.
        slide: slide_id that a click opens in the viewer.
        long: text of several lines.
    """

    text: str
    value: float | None = None
    strong: bool = False
    slide: str = ""
    long: bool = False


@dataclass(frozen=True)
class Table:
    """Table: title; head, column names; rows of cells; note below; folded, opened by a click."""

    kind: ClassVar[str] = "table"
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    kind: ClassVar[str] = "facts"
    title: str
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Chart:
    """Vega-Lite chart; `words`, below it, describe it also for screen readers."""

    kind: ClassVar[str] = "chart"
    title: str
    spec: Mapping[str, Any]
    words: str
    wide: bool = False


@dataclass(frozen=True)
class Picture:
    """Picture: path, relative to the page; alt; caption; pixels: small, enlarged without smoothing."""

    path: str
    alt: str
    caption: str = ""
    pixels: bool = False


@dataclass(frozen=True)
class Pictures:
    """Pictures side by side."""

    kind: ClassVar[str] = "pictures"
    title: str
    pictures: Sequence[Picture]
    note: str = ""
    large: bool = False


@dataclass(frozen=True)
class Code:
    """Preformatted text, opened by a click."""

    kind: ClassVar[str] = "code"
    title: str
    text: str


@dataclass(frozen=True)
class Viewer:
    """Viewer of whole slides with maps.

    Attributes:
        slides: list of `viewer.js` (`viewer.SlideEntry`).
        models: names of the maps' models.
        classes: mapped classes, if several.
        threshold: initial minimum of shown cells and detections, percent.
    """

    kind: ClassVar[str] = "viewer"
    slides: Sequence[Mapping[str, Any]]
    models: Sequence[str]
    classes: Sequence[str]
    threshold: int


Block = Lines | Table | Facts | Chart | Pictures | Code | Viewer


@dataclass(frozen=True)
class Section:
    """Part of a page with a heading; `id` is its link target."""

    id: str
    title: str
    blocks: Sequence[Block] = field(default_factory=tuple)


def missing(what: str, how: str) -> Lines:
    """Line on a missing result and how to get it."""
    return Lines([f"{what}: {how}"], "missing")


def number(value: float, low: float = math.nan, high: float = math.nan, *, strong: bool = False) -> Cell:
    """Sortable cell "0.778 (0.70 to 0.85)"; a dash if unknown."""
    if math.isnan(value):
        return Cell("—")
    ends = "" if math.isnan(low) else f" ({low:z.2f} to {high:z.2f})"
    return Cell(f"{value:z.3f}{ends}", value, strong)


def render(title: str, subtitle: str, sections: Sequence[Section], scripts: Sequence[str]) -> str:
    """HTML page that loads only files beside it.

    Args:
        sections: in order.
        scripts: of libraries, relative to the page, in loading order.
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
    """HTML with text in backticks as code."""
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # an unpaired backtick
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if i % 2 else part for i, part in enumerate(parts)
    )
