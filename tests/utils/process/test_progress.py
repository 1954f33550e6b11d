from __future__ import annotations

import contextlib
import io
import os
import sys
import termios

import pytest

from histo_monai.utils.process import progress as module
from histo_monai.utils.process.progress import DELAY_S, INTERVAL_S, Now, gone_and_left, progress


def _printed(monkeypatch: pytest.MonkeyPatch, delay_s: float, interval_s: float) -> str:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(module, "DELAY_S", delay_s)
    monkeypatch.setattr(module, "INTERVAL_S", interval_s)
    assert list(progress(range(1000), title="slides", unit="slide")) == list(range(1000))
    return log.getvalue()


def test_a_log_gets_lines_and_no_carriage_return(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = _printed(monkeypatch, 1e-9, 0.0)
    assert "\r" not in printed
    lines = printed.splitlines()
    assert lines
    assert all(line.startswith("slides: ") and "/1000 slide, " in line for line in lines)


def test_short_work_writes_nothing_to_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _printed(monkeypatch, DELAY_S, INTERVAL_S) == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    main, other = os.openpty()
    termios.tcsetwinsize(other, (24, 80))
    with os.fdopen(other, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert list(progress(range(3), title="slides", unit="slide")) == [0, 1, 2]
    printed = ""
    with contextlib.suppress(OSError):  # the terminal is closed: there is no more
        while text := os.read(main, 10_000):
            printed += text.decode()
    os.close(main)
    assert "\r" in printed
    assert "3/3" in printed


@pytest.mark.parametrize(
    ("elapsed_s", "done", "total", "expected"),
    [
        (30.0, 3, 60, "00:30 gone, 09:30 left"),
        (3600.0, 1, 3, "1:00:00 gone, 2:00:00 left"),
        (9.0, 4, 4, "00:09 gone, 00:00 left"),
    ],
)
def test_times_are_written_as_people_read_them(
    elapsed_s: float, done: int, total: int, expected: str
) -> None:
    assert gone_and_left(elapsed_s, done, total) == expected


def test_a_line_is_due_after_a_while_and_then_now_and_again() -> None:
    times = iter(
        [0.0, DELAY_S - 1, DELAY_S, DELAY_S, DELAY_S + 1, DELAY_S + INTERVAL_S, DELAY_S + INTERVAL_S]
    )
    now = Now(lambda: next(times))
    assert [now() for _ in range(4)] == [False, True, False, True]
