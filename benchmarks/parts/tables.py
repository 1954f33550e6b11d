"""The patch index: written, read, and made ready for a training."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from growth import A_SLIDE
from labels import make_table
from turns import LIMIT, OURS, PEER, is_quick, row_of, take_turns

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.order import shuffled_order
from histo_monai.data.tables.patches import read_patches, write_patches
from histo_monai.utils.randomness import generator


def main() -> None:
    num = 30_000 if is_quick() else 300_000
    rounds = 3 if is_quick() else 7
    table = make_table(num)
    with tempfile.TemporaryDirectory() as folder:
        path, copy = Path(folder) / "patches.csv", Path(folder) / "copy.csv"
        write_patches(path, table)
        times = take_turns(
            {
                OURS: lambda: write_patches(path, table),
                PEER: lambda: table.to_csv(copy, index=False),
                LIMIT: lambda: copy.write_bytes(path.read_bytes()),
            },
            rounds,
        )
        row_of(
            f"patches.csv of {num:,} rows, written", times, peer_is="pandas, to_csv",
            limit_is="a copy of the file", per=num // 1000, unit="thousand rows",
        ).write()  # fmt: skip
        times = take_turns({OURS: lambda: read_patches(path), PEER: lambda: pd.read_csv(path)}, rounds)
        row_of(
            f"patches.csv of {num:,} rows, read and checked", times, peer_is="pandas, read_csv",
            per=num // 1000, unit="thousand rows",
        ).write()  # fmt: skip
    slides = np.repeat(np.arange(-(-num // A_SLIDE), dtype=np.int32), A_SLIDE)[:num]
    times = take_turns(
        {
            OURS: lambda: list(EpochBatches(num, 64, seed=0, slides=slides)),
            PEER: lambda: list(EpochBatches(num, 64, seed=0)),
            LIMIT: lambda: shuffled_order(generator(0, "batches", 0), num, None, 1),
        },
        rounds,
    )
    row_of(
        f"an epoch's order of {num:,} rows, 64 slides at a time", times, peer_is="all rows at once",
        limit_is="one permutation", per=num // 1000, unit="thousand rows",
    ).write()  # fmt: skip


if __name__ == "__main__":
    main()
