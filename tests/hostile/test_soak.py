"""What runs for days does not grow: memory, open files and threads stay what they are after the first turns.

`SOAK_TURNS` sets how many epochs of each engine, and maps, are run; by default 12.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.folders import NewFolder

TURNS = os.environ.get("SOAK_TURNS", "12")
LOOPS = ("epochs of rsp", "epochs of finetune", "epochs of consistency", "maps")
MAX_MIB_PER_TURN = 1.0
NOISE_MIB = (
    30.0  # the allocator gains a block of the largest layer, 9 MiB, in single turns: two at most in 18 turns
)
MAX_MORE_FILES, MAX_MORE_THREADS = 2, 2


@pytest.fixture(scope="module")
def turns(root: Path, module_folder: NewFolder) -> dict[str, list[tuple[float, int, int]]]:
    """Resident MiB, open files and threads after each turn of each loop."""
    path = module_folder("soak") / "soak.json"
    command = [sys.executable, "-m", "tests.hostile.soak", "--turns", TURNS, "--json", str(path)]
    given_back = os.environ | {
        "MALLOC_MMAP_THRESHOLD_": "131072",
        "MALLOC_ARENA_MAX": "1",
    }  # what is freed is not kept
    done = subprocess.run(command, cwd=root, env=given_back, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_holds_no_more_after_many_turns_than_after_some(
    loop: str, turns: dict[str, list[tuple[float, int, int]]]
) -> None:
    seen = turns[loop]
    assert len(seen) == int(TURNS)
    third = max(1, len(seen) // 3)
    middle, last = seen[-2 * third : -third], seen[-third:]
    growth = min(turn[0] for turn in last) - min(turn[0] for turn in middle)
    steps = [after[0] - before[0] for before, after in itertools.pairwise(seen[-2 * third - 1 :])]
    assert statistics.median(steps) <= MAX_MIB_PER_TURN, f"memory grows at most turns: {seen}"
    assert growth <= third * MAX_MIB_PER_TURN + NOISE_MIB, f"{growth:.0f} MiB in {third} turns: {seen}"
    assert max(turn[1] for turn in last) - min(turn[1] for turn in middle) <= MAX_MORE_FILES, seen
    assert max(turn[2] for turn in last) - min(turn[2] for turn in middle) <= MAX_MORE_THREADS, seen
