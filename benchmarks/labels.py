"""How long a patch index takes to load: `read_patches` against `pandas.read_csv` of the same file.

    python benchmarks/labels.py [--rows 300000] [--repeats 7]

The table is one of Camelyon16 as the paper has it, of 210 slides, written by `write_patches` to a folder that goes
afterwards. Both read it in turns in one process, from the page cache; medians. The target is about a second.
`pandas.read_csv` gives a table of another kind: numbers where every text of a column is one, "nan" for empty texts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from histo_monai.data.tables.patches import labeled_table, read_patches, write_patches

NUM_SLIDES, SLIDE_PX = 210, 100_000
TARGET_S = 1.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    table = make_table(arguments.rows)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "read_patches": read_patches,
        "pandas.read_csv": pd.read_csv,
    }
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "patches.csv"
        start = time.perf_counter()
        write_patches(path, table)
        written = time.perf_counter() - start
        for _ in range(arguments.repeats + 1):
            for name, read in readers.items():
                start = time.perf_counter()
                rows = read(path)
                seconds[name].append(time.perf_counter() - start)
                if len(rows) != len(table):
                    raise SystemExit(f"{name} gave {len(rows)} rows of {len(table)}")
        print(f"{len(table):,} rows, {path.stat().st_size / 2**20:.0f} MiB, written in {written:.2f} s")
        pd.testing.assert_frame_equal(read_patches(path), table, check_exact=True)
    median = {name: statistics.median(values[1:]) for name, values in seconds.items()}  # The first warms up.
    for name, values in seconds.items():
        print(f"  {name:<15} {median[name]:6.2f} s ({min(values[1:]):.2f}-{max(values[1:]):.2f})")
    ratio = median["read_patches"] / median["pandas.read_csv"]
    print(
        f"read_patches takes {ratio:.2f} x pandas.read_csv, {median['read_patches'] / TARGET_S:.2f} x the target"
    )


def make_table(num_rows: int) -> pd.DataFrame:
    """Rows as `camelyon16.labeled_patches` makes them, with splits and ranks."""
    rng = np.random.default_rng(0)
    slide = rng.integers(0, NUM_SLIDES, num_rows)
    is_tumor = rng.random(num_rows) < 0.5
    kind = np.where(slide % 2, "tumor", "normal")
    ids = [f"{name}_{number:03d}" for name, number in zip(kind, slide, strict=True)]
    # A step without a common divisor with the number of places meets none twice.
    y, x = np.divmod(np.arange(num_rows) * 6_180_339_887 % SLIDE_PX**2, SLIDE_PX)
    folders = "data/raw/camelyon16/training"
    return labeled_table(
        pd.DataFrame(
            {
                "patch_id": [f"{name}-y{a}-x{b}" for name, a, b in zip(ids, y, x, strict=True)],
                "path": [f"{folders}/{name.split('_')[0]}/{name}.tif" for name in ids],
                "slide_id": ids,
                "y": y,
                "x": x,
                "mpp": 0.25,
                "side_px": 256,
                "label": np.where(is_tumor, "tumor", "normal"),
                "split": np.where(slide % 5 == 0, "validation", "train"),
                "label_rank": np.where(slide % 5 == 0, np.nan, rng.random(num_rows)),
            }
        )
    )


if __name__ == "__main__":
    main()
