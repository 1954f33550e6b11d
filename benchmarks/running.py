"""Parts of benchmarks as processes, and what their rows say; the machine that they ran on."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import signal
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from histo_monai.utils.process.threads import sleep_when_idle

HERE = Path(__file__).parent
LIBRARIES = (
    "histo_monai",
    "torch",
    "monai",
    "pytorch-ignite",
    "cucim-cu13",
    "opencv-python-headless",
    "numpy",
    "dvc",
)


def rows_from(
    command: Sequence[str],
    *,
    log: Path | None = None,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Rows and notes of a part as they come; at last, where it failed, the last line of its errors.

    Args:
        command: prints a line of JSON for each.
        log: file of its errors; None keeps none.
        seconds: after which it is ended, with all its processes; None for never.
        environment: beside that of this process.
    """
    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    sleep_when_idle()  # as in the program
    around = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with log.open("w+") if log else tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=around, start_new_session=True
        )
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            end_with_children(process)

        timer = threading.Timer(seconds or 0, end)
        if seconds:
            timer.start()
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        timer.cancel()
        errors.seek(0)
        lines = errors.read().strip().splitlines()
    if is_late.is_set():
        yield {"failed": f"ended after {seconds:.0f} s"}
    elif process.returncode:
        yield {"failed": lines[-1] if lines else f"status {process.returncode}"}


def end_with_children(process: subprocess.Popen[Any]) -> None:
    """End a process that was started in a session of its own, and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def with_ratios(part: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row with what the table shows: milliseconds of one unit, and ratios of speed. A note stays as it is.

    Ratios are medians of those of the rounds: what takes turns within seconds suffers from the same neighbors.
    """
    if "what" not in row:
        return row
    median = {name: statistics.median(row[name]) if row[name] else None for name in ("ours", "peer", "limit")}
    shown: dict[str, Any] = {"part": part, "what": row["what"], "clock": row["clock"], "seconds": row}
    for name, value in median.items():
        shown[name] = "-" if value is None else f"{value / row['per'] * 1e3:.4g} ms"
    for name in ("peer", "limit"):
        turns = zip(row[name], row["ours"], strict=True) if row[name] else ()
        ratios = [other / ours for other, ours in turns if ours]
        shown[f"ours/{name}"] = round(statistics.median(ratios), 3) if ratios else None
    return shown


def machine() -> dict[str, Any]:
    """What the figures are of."""
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    model = platform.processor() or platform.machine()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        named = [text for text in cpuinfo.read_text().splitlines() if text.startswith("model name")]
        model = named[0].partition(":")[2].strip() if named else model
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "versions": versions,
    }
