"""A measured figure of a user page stands in a research page to which its section links, with date and commit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.documentation.pages import research_pages, user_pages

UNITS = "s|ms|seconds|minutes|hours|times|MB|GB|MiB|GiB"
NUMBER = r"\d[\d,]*(?:\.\d+)?|\.\d+"
FIGURE = re.compile(
    rf"(?<![\w./])(?:\.\d+|0\.\d+(?= \()|\d[\d,]*(?:\.\d+)?(?= %|(?:, {NUMBER})* (?:{UNITS})\b))",
    re.IGNORECASE,
)
LINK = re.compile(r"\]\((?:docs/)?([a-z_]+\.md)(?:#([^)]*))?\)")
NOT_MEASURED = {
    "README.md": {"8"},  # Disk that packages take, as pip states it.
    "audit.md": {"1"},  # Limit of a table, a constant.
    "datasets.md": {"700"},  # Published size.
    "own_slides.md": {"5"},  # Threshold of a warning.
    "paper.md": {"10", "13"},  # Fraction of labels in the paper; arithmetic on its epochs.
    "slide_features.md": {"90", "99"},  # Quantiles.
    "trust.md": {"60"},  # A time limit, a constant.
    "whole_slides.md": {"90"},  # Meaning of a rate of 0.1.
}
LEVEL = "95"
"""Of all intervals, %."""


def _without_code(page: str) -> str:
    return re.sub(r"`[^`\n]*`", "x", re.sub(r"(?ms)^```.*?^```", "", page))


def _sections(page: str) -> Iterator[str]:
    yield from re.split(r"(?m)^(?=##+ )", page)


def _anchor(section: str) -> str:
    """As Python-Markdown makes it of the heading."""
    heading = section.partition("\n")[0].lstrip("# ").lower()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip())


def _figures(section: str) -> set[str]:
    return set(FIGURE.findall(re.sub(r"\]\([^)]*\)", "]", section)))


def _is_stated(figure: str, text: str) -> bool:
    """Whether the text has the number, or one that rounds to it."""
    num_decimals = len(figure.partition(".")[2])
    numbers = (float(found.replace(",", "")) for found in re.findall(NUMBER, text))
    return any(
        abs(number - float(figure.replace(",", ""))) <= 0.5001 * 10**-num_decimals for number in numbers
    )


def _linked(section: str, sources: dict[str, str]) -> list[str]:
    """What the section links to: of the research log an entry, of other pages all."""
    linked = [(page, anchor) for page, anchor in LINK.findall(section) if page in sources]
    return [
        part
        for page, anchor in linked
        for part in (_sections(sources[page]) if page == "research_log.md" else [sources[page]])
        if page != "research_log.md" or _anchor(part) == anchor
    ]


def test_figures_are_found_in_text_and_tables() -> None:
    text = (
        "- .78 (.70 to .86), 0.5 px, 12.5 % of 1,200 patches in 37, 40 and 1.5 seconds; `.9` | .05 | v0.2.0"
    )
    assert _figures(_without_code(text)) == {".78", ".70", ".86", "12.5", "1.5", ".05"}
    assert _is_stated(".78", "0.776 or 12")
    assert not _is_stated(".78", "0.79, 78")
    assert _anchor("## 2026-11-28: the paper's way, again\ntext") == "2026-11-28-the-papers-way-again"


def test_figures_of_user_pages_stand_in_the_research_page_that_is_linked(root: Path) -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in research_pages(root)}
    num_figures = 0
    for path in [root / "README.md", *user_pages(root)]:
        for section in _sections(_without_code(path.read_text(encoding="utf-8"))):
            figures = _figures(section) - NOT_MEASURED.get(path.name, set()) - {LEVEL}
            texts = "\n".join(_linked(section, sources))
            missing = [figure for figure in figures if not _is_stated(figure, texts)]
            assert not missing, (
                f"{path.name}, {section.splitlines()[0]}: {sorted(missing)} in no linked entry"
            )
            num_figures += len(figures)
    assert num_figures > 50


def test_research_states_dates_and_commits(root: Path) -> None:
    for path in research_pages(root):
        page = path.read_text(encoding="utf-8")
        if path.name == "research_log.md":
            for entry in list(_sections(page))[1:]:
                assert re.match(r"## 20\d\d-\d\d-\d\d: .*\nCommit [0-9a-f]{8}\.\n", entry), (
                    entry.splitlines()[0]
                )
        else:
            assert re.search(r"20\d\d-\d\d-\d\d, commit [0-9a-f]{8}", page), path.name
