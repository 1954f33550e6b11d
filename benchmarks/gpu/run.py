"""Everything that a GPU does, checked against the CPU and timed against its limits, in one call of under nine minutes.

    benchmarks/gpu.sh [--device cuda|cuda:0|cpu] [--only PART ...] [--quick] [--list] [--logs FOLDER]

Parts run one after the other, the most important first, each a process of its own whose errors are a log in the folder.
One that fails leaves the others; one that would not fit into the time is left out, and said to be. `--device cpu` is a
rehearsal: the same lines, smallest sizes (`--quick`), figures that say nothing of a GPU. Leaves gpu.json and gpu.md.
Needs pytest, pytest-xdist, hypothesis, h5py and the packages of pyproject.toml, but not DVC. Status 0 if all passed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from markdown_of import markdown
from running import end_with_children, machine, rows_from, with_ratios

ROOT = Path(__file__).resolve().parents[2]
BUDGET_S = 470.0
"""Of all parts; what begins in it ends in it."""
MOST_BESIDE = 6
"""Tests that run beside each other; each process has a context of its own on the device."""


class Part(NamedTuple):
    """Something to run.

    Attributes:
        name: as the table has it.
        script: below benchmarks/; empty for the tests.
        least_s: seconds without which it is left out.
        most_s: seconds after which it is ended.
        does: in words.
    """

    name: str
    script: str
    least_s: float
    most_s: float
    does: str


PARTS = (
    Part("tests", "", 60, 200, "the device gives what the CPU gives"),
    Part(
        "decoding",
        "parts/decoding.py",
        40,
        150,
        "slides decoded by the GPU and by the CPU, all cores and four",
    ),
    Part("ceilings", "gpu/ceilings.py", 10, 60, "copies and products of matrices, at most"),
    Part("steps", "parts/steps.py", 60, 170, "a step of every method at the paper's sizes"),
    Part("maps", "parts/maps.py", 40, 110, "a gigapixel slide, from file to map"),
    Part("compiling", "parts/compiling.py", 60, 120, "encoders by torch.compile in place of CUDA graphs"),
    Part("policies", "parts/policies.py", 20, 60, "augmentation, images a second"),
    Part("grid", "gpu/grid.py", 60, 400, "few labels at 128 px, and stages of whole slides"),
)


class Outcome(NamedTuple):
    """What came of a part: `passed`, `failed` or `left out`; the figure or the reason; seconds that it took."""

    part: str
    outcome: str
    figure: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every part passed."""
    options = parsed(argv)
    if options.list:
        print("\n".join(f"{part.name:<10} {part.script or 'pytest':<20} {part.does}" for part in PARTS))
        return 0
    if options.device != "cpu" and not torch.cuda.is_available():
        print(f"gpu.sh: error: --device {options.device}, but torch finds no GPU here", file=sys.stderr)
        return 1
    folder = options.folder or Path(tempfile.mkdtemp(prefix="gpu-"))
    folder.mkdir(parents=True, exist_ok=True)
    on_gpu = options.device != "cpu"
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(torch.device(options.device)) if on_gpu else "cpu",
        "quick": options.quick,
        "machine": machine(),
        "ceilings": {},
        "rows": [],
        "notes": [],
        "outcomes": [],
    }
    start = time.monotonic()
    for part in (part for part in PARTS if not options.only or part.name in options.only):
        left = BUDGET_S - (time.monotonic() - start)
        outcome = run_part(part, left, options, folder, found)
        found["outcomes"].append(outcome._asdict())
        print(
            f"{outcome.part:<10} {outcome.outcome:<9} {outcome.seconds:6.1f} s  {outcome.figure}", flush=True
        )
        (folder / "gpu.json").write_text(json.dumps(found, indent=1))
        (folder / "gpu.md").write_text(markdown(found))
    print(f"\n{(folder / 'gpu.md').read_text()}\n{folder}: gpu.json, gpu.md, a log of each part")
    return int(any(outcome["outcome"] == "failed" for outcome in found["outcomes"]))


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Options of the command."""
    parser = argparse.ArgumentParser(
        prog="benchmarks/gpu.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cuda:0", "cpu"), default="cuda")
    parser.add_argument("--quick", action="store_true", help="smallest sizes; always with --device cpu")
    parser.add_argument("--list", action="store_true", help="say which parts there are, and run none")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], help="these parts; all")
    parser.add_argument("--workers", type=int, help="reading processes of a step or map; all cores but two")
    parser.add_argument("--logs", dest="folder", type=Path, help="their folder; without one, a temporary one")
    options = parser.parse_args(argv)
    options.quick |= options.device == "cpu"
    if options.workers is None:
        cores = len(os.sched_getaffinity(0))
        options.workers = max(cores - 2, 1) if cores > 1 else 0
    return options


def run_part(
    part: Part, left_s: float, options: argparse.Namespace, folder: Path, found: dict[str, Any]
) -> Outcome:
    """Run it if it fits, and note its rows in `found`."""
    if left_s < part.least_s:
        return Outcome(
            part.name, "left out", f"{max(0.0, left_s):.0f} s left, {part.least_s:.0f} needed", 0.0
        )
    start, seconds = time.monotonic(), min(part.most_s, left_s)
    environment = {"HISTO_MONAI_DEVICE": options.device}
    log = folder / f"{part.name}.log"
    if not part.script:
        failed, figure = run_tests(options.device, seconds, log, environment)
    else:
        command = [sys.executable, str(ROOT / "benchmarks" / part.script), *asks(part, seconds, options)]
        rows = list(
            noted(part.name, rows_from(command, log=log, seconds=seconds, environment=environment), found)
        )
        failed, figure = judged(rows)
    return Outcome(part.name, "failed" if failed else "passed", figure, time.monotonic() - start)


def asks(part: Part, seconds: float, options: argparse.Namespace) -> list[str]:
    """Arguments of a part, whose last row begins before four fifths of its time are over."""
    words = [
        "--device",
        options.device,
        "--workers",
        str(options.workers),
        "--seconds",
        f"{0.8 * seconds:.0f}",
    ]
    return [*words, "--paper", *(["--quick"] if options.quick else [])]


def noted(part: str, rows: Iterator[dict[str, Any]], found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows, each put where it belongs as it comes."""
    for row in rows:
        if "what" in row:
            found["rows"].append(with_ratios(part, row))
        found["ceilings"] |= row.get("ceilings", {})
        found["notes"] += [f"{part}: {row[kind]}" for kind in ("note", "failed") if kind in row]
        yield row


