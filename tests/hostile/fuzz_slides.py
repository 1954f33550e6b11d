"""Damages slides at random and reads them: none may end the process.

    python -m tests.hostile.fuzz_slides FOLDER_OF_SLIDES [--cases 2400] [--kind body_of_a_tile] [--only NUMBER ...]

Prints how the cases ended, by kind of damage. A failure is printed with its number, which `--only` repeats.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from histo_monai.slides import Box, Slide, SlideError, open_slide
from tests.hostile.slide_damage import DAMAGES, Edit, Specimen, Tile
from tests.hostile.slide_sandbox import in_sandbox
from tests.hostile.slide_specimens import real_slides, write_simulated

MPP = 0.5
SAME, OTHER, REFUSED = "same pixels", "other pixels", "refused"
_OUTCOMES = (SAME, OTHER, REFUSED)


@dataclass(frozen=True, slots=True)
class Result:
    """How one case ended: one of `_OUTCOMES`, or what went wrong."""

    number: int
    kind: str
    slide: str
    outcome: str

    @property
    def failed(self) -> bool:
        return self.outcome not in _OUTCOMES


def fuzz(slides: Sequence[Path], numbers: Sequence[int], folder: Path) -> Iterator[Result]:
    """Run cases; a number always is the same damage to the same slide, given the same slides.

    Args:
        slides: Sound slides; they are copied, never written to.
        numbers: The cases.
        folder: Where the copies lie.
    """
    kinds = list(DAMAGES)
    specimens = [Specimen.read(path) for path in slides]
    copies = []
    for number, path in enumerate(slides):
        copies.append(folder / f"{number}-{path.name}")
        copies[-1].write_bytes(specimens[number].data)
    cases = [(number, kinds[number % len(kinds)], number // len(kinds) % len(slides)) for number in numbers]
    cases.sort(key=lambda case: case[2])

    def run(case: tuple[int, str, int]) -> str:
        number, kind, which = case
        rng = np.random.default_rng([20, number])
        edits, tile = DAMAGES[kind](rng, specimens[which])
        return _try(specimens[which], copies[which], edits, tile, rng)

    for case, outcome in in_sandbox(cases, run):
        if outcome.startswith(("died", "hung")):  # It had no time to mend the copy.
            copies[case[2]].write_bytes(specimens[case[2]].data)
        yield Result(case[0], case[1], slides[case[2]].name, outcome)


def _try(slide: Specimen, copy: Path, edits: list[Edit], tile: Tile | None, rng: np.random.Generator) -> str:
    boxes = _boxes(slide, tile, rng)
    before = _read_all(copy, boxes)
    with _damaged(slide, copy, edits):
        try:
            after = _read_all(copy, boxes)
        except Exception as error:
            return f"{type(error).__name__} {error} (not a SlideError)"
    for text in after:
        if isinstance(text, str) and ("\n" in text or len(text) > 600 or copy.name not in text):
            return f"not one clear line: {text!r}"
    if any(isinstance(part, str) for part in after):
        return REFUSED
    same = len(before) == len(after) and all(
        np.array_equal(one, other) for one, other in zip(before, after, strict=True)
    )
    return SAME if same else OTHER


@contextlib.contextmanager
def _damaged(slide: Specimen, copy: Path, edits: list[Edit]) -> Iterator[None]:
    with copy.open("r+b", buffering=0) as file:
        for at, raw in edits:
            if raw:
                os.pwrite(file.fileno(), raw[: len(slide.data) - at], at)
            else:
                os.ftruncate(file.fileno(), at)
        yield
        for at, raw in edits:
            whole = slide.data[at : at + len(raw)] if raw else slide.data[at:]
            os.pwrite(file.fileno(), whole, at)


def _boxes(slide: Specimen, tile: Tile | None, rng: np.random.Generator) -> list[Box]:
    """Two random fields, and the damaged tile."""
    height, width = slide.images[0].size_yx
    boxes = [
        Box((float(rng.uniform(0, height)), float(rng.uniform(0, width))), 96, MPP * float(rng.uniform(1, 3)))
        for _ in range(2)
    ]
    if tile is not None:
        image = slide.images[tile[0]]
        downsample = height / image.size_yx[0]
        center = [(at + 0.5) * px * downsample for at, px in zip(tile[1:], image.tile_yx, strict=True)]
        boxes.append(Box((center[0], center[1]), min(image.tile_yx), MPP * max(1.0, downsample)))
    return boxes


def _read_all(path: Path, boxes: list[Box]) -> list[np.ndarray | str]:
    try:
        slide = open_slide(path, mpp=MPP)
    except SlideError as error:
        return [str(error)]
    with slide:
        return [_one(slide, box) for box in [None, *boxes]]


def _one(slide: Slide, box: Box | None) -> np.ndarray | str:
    """A field, or the thumbnail; or the message where it is refused."""
    try:
        if box is not None:
            return slide.read(box)
        return slide.thumbnail(max(8.0, slide.level_mpps[-1]))
    except SlideError as error:
        return str(error)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "slides", type=Path, nargs="?", help="a folder of real slides, beside the simulated ones"
    )
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of cases to repeat")
    parser.add_argument("--kind", choices=DAMAGES, help="damages of one kind only")
    arguments = parser.parse_args(argv)
    kinds = list(DAMAGES)
    numbers = arguments.only or range(arguments.cases)
    if arguments.kind:
        numbers = range(kinds.index(arguments.kind), arguments.cases * len(kinds), len(kinds))
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sound").mkdir()
        slides = write_simulated(folder / "sound")
        slides += real_slides(arguments.slides) if arguments.slides else []
        tables: dict[str, dict[str, Counter[str]]] = {
            "damage": defaultdict(Counter),
            "slide": defaultdict(Counter),
        }
        failures = 0
        for result in fuzz(slides, numbers, folder):
            for key, table in zip((result.kind, result.slide), tables.values(), strict=True):
                table[key]["failed" if result.failed else result.outcome] += 1
            failures += result.failed
            if result.failed or arguments.only:
                print(f"case {result.number}, {result.kind} of {result.slide}: {result.outcome}", flush=True)
    columns = (*_OUTCOMES, "failed")
    for name, table in tables.items():
        print(f"{name:<30}" + "".join(f"{column:>14}" for column in columns))
        for key, counts in table.items():
            print(f"{key:<30}" + "".join(f"{counts[column]:>14}" for column in columns))
    total = sum(sum(counts.values()) for counts in tables["damage"].values())
    print(f"{total} damaged slides, {failures} failures, {time.monotonic() - start:.0f} s")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
