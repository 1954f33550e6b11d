"""Alternating timers of the parts of `python -m benchmarks`, and the row of a table for each thing measured."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # parts that measure how fast a process starts import no torch
    import torch

OURS, PEER, LIMIT = "ours", "peer", "limit"
_STARTED = time.monotonic()


@dataclass(frozen=True)
class Row:
    """One thing measured; seconds for the same work, one value a round.

    The clock "device" is that of CUDA's events on a GPU, and of the wall elsewhere.

    Attributes:
        what: was done.
        clock: "cpu" for the time of one core, "wall" for that of the clock, "device" as above.
        ours: of this project.
        peer: of what users would pick otherwise; empty where there is nothing.
        peer_is: what that is.
        limit: of the least that must be done; empty where nobody knows.
        limit_is: what that is.
        per: how many of `unit` a value is for, so that times are per unit.
        unit: of the work.
        parts: of `ours`, by name, by themselves: seconds, one value a round.
        counts: what the work is, counted and not timed, by name.
    """

    what: str
    clock: Literal["cpu", "wall", "device"]
    ours: list[float]
    peer: list[float]
    peer_is: str
    limit: list[float]
    limit_is: str
    per: int = 1
    unit: str = "call"
    parts: dict[str, list[float]] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def write(self) -> None:
        """Print the row as one line of JSON for the program that runs the part."""
        print(json.dumps(asdict(self)), flush=True)


def take_turns(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.process_time,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> dict[str, list[float]]:
    """Seconds of each way, a value a round; each goes first equally often, and a round before all of them warms up.

    Args:
        ways: what is timed, by name.
        rounds: that count.
        clock: seconds since something.
        before: what precedes a way each time and is not timed, by the way's name.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(rounds + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            if before and name in before:
                before[name]()
            start = clock()
            ways[name]()
            if turn:
                times[name].append(clock() - start)
    return times


def row_of(
    what: str,
    times: Mapping[str, list[float]],
    *,
    peer_is: str = "",
    limit_is: str = "",
    clock: Literal["cpu", "wall", "device"] = "cpu",
    **about: Any,
) -> Row:
    """A row of what `take_turns` found for `OURS`, `PEER` and `LIMIT`."""
    return Row(
        what, clock, times[OURS], times.get(PEER, []), peer_is, times.get(LIMIT, []), limit_is, **about
    )


def note(words: str) -> None:
    """What was not measured, and why."""
    print(json.dumps({"note": words}), flush=True)


class DeviceClock:
    """Seconds since something: between two calls, the time of CUDA's events on a GPU, else the wall's clock.

    A call waits for the GPU, so that work which is still under way counts.

    Attributes:
        name: as a row has it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.name: Literal["wall", "device"] = "wall" if device.type == "cpu" else "device"
        self._last: Any = None
        self._seconds = 0.0

    def __call__(self) -> float:
        """See the class."""
        if self._device.type == "cpu":
            return time.perf_counter()
        from torch import cuda

        cuda.synchronize(self._device)
        now = cuda.Event(enable_timing=True)
        now.record(cuda.current_stream(self._device))
        now.synchronize()
        if self._last is not None:  # sums of short spans: a span is a float32 of milliseconds
            self._seconds += self._last.elapsed_time(now) / 1e3
        self._last = now
        return self._seconds


def asked() -> argparse.Namespace:
    """What a part is asked for: `quick`, `device` (a name), `paper` (its sizes), `workers`, `seconds` (None: all)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float)
    return parser.parse_args()


def is_time_up(what: str) -> bool:
    """Whether the part has used up its `--seconds`; then notes that `what` is left out."""
    seconds = asked().seconds
    if seconds is None or time.monotonic() - _STARTED < seconds:
        return False
    note(f"left out, {seconds:.0f} s are over: {what}")
    return True


def is_quick() -> bool:
    """Whether the part was asked for few rounds."""
    return bool(asked().quick)
