"""Pages of docs/ by the part of the menu in which they are."""

from __future__ import annotations

from pathlib import Path

from documentation import hooks

RESEARCH = "Research"
"""Part of the menu whose pages hold measurements, and may be long."""


def research_pages(root: Path) -> list[Path]:
    menu = hooks.menu((root / "docs" / hooks.MENU).read_text(encoding="utf-8"))
    return [
        root / "docs" / path for part in menu for page in part.get(RESEARCH, []) for path in page.values()
    ]


def user_pages(root: Path) -> list[Path]:
    research = research_pages(root)
    assert research
    return [path for path in sorted((root / "docs").glob("*.md")) if path not in research]
