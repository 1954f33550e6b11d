"""Two animated pictures of pages in a browser, 20 seconds each: the report's viewer and the labeling page.

    python -m documentation.recordings viewer data/report/index.html docs/images/viewer.webp --slide test_007
    python -m documentation.recordings labels data/suggestions/first-0e05f0.html docs/images/label.webp --keys 1212x3

The report has slides with lesions. The other page is of `histo-monai label FOLDER --classes ...`; the keys answer its
first squares. Each needs Chromium.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, BrowserType, Page, ViewportSize, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE: ViewportSize = {"width": 1000, "height": 640}
SHOWN_WIDTH = 720
"""Width of the pictures, px."""
FRAME_MS = 250
QUALITY = 25
MAX_BYTES = 2**20
"""No file of the repository is larger."""
CENTER = """() => {
  const box = document.getElementById("viewer").getBoundingClientRect();
  window.scrollBy(0, box.top - 70);
}"""


def installed_browser() -> str | None:
    """Path of a browser of this machine, if there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def launched(chromium: BrowserType, path: str) -> Browser:
    """A browser without a window, which also runs as root and without a GPU."""
    return chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])


class Recording:
    """Pictures of a page, and how long each is shown.

    Args:
        page: loaded.
    """

    def __init__(self, page: Page) -> None:
        self._page = page
        self.pictures: list[Image.Image] = []
        self.shown_ms: list[int] = []

    def stay(self, shown_ms: int) -> None:
        """Show the page as it is now for a time; a picture equal to the last one lengthens it."""
        taken = Image.open(io.BytesIO(self._page.screenshot())).convert("RGB")
        height = round(taken.height * SHOWN_WIDTH / taken.width)
        picture = taken.resize((SHOWN_WIDTH, height), Image.Resampling.LANCZOS)
        if self.pictures and picture.tobytes() == self.pictures[-1].tobytes():
            self.shown_ms[-1] += shown_ms
            return
        self.pictures.append(picture)
        self.shown_ms.append(shown_ms)

    def follow(self, seconds: float) -> None:
        """Show what moves, several pictures a second."""
        for _ in range(round(1000 * seconds / FRAME_MS)):
            self._page.wait_for_timeout(FRAME_MS)
            self.stay(FRAME_MS)

    def save(self, path: Path) -> None:
        """Write an animated WebP that begins again at its end."""
        first, *others = self.pictures
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=self.shown_ms,
            loop=0,
            quality=QUALITY,
            method=6,
        )
        num_bytes = path.stat().st_size
        print(
            f"{path}: pictures={len(self.pictures)} seconds={sum(self.shown_ms) / 1000:g} bytes={num_bytes}"
        )
        if num_bytes > MAX_BYTES:
            path.unlink()
            sys.exit(
                f"{path}: larger than {MAX_BYTES} bytes. Fix: lower QUALITY in documentation/recordings.py"
            )


def record_viewer(page: Page, slide_id: str) -> Recording:
    """A slide with a lesion; its map by two models and from several thresholds; then its first detection."""
    page.wait_for_function("window.histoViewer.world.getItemCount() === 1")
    page.wait_for_load_state("networkidle")
    recording = Recording(page)
    page.locator("#threshold").fill("100")
    page.locator("#slide").select_option(slide_id)
    page.wait_for_function("document.querySelector('svg.marks polygon.outline')")
    page.evaluate(CENTER)
    page.wait_for_timeout(2000)
    recording.stay(2000)
    for percent in (80, 60, 40, 20, 0, 20, 40, 50):
        page.locator("#threshold").fill(str(percent))
        recording.stay(500)
    recording.stay(1500)
    for model in ("finetuned", "student"):
        page.locator("#model").select_option(model)
        recording.stay(1500)
    page.locator("#places button").first.click()
    page.evaluate(CENTER)
    recording.follow(2.5)
    for percent in (45, 30, 15, 0, 15, 30):
        page.locator("#opacity").fill(str(percent))
        recording.stay(400)
    recording.stay(2500)
    return recording


def record_labels(page: Page, keys: str) -> Recording:
    """The first squares are answered by keys, the last answer is undone and given again."""
    recording = Recording(page)
    recording.stay(2500)
    for key in keys:
        page.keyboard.press(key)
        recording.follow(2 * FRAME_MS / 1000)
    for key in ("u", keys[-1]):
        recording.stay(750)
        page.keyboard.press(key)
        recording.follow(2 * FRAME_MS / 1000)
    recording.stay(2500)
    return recording


def main() -> None:
    """Record one page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("viewer", "labels"))
    parser.add_argument("page", type=Path)
    parser.add_argument("output", type=Path, help="a .webp")
    parser.add_argument("--keys", default="", help="labels: answers of the first squares")
    parser.add_argument("--slide", default="", help="viewer: a slide of the report that has a lesion")
    options = parser.parse_args()
    needed = "slide" if options.what == "viewer" else "keys"
    if not getattr(options, needed):
        parser.error(f"{options.what} needs --{needed}")
    found = installed_browser()
    if found is None:
        sys.exit(f"recordings: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as browsers:
        browser = launched(browsers.chromium, found)
        page = browser.new_page(viewport=SIZE)
        page.goto(options.page.resolve().as_uri())
        recorded = (
            record_viewer(page, options.slide)
            if options.what == "viewer"
            else record_labels(page, options.keys)
        )
        recorded.save(options.output)
        browser.close()


if __name__ == "__main__":
    main()
