"""What a row of the index costs as it grows, from 10^3 to 10^7 rows, without a pixel.

    python benchmarks/growth.py [--rows 1000 10000 ...] [--table growth.csv]

Slides have a thousand rows each. Every number of rows has two processes of its own, set up as the program's: one
simulates the tables that the readers of datasets and of slides give, and does with them what the index does; the other
what a training does with the files. Microseconds of CPU time a row for each step; bytes a row of the file and of the
second process, its largest resident set over that of the start. A cost that is linear is the same in every column, but
for what starting takes, a tenth of a second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.leakage.review import Surroundings, review
from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import ConcentricPatches
from histo_monai.data.tables.columns import CENTER_COLUMNS, read_centers, whole_slide_table
from histo_monai.data.tables.patches import labeled_table, read_patches, write_patches
from histo_monai.data.tables.splits import (
    in_order_of_splits,
    label_ranks,
    labeled_rows,
    random_splits,
    with_label_ranks,
)
from histo_monai.data.tables.tasks import task_classes, task_targets
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.utils.randomness import generator

A_SLIDE = 1000
"""Rows of a slide; of a patient five slides."""


class Steps:
    """Microseconds a row of each step."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.found: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        start = time.process_time()
        yield
        self.found[name] = (time.process_time() - start) / self.num_rows * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[10**power for power in range(3, 8)])
    parser.add_argument("--table", type=Path, help="write the figures as a csv, too")
    arguments = parser.parse_args()
    columns = {}
    for num_rows in arguments.rows:
        # Few rows are over before a clock has ticked: the median of several rounds.
        rounds = max(1, min(9, 10**5 // num_rows))
        columns[f"{num_rows:,}"] = pd.DataFrame([measure(num_rows) for _ in range(rounds)]).median()
        print(columns[f"{num_rows:,}"].round(2).to_string(), flush=True)
    table = pd.DataFrame(columns).round(2)
    print(table.to_string())
    if arguments.table:
        table.to_csv(arguments.table)


def measure(num_rows: int) -> dict[str, float]:
    """Every step once."""
    with (
        tempfile.TemporaryDirectory() as folder,
        multiprocessing.get_context("spawn").Pool(1, keep_freed_memory, maxtasksperchild=1) as pool,
    ):
        (written,) = pool.starmap(write, [(Path(folder), num_rows)])
        (read_again,) = pool.starmap(read, [(Path(folder), num_rows)])
        size = (Path(folder) / "patches.csv").stat().st_size / num_rows
    steps = written | read_again
    all_of_it = sum(value for name, value in steps.items() if not name.endswith("bytes"))
    return steps | {"all steps": all_of_it, "patches.csv: bytes": size}


def write(folder: Path, num_rows: int) -> dict[str, float]:
    """What the index does."""
    steps = Steps(num_rows)
    write_centers(folder / "centers.csv", steps)
    write_labels(folder / "patches.csv", steps)
    return steps.found


def read(folder: Path, num_rows: int) -> dict[str, float]:
    """What trainings do."""
    at_start = resident()
    steps = Steps(num_rows)
    with steps.step("centers.csv: read"):
        centers = read_centers(folder / "centers.csv")
    slides = pd.DataFrame({"slide_id": centers["slide_id"].unique(), "path": "x.tif", "mpp": 0.25})
    with steps.step("pretraining: make ready"):
        patches = ConcentricPatches(slides, centers, mpps=(0.25, 0.5, 1.0), patch_px=64)
    with steps.step("pretraining: an epoch's order"):
        for _ in EpochBatches(len(patches), 64, seed=0, slides=patches.slides_to_mix):
            pass
    memory = {"pretraining: bytes": (resident() - at_start) / num_rows}
    del centers, patches
    with steps.step("patches.csv: read"):
        table = read_patches(folder / "patches.csv")
    with steps.step("a run: select its labels"):
        chosen = labeled_rows(with_label_ranks(table, 1), 0.1)
    with steps.step("a run: targets"):
        targets = task_targets(chosen, task_classes(table))
    assert len(targets) == len(chosen)
    return steps.found | memory | {"a run: bytes": (resident() - at_start) / num_rows}


def resident() -> int:
    """The largest resident set of this process, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_centers(path: Path, steps: Steps) -> None:
    """Centers of patches to pretrain on."""
    num = steps.num_rows
    places = np.random.default_rng(0).integers(0, 100_000, (num, 2))
    centers = pd.DataFrame(
        {"slide_id": slide_ids(num), "y": places[:, 0], "x": places[:, 1], "split": "train"}
    )
    with steps.step("centers.csv: write"):
        centers.to_csv(path, index=False, columns=list(CENTER_COLUMNS))


def write_labels(path: Path, steps: Steps) -> None:
    """Labeled patches: checked, split, audited, ranked, written."""
    given = rows_of_a_dataset(steps.num_rows)
    with steps.step("labels: check"):
        table = labeled_table(given)
    del given
    whole = table.drop_duplicates("slide_id").assign(split="", label="")
    whole = whole[["slide_id", "path", "patient_id", "mpp"]]
    whole_slides = whole_slide_table(whole.to_dict("records"))  # type: ignore[arg-type]  # names are texts
    with steps.step("labels: split"):
        table["split"] = random_splits(table, 0.25, generator(0, "label split"))
    slides = pd.DataFrame(
        {"digest": "", "fingerprint": ""}, index=pd.Index(whole["path"].unique(), name="path")
    )
    around = Surroundings(
        corpus=whole_slides[:0],
        whole_slides=whole_slides,
        slides=slides,
        shared_ids=True,
        within_patients=False,
    )
    facts = table[["side_px"]].assign(digest="", fingerprint="")
    with steps.step("labels: audit"):
        found, near = review(table, facts, around, processes=1)
    assert not found
    assert near.empty
    with steps.step("labels: sort"):
        table = in_order_of_splits(table)
    with steps.step("labels: rank"):
        table["label_rank"] = label_ranks(table, generator(0, "label ranks"))
    with steps.step("patches.csv: write"):
        write_patches(path, table)


def slide_ids(num: int) -> np.ndarray:
    """Of each row."""
    return np.array([f"slide_{number:06d}" for number in range(-(-num // A_SLIDE) + 9)])[
        np.arange(num) % max(10, num // A_SLIDE)
    ]


def rows_of_a_dataset(num: int) -> pd.DataFrame:
    """Labeled squares of slides, as a reader gives them."""
    ids = slide_ids(num)
    rng = np.random.default_rng(1)
    number = np.arange(num)
    patients = np.char.add("patient_", (number % max(10, num // A_SLIDE) // 5).astype(str))
    return pd.DataFrame(
        {
            "patch_id": np.char.add(np.char.add(ids, "-"), number.astype(str)),
            "path": np.char.add(np.char.add("data/raw/own/slides/", ids), ".svs"),
            "slide_id": ids,
            "patient_id": patients,
            "y": rng.integers(0, 100_000, num),
            "x": rng.integers(0, 100_000, num),
            "mpp": 0.5,
            "side_px": 256,
            "label": np.where(rng.random(num) < 0.3, "tumor", "normal"),
        }
    )


if __name__ == "__main__":
    main()
