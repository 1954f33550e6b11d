"""Progress of work: a bar on a terminal, occasional lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from tqdm import tqdm

DELAY_S, INTERVAL_S = 10.0, 30.0
"""In a log: time before the first line, and least time between lines."""


def is_watched() -> bool:
    """Whether stderr is a terminal."""
    return sys.stderr.isatty()


def say(line: str) -> None:
    """Print a line on stdout, above the bars."""
    tqdm.write(line)


def gone_and_left(elapsed_s: float, done: int, total: int) -> str:
    """Elapsed and remaining time, "02:10 gone, 1:05:00 left"; `done` is at least 1."""
    left_s = elapsed_s / done * (total - done)
    return f"{tqdm.format_interval(elapsed_s)} gone, {tqdm.format_interval(left_s)} left"


class _Lines(tqdm):
    """Progress as separate lines, without carriage returns."""

    disable: bool

    @staticmethod
    def status_printer(file: Any) -> Callable[[str], None]:
        def write(text: str) -> None:
            if text:
                file.write(f"{text}\n")
                file.flush()

        return write

    def close(self) -> None:
        """Close without a last line: the caller reports the result."""
        if not self.disable:
            self.disable = True
            self._decr_instances(self)


def progress(
    over: Iterable[Any] | None = None,
    *,
    title: str,
    unit: str,
    total: int | None = None,
    leave: bool = True,
    position: int | None = None,
) -> tqdm[Any]:
    """A progress bar to iterate over, or to update by hand.

    Args:
        over: Iterable; None: call `update`.
        total: Number of units, if `over` has no length.
        leave: Whether the finished bar stays.
        position: Terminal line, for several bars.
    """
    if is_watched():
        return tqdm(
            over, desc=title, unit=unit, total=total, leave=leave, position=position, dynamic_ncols=True
        )
    shape = "{desc}: {n_fmt}/{total_fmt} {unit}, {elapsed} gone, {remaining} left"
    return _Lines(
        over,
        desc=title,
        unit=unit,
        total=total,
        leave=False,
        bar_format=shape,
        delay=DELAY_S,
        mininterval=INTERVAL_S,
        maxinterval=INTERVAL_S,
    )


class Now:
    """Whether a log line is due: first after `DELAY_S`, then every `INTERVAL_S`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + DELAY_S

    def __call__(self) -> bool:
        """True at most once in each interval."""
        if self._clock() < self._due:
            return False
        self._due = self._clock() + INTERVAL_S
        return True
