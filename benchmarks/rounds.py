"""Rounds of labels from an empty folder: `init`, `next`, answers by keys in a browser, `next`, ..., each step timed.

    python benchmarks/rounds.py DIR [--rounds 2] [--num 60]     # needs ../shared/real, which is only read, and Chromium

Eight public slides of one patient each. A square is `dense` or `pale` by the brightness of its picture on the page.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from playwright.sync_api import Page, expect, sync_playwright
from real_patches import SLIDES

REAL = Path(__file__).resolve().parents[2] / "shared" / "real"
EIGHTH = ("demo", "asap-example.tif", "", "")
CLASSES = ("dense", "pale")
PROGRAM = (sys.executable, "-m", "histo_monai")
BRIGHTNESS = """async () => {
  const means = [];
  for (const patch of data.patches) {
    const image = new Image();
    image.src = patch.picture;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 1;
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, image.width / 4, image.height / 4, image.width / 2, image.height / 2, 0, 0, 1, 1);
    means.push(context.getImageData(0, 0, 1, 1).data.slice(0, 3).reduce((sum, value) => sum + value) / 3);
  }
  return means;
}"""
"""Of the middle of each picture, 0 to 255."""


def main() -> None:
    """Run the rounds; print seconds and processor seconds of each step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a project that is not there yet")
    parser.add_argument("--rounds", type=int, default=2, help="answered pages")
    parser.add_argument("--num", type=int, default=60, help="squares of a page")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    options = parser.parse_args()
    place = options.folder
    log = place.with_name(place.name + ".log")
    timed("init", [*PROGRAM, "init", str(place), "--dataset", "own"], Path(), log)
    slides = pd.DataFrame([*SLIDES, EIGHTH], columns=["slide_id", "path", "mpp", "split"])
    slides = slides.assign(path=[str(REAL / name) for name in slides["path"]], patient_id=slides["slide_id"])
    slides.drop(columns="split").to_csv(place / "data/raw/own/slides.csv", index=False)
    threshold = float("nan")
    for number in range(options.rounds + 1):
        words = ["next", "--classes", *CLASSES, "--num", str(options.num), "--random", str(options.num // 5)]
        printed = timed(f"next, round {number}", [*PROGRAM, *words], place, log)
        print("\n".join(f"    {line}" for line in printed.splitlines() if line.startswith("round ")))
        if number < options.rounds:
            threshold = answer(place, printed, options.browser, threshold)


def timed(title: str, command: Sequence[str], place: Path, log: Path) -> str:
    """What a command prints; its seconds are printed."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    with log.open("a") as file:
        done = subprocess.run(command, cwd=place, check=True, stdout=subprocess.PIPE, stderr=file, text=True)
        file.write(done.stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{time.perf_counter() - began:6.1f} s, {used:6.1f} s of processor: {title}", flush=True)
    return done.stdout


def heed_interrupts() -> None:
    """As in a terminal; a process in the background ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def answer(place: Path, printed: str, browser: str, threshold: float) -> float:
    """Label every square of the served page by keys; the threshold of brightness, at first the median."""
    began = time.perf_counter()
    (folder,) = {
        line.split(" --serve")[0].split()[-1]
        for line in printed.splitlines()
        if line.startswith("label them:")
    }
    command = [*PROGRAM, "label", folder, "--serve", "--classes", *CLASSES]
    with (
        subprocess.Popen(
            command, cwd=place, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
        ) as server,
        sync_playwright() as started,
        started.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"]) as chromium,
    ):
        page: Page = chromium.new_page()
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((server.stdout.readline() if server.stdout else "").split()[0])
        means = page.evaluate(BRIGHTNESS)
        if threshold != threshold:
            threshold = sorted(means)[len(means) // 2]
        try:
            for number, mean in enumerate(means, start=1):
                page.keyboard.press("1" if mean < threshold else "2")
                expect(page.locator("#count")).to_have_text(f"{number} of {len(means)} answered")
        finally:
            server.send_signal(signal.SIGINT)
        if complaints:
            raise RuntimeError(f"page: {complaints}")
    print(f"{time.perf_counter() - began:6.1f} s: {len(means)} squares answered", flush=True)
    return threshold


if __name__ == "__main__":
    main()
