"""Pages from disk in a real browser: what they ask for, what they complain of, and whether their charts are drawn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from documentation.recordings import BROWSERS, installed_browser, launched

DRAWN = """() => [...document.querySelectorAll("[data-chart]")].every(
  (place) => place.classList.contains("drawn") && place.querySelector("svg .role-mark > *"))"""
"""Whether every chart has marks."""


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of this machine; where there is none the test is skipped, or fails in CI."""
    found = installed_browser()
    if found is None and not os.environ.get("CI"):
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    assert found
    with sync_playwright() as browsers:
        opened = launched(browsers.chromium, found)
        yield opened
        opened.close()


@contextmanager
def watched(browser: Any, page: Path, *, width: int = 1400, scheme: Any = "light") -> Iterator[Page]:
    """A page that lies on disk, loaded and drawn; afterwards: it asked for nothing off the disk, complained of nothing.

    Args:
        browser: see `chromium`.
        page: its HTML.
        width: of the window, px.
        scheme: "light" | "dark".
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    opened = context.new_page()
    problems: list[str] = []
    asked: list[str] = []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto(page.as_uri())
    opened.wait_for_function(DRAWN)
    yield opened
    assert not problems, problems  # before it is closed: what is still loading then fails
    assert asked
    assert {url.split(":", 1)[0] for url in asked} <= {"file", "data", "blob"}
    context.close()
