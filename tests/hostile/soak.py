"""Trainings and maps in a loop, in one process: memory, open files and threads after each turn.

    python -m tests.hostile.soak --turns 30 --json soak.json

One file of turns: {name: [[resident MiB, open files, threads], ...]}.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "HISTO_MONAI_CPUS": "1", "HISTO_MONAI_DEVICE": "cpu"}
os.environ |= {"HISTO_MONAI_WORKERS": "0", "HISTO_MONAI_RANKS": "1"}

from histo_monai.training.resume import ResumePoint
from tests.hostile.project import MAP, RUN, params_with, run, write_own_project

Turn = tuple[float, int, int]
PRETEXTS = ("rsp", "moco", "vae")
"""Each goes through the same engine: the first is soaked, the others where they are asked for."""


def look() -> Turn:
    """What this process holds: resident memory in MiB, open files, threads."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return resident / 2**20, len(os.listdir("/proc/self/fd")), threading.active_count()


def epochs_of(turns: list[Turn], train: Callable[[], object]) -> None:
    """Look after every epoch of a training."""
    save = ResumePoint.save

    def save_and_look(point: ResumePoint, engine: Any) -> None:
        save(point, engine)
        turns.append(look())

    ResumePoint.save = save_and_look  # type: ignore[method-assign]
    try:
        train()
    finally:
        ResumePoint.save = save  # type: ignore[method-assign]


def soak(num_turns: int, pretexts: Sequence[str]) -> dict[str, list[Turn]]:
    """Every training engine for so many epochs, and so many maps of one slide; in the working folder."""
    write_own_project()
    params_with(
        pretraining_methods=["random", *PRETEXTS],
        slide_level__pretraining_methods=[],  # folds for maps would be trainings, too
        pretrain__rsp__epochs=num_turns,
        pretrain__moco__epochs=num_turns,
        pretrain__vae__epochs=num_turns,
        finetune__paper__epochs=num_turns,
        consistency__paper__epochs=num_turns,
    )()
    result: dict[str, list[Turn]] = {}
    run("index")
    run("pretrain", "--method", "random")
    for method in pretexts:
        epochs_of(
            result.setdefault(f"epochs of {method}", []),
            lambda method=method: run("pretrain", "--method", method),
        )
    for stage in ("finetune", "consistency"):
        epochs_of(result.setdefault(f"epochs of {stage}", []), lambda stage=stage: run(stage, *RUN))
    maps = result.setdefault("maps", [])
    for number in range(num_turns):
        run(*MAP[:-1], f"maps/{number}")
        maps.append(look())
    return result


def main() -> int:
    """Soak, and write what was seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=6, help="epochs of each engine, and maps")
    parser.add_argument(
        "--pretext", action="append", choices=PRETEXTS, help="may be repeated; rsp where not given"
    )
    parser.add_argument("--json", type=Path, required=True, help="where to write it")
    arguments = parser.parse_args()
    into = arguments.json.resolve()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.chdir(folder)
        faults = soak(arguments.turns, arguments.pretext or PRETEXTS[:1])
        os.chdir(into.parent)
    into.write_text(json.dumps(faults))
    return 0


if __name__ == "__main__":
    sys.exit(main())
