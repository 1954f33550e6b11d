"""What parts of `python -m benchmarks` share: ways that take turns, and a row of the table for each thing measured."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

OURS, PEER, LIMIT = "ours", "peer", "limit"


@dataclass(frozen=True)
class Row:
    """One thing measured; seconds for the same work, one value a round.

    Attributes:
        what: was done.
        clock: "cpu" for the time of one core, "wall" for that of the clock.
        ours: of this project.
        peer: of what users would pick otherwise; empty where there is nothing.
        peer_is: what that is.
        limit: of the least that must be done; empty where nobody knows.
        limit_is: what that is.
        per: how many of `unit` a value is for, so that times are told by one.
        unit: of the work.
    """

    what: str
    clock: Literal["cpu", "wall"]
    ours: list[float]
    peer: list[float]
    peer_is: str
    limit: list[float]
    limit_is: str
    per: int = 1
    unit: str = "call"

    def tell(self) -> None:
        """One line of JSON, to whoever runs the part."""
        print(json.dumps(asdict(self)), flush=True)


def take_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int, clock: Callable[[], float] = time.process_time
) -> dict[str, list[float]]:
    """Seconds of each way, a value a round; each goes first equally often, and a round before all of them warms up.

    Args:
        ways: what is timed, by name.
        rounds: that count.
        clock: seconds since something.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for turn in range(rounds + 1):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
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
    clock: Literal["cpu", "wall"] = "cpu",
    **about: Any,
) -> Row:
    """A row of what `take_turns` found for `OURS`, `PEER` and `LIMIT`."""
    return Row(
        what, clock, times[OURS], times.get(PEER, []), peer_is, times.get(LIMIT, []), limit_is, **about
    )


def note(words: str) -> None:
    """What was not measured, and why."""
    print(json.dumps({"note": words}), flush=True)


def is_quick() -> bool:
    """Whether the part was asked for few rounds."""
    return "--quick" in sys.argv[1:]