def judged(rows: list[dict[str, Any]]) -> tuple[bool, str]:
    """Whether a part failed, and its figure in words."""
    bad = [row["failed"] for row in rows if "failed" in row]
    measured = [row for row in rows if "note" not in row and "failed" not in row]
    left_out = sum("note" in row for row in rows)
    figure = f"{len(measured)} measured" + (f", {left_out} notes" if left_out else "")
    return bool(bad) or not measured, "; ".join([*bad, figure])


def run_tests(device: str, seconds: float, log: Path, environment: dict[str, str]) -> tuple[bool, str]:
    """Whether a test failed, or none ran; and pytest's last line."""
    files = [str(path) for path in with_device(ROOT / "tests")]
    marker = "rehearsal" if device == "cpu" else "gpu"
    beside = min(MOST_BESIDE, len(os.sched_getaffinity(0)) // 2)
    several = ["-n", str(beside), "--dist", "worksteal"] if beside > 1 else []
    cores = {"OMP_NUM_THREADS": "1"} if beside > 1 else {}  # references are computed on the CPU
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--durations=9",
        "-p",
        "no:cacheprovider",
        *several,
        "-m",
        marker,
        *files,
    ]
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment | cores,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            status = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            end_with_children(process)
            return True, f"ended after {seconds:.0f} s"
    last = log.read_text(errors="replace").strip().splitlines()[-1].strip("= ")
    return status != 0 or "passed" not in last or "skipped" in last, last


def with_device(tests: Path) -> list[Path]:
    """Files whose tests have the device as a parameter; others need packages that this needs not."""
    return [
        p for p in sorted(tests.rglob("test_*.py")) if re.search(r"\bdevice: torch\.device\b", p.read_text())
    ]


if __name__ == "__main__":
    sys.exit(main())
