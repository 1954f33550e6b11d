"""Pages of docs/ by the part of the menu in which they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from documentation import hooks

RESEARCH = "Research"
"""Part of the menu whose pages hold measurements, and may be long."""


def menu(root: Path) -> list[dict[str, Any]]:
    """The parts of the site's menu, each with its pages."""
    return hooks.menu((root / "docs" / hooks.MENU).read_text(encoding="utf-8"))


def research_pages(root: Path) -> list[Path]:
    """Pages that hold measurements."""
    pages = [page for part in menu(root) for page in part.get(RESEARCH, [])]
    return [root / "docs" / path for page in pages for path in page.values()]


def user_pages(root: Path) -> list[Path]:
    research = research_pages(root)
    assert research
    return [path for path in sorted((root / "docs").glob("*.md")) if path not in research]
