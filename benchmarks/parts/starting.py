"""How long the program takes to start, and DVC to see that nothing is to be done."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from turns import LIMIT, OURS, PEER, is_quick, note, row_of, take_turns


def main() -> None:
    rounds = 3 if is_quick() else 9
    ways = {
        OURS: call("-m", "histo_monai", "--help"),
        PEER: call("-c", "import torch"),
        LIMIT: call("-c", "pass"),
    }
    times = take_turns(ways, rounds, time.perf_counter)
    row_of(
        "histo-monai --help", times, clock="wall", peer_is="import torch", limit_is="python -c pass"
    ).write()
    dvc = [str(Path(sys.executable).parent / "dvc")]
    status = subprocess.run([*dvc, "status", "--quiet"], capture_output=True, check=False)
    if status.returncode:
        note("no-op dvc repro is not measured: `dvc status` finds something to do here")
        return
    ways = {OURS: partial(run, [*dvc, "repro"]), LIMIT: partial(run, [*dvc, "status"])}
    times = take_turns(ways, 1 if is_quick() else 3, time.perf_counter)
    row_of("dvc repro with nothing to do", times, clock="wall", limit_is="dvc status").write()


def call(*arguments: str) -> Callable[[], None]:
    """Python with these arguments."""
    return partial(run, [sys.executable, *arguments])


def run(command: list[str]) -> None:
    """Raises CalledProcessError where it fails."""
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
