"""The site of docs/: built without a warning, complete, and of nobody else's."""

from __future__ import annotations

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.browsers import chromium
from tests.folders import NewFolder

pytestmark = pytest.mark.slow

WIDTHS_PX = (360, 1400)
LOOKED_AT = ("index", "start", "params", "files", "students", "api/evaluation.metrics")


@pytest.fixture(scope="module")
def site(root: Path, module_folder: NewFolder) -> Path:
    """Built from the checkout; a warning, as of a link or an anchor that leads nowhere, is an error."""
    folder = module_folder("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


class _Asked(HTMLParser):
    """What a page has a browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}.get(tag)
        self.urls += [value for name, value in attrs if name == of and value]


def test_the_site_is_built_without_a_warning(site: Path, root: Path) -> None:
    pages = {path.stem for path in (root / "docs").glob("*.md")} - {"README"} | {"index", "CONTRIBUTING"}
    assert pages <= {path.stem for path in site.glob("*.html")}
    assert (site / "search/search_index.json").stat().st_size > 100_000


def test_no_page_asks_another_host_for_anything(site: Path) -> None:
    for path in site.rglob("*.html"):
        asked = _Asked()
        asked.feed(path.read_text(encoding="utf-8"))
        assert not [url for url in asked.urls if re.match(r"(https?:)?//", url)], path
    for path in site.rglob("*.css"):
        assert not re.findall(
            r"(?:url\(|@import )[\"']?(?:https?:)?//[^)]*", path.read_text(encoding="utf-8")
        ), path


def test_the_api_has_the_public_names_with_their_docstrings(site: Path) -> None:
    for page, name in (
        ("slides", "histo_monai.slides.open_slide"),
        ("evaluation.metrics", "histo_monai.evaluation.metrics.delong_test"),
        ("models", "histo_monai.models.task_model.load_encoder"),
        ("parts", "histo_monai.pretraining.protocol.Pretext"),
    ):
        html = (site / f"api/{page}.html").read_text(encoding="utf-8")
        assert f'id="{name}"' in html


def test_lists_of_the_pages_are_lists(site: Path) -> None:
    for path in site.glob("*.html"):
        text = re.sub(r"(?s)<pre.*?</pre>", "", path.read_text(encoding="utf-8"))
        assert not re.findall(r"<p>[^<]*\n[-*] ", text), path.name


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, to this machine alone."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_browser_shows_pages_at_any_width_and_finds_words(address: str) -> None:
    with chromium() as browser:
        page = browser.new_page()
        asked: list[str] = []
        problems: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: problems.append(str(error)))
        for width in WIDTHS_PX:
            page.set_viewport_size({"width": width, "height": 900})
            for name in LOOKED_AT:
                page.goto(f"{address}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        page.goto(
            f"{address}/index.html?q=obuchowski"
        )  # typed before the scripts are there, a word is not looked for
        page.locator(".md-search-result__link[href*='comparison.html']").first.wait_for()
    assert all(url.startswith((address, "data:", "blob:")) for url in asked)
    assert not problems
