from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from histo_monai.utils.process.processes import map_over_processes


def _doubled(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_arguments(processes: int) -> None:
    results = map_over_processes(_doubled, range(9), processes=processes, title="t", unit="slide")
    assert list(results) == [0, 2, 4, 6, 8, 10, 12, 14, 16]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_bar_counts_images_where_a_call_handles_many(
    processes: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("histo_monai.utils.process.progress.is_watched", lambda: True)
    work = map_over_processes(
        _doubled, [1, 2, 3], processes=processes, title="images", unit="image", sizes=[64, 64, 2]
    )
    assert list(work) == [2, 4, 6]
    last = capsys.readouterr().err.split("\r")[-1]
    assert "130/130" in last
    assert "image/s" in last


INTERRUPTED = """
import pathlib, sys, time
from histo_monai.utils.process.processes import map_over_processes

def work(seconds):
    pathlib.Path(f"begun-{seconds}").touch()
    try:
        time.sleep(seconds)
    finally:
        pathlib.Path(f"put-away-{seconds}").touch()

if __name__ == "__main__":
    waits = map(int, sys.argv[2:])
    try:
        list(map_over_processes(work, [*waits], processes=2, title="t", unit="u", start=sys.argv[1]))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
"""


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("later", [[], [601, 602, 603]], ids=["one waits", "all work"])
def test_ctrl_c_is_reported_once_and_each_process_removes_unfinished_files(
    start: str, later: list[int], tmp_path: Path
) -> None:
    """As a terminal sends it, to all processes."""
    (tmp_path / "program.py").write_text(INTERRUPTED)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "program.py", start, "0", "600", *map(str, later)],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),  # a shell's job ignores it
    ) as process:
        at_work = {600, *later[:1]}
        begun = [tmp_path / "put-away-0", *(tmp_path / f"begun-{number}" for number in at_work)]
        until = time.monotonic() + 60
        while not all(path.exists() for path in begun) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)  # until the other one waits for more
        os.killpg(process.pid, signal.SIGINT)
        _, printed = process.communicate(timeout=60)
    assert printed.splitlines() == ["stopped"]
    assert {path.name for path in tmp_path.glob("begun-6*")} == {f"begun-{number}" for number in at_work}
    assert {path.name for path in tmp_path.glob("put-*-6*")} == {f"put-away-{number}" for number in at_work}
