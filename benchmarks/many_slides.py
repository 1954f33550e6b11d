"""What a triple costs as slides become more: from few that stay open to hundreds that are opened again and again.

    python benchmarks/many_slides.py [--slides 2 20 200] [--slide slide.tif] [--table many_slides.csv]

Two hundred names of one slide (links), 1,000 triples of 64 px at 0.25, 0.5 and 1 µm/px each, no row cached in memory:
CPU milliseconds a triple, one core, batches of 64 in an order of all rows and in the order that a training takes
(`histo_monai/data/loaders/order.py`). Each way has a process of its own, the ways take turns, medians.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from read_triples import make_slide

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import ConcentricPatches
from histo_monai.slides import open_slide
from histo_monai.utils.process.memory import keep_freed_memory

MPPS = (0.25, 0.5, 1.0)
SIDE_PX = 64
A_SLIDE = 1000
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slides", type=int, nargs="+", default=[2, 20, 64, 200])
    parser.add_argument("--slide", type=Path, help="of 0.25 µm/px; without it, a synthetic one is made")
    parser.add_argument("--batches", type=int, default=48, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--table", type=Path, help="write the figures as a csv, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slide = arguments.slide or make_slide(Path(folder) / "synthetic.tif")
        for number in range(max(arguments.slides)):
            os.link(slide, Path(folder) / f"{number}.tif")
        ways = [(num, mixed) for num in arguments.slides for mixed in (False, True)]
        times: dict[tuple[int, bool], list[float]] = {way: [] for way in ways}
        for turn in range(arguments.rounds):
            for num, mixed in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    times[num, mixed] += [
                        pool.apply(milliseconds, (Path(folder), num, mixed, arguments.batches, turn))
                    ]
    table = pd.DataFrame(
        {
            "all rows": [statistics.median(times[num, False]) for num in arguments.slides],
            "as trainings do": [statistics.median(times[num, True]) for num in arguments.slides],
        },
        index=pd.Index(arguments.slides, name="slides"),
    ).round(3)
    print(table.to_string())
    if arguments.table:
        table.to_csv(arguments.table)


def milliseconds(folder: Path, num_slides: int, mixed: bool, num_batches: int, seed: int) -> float:
    """CPU time a triple, after as many batches that are not timed."""
    keep_freed_memory()
    with open_slide(folder / "0.tif", 0.25) as slide:
        size_yx, margin = slide.size_yx, SIDE_PX * max(MPPS) / slide.mpp / 2
    names = [str(number) for number in range(num_slides)]
    slides = pd.DataFrame(
        {"slide_id": names, "path": [str(folder / f"{name}.tif") for name in names], "mpp": 0.25}
    )
    places = np.random.default_rng(0).uniform(margin, np.array(size_yx) - margin, (num_slides * A_SLIDE, 2))
    centers = pd.DataFrame({"slide_id": np.repeat(names, A_SLIDE), "y": places[:, 0], "x": places[:, 1]})
    patches = ConcentricPatches(slides, centers, mpps=MPPS, patch_px=SIDE_PX, max_cache_bytes=0)
    order = EpochBatches(len(patches), BATCH, seed=seed, slides=patches.slides_to_mix if mixed else None)
    batches = list(islice(order, 2 * num_batches))
    half = len(batches) // 2
    for batch in batches[:half]:
        patches.__getitems__(batch)
    start = time.process_time()
    for batch in batches[half:]:
        patches.__getitems__(batch)
    return (time.process_time() - start) / (BATCH * (len(batches) - half)) * 1e3


if __name__ == "__main__":
    main()
