"""Triples of 256 px from slides, on one core and on all."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from read_triples import BARE, COLD, OPENSLIDE, READ_MANY, SIDE_PX, make_slide, measure
from turns import LIMIT, OURS, PEER, Row, is_quick, row_of, take_turns

from histo_monai.slides import concentric_boxes, open_slide
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.utils.process.threads import decode_with

REAL = Path(__file__).parents[3] / "shared" / "real"
SLIDES = (  # name, µm/px of the patches as multiples of the slide's, or as they are
    ("stomach-metaplasia.tif", None),
    ("stomach-metaplasia.tif", [0.25, 0.5, 1.0]),
    ("duodenum-adenoma.tif", [0.5, 1.0, 2.0]),
    ("duodenum-adenoma.tif", [1.0, 2.0, 4.0]),
)
PEER_IS, LIMIT_IS = "OpenSlide, read_region of each patch", "cuCIM, read_region of each patch, no cache"


def main() -> None:
    triples, rounds = (32, 3) if is_quick() else (64, 9)
    with tempfile.TemporaryDirectory() as folder:
        path = make_slide(Path(folder) / "synthetic.tif", 4096 if is_quick() else 8192)
        write_rows(path, "synthetic, own levels", None, triples, rounds)
        on_all_cores(path, triples, rounds)
    for name, mpps in SLIDES:
        if (REAL / name).exists() and not (is_quick() and mpps is None):
            levels = "own levels" if mpps is None else ", ".join(f"{mpp:g}" for mpp in mpps) + " µm/px"
            write_rows(REAL / name, f"{name.partition('-')[0]}, {levels}", mpps, triples, rounds)


def write_rows(path: Path, name: str, mpps: list[float] | None, triples: int, rounds: int) -> None:
    """Write a row with a warm cache and one with a cold cache."""
    with open_slide(path) as slide:
        mpps = mpps or [slide.mpp * factor for factor in (1, 2, 4)]
    times = measure(path, None, mpps, triples, rounds)
    for way, cache in ((READ_MANY, "warm"), (COLD, "cold")):
        Row(
            f"triples of {SIDE_PX} px, {name}, {cache}",
            "cpu", times[way], times[OPENSLIDE], PEER_IS, times[BARE], LIMIT_IS, unit="patch",
        ).write()  # fmt: skip


def on_all_cores(path: Path, triples: int, rounds: int) -> None:
    """One process, as many threads as cores; each round other places."""
    keep_freed_memory()
    rng, cores = np.random.default_rng(0), len(os.sched_getaffinity(0))
    with open_slide(path) as slide:
        margin = SIDE_PX * 2
        centers = rng.uniform(margin, np.array(slide.size_yx) - margin, (triples, 2)).tolist()
        boxes = [box for y, x in centers for box in concentric_boxes((y, x), SIDE_PX, (0.25, 0.5, 1.0))]

        def read(threads: int) -> None:
            decode_with(threads)
            with open_slide(path) as again:  # nothing is held of it
                again.read_many(boxes)

        ways = {OURS: lambda: read(cores), PEER: lambda: read(1), LIMIT: lambda: read(1)}
        times = take_turns(ways, rounds, time.perf_counter)
    times[LIMIT] = [seconds / cores for seconds in times[LIMIT]]
    row_of(
        f"triples of {SIDE_PX} px, synthetic, {cores} cores", times, clock="wall",
        peer_is="one thread", limit_is=f"a {cores}th of one thread's time", per=len(boxes), unit="patch",
    ).write()  # fmt: skip


if __name__ == "__main__":
    main()
