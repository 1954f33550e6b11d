"""The catalogue of hostile and unlucky inputs: `python -m tests.hostile`, from the root of the checkout.

python -m tests.hostile                      # all cases; tried and passed by kind
python -m tests.hostile --kind GeoJSON       # one kind; may be repeated
python -m tests.hostile --case "a lone eye"  # cases whose name holds a text
python -m tests.hostile --list               # kinds and names
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "HISTO_MONAI_CPUS": "1", "HISTO_MONAI_DEVICE": "cpu"}
os.environ |= {"HISTO_MONAI_WORKERS": "0", "HISTO_MONAI_RANKS": "1"}

from tests.hostile.case import Case
from tests.hostile.catalogue import KINDS, all_cases
from tests.hostile.project import build
from tests.hostile.runner import BrokenCaseError, run_case


def main() -> int:
    """Try cases; 1 where one fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", action="append", choices=KINDS, help="one kind; may be repeated")
    parser.add_argument("--case", default="", help="text in the name of a case")
    parser.add_argument("--every", type=int, default=1, help="only each so-and-so-many-th case of a kind")
    parser.add_argument("--list", action="store_true", help="kinds and names, without trying them")
    parser.add_argument("--json", type=Path, help="where to write {kind: {name: [fault, ...]}}")
    parser.add_argument(
        "--project", type=Path, help="where the project is, or is to be made and left for the next call"
    )
    parser.add_argument("--slowest", type=int, default=0, help="how many of the slowest cases to show")
    arguments = parser.parse_args()
    cases = [
        case
        for case in all_cases()
        if case.kind in (arguments.kind or KINDS) and arguments.case.lower() in case.title.lower()
    ]
    cases = [
        case for kind in KINDS for case in [one for one in cases if one.kind == kind][:: arguments.every]
    ]
    if arguments.list:
        print("\n".join(case.title for case in cases))
        return 0
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        base = arguments.project.absolute() if arguments.project else Path(folder).resolve() / "base"
        result, seconds = try_cases(cases, base, Path(folder).resolve())
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1))
    print(table(result))
    for title in sorted(seconds, key=lambda title: -seconds[title])[: arguments.slowest]:
        print(f"{seconds[title]:6.2f} s  {title}")
    return int(any(faults for names in result.values() for faults in names.values()))


def try_cases(
    cases: Sequence[Case], base: Path, folder: Path
) -> tuple[dict[str, dict[str, list[str]]], dict[str, float]]:
    """Faults by kind and name, and the seconds of each case by its title; failing cases are printed as they come."""
    here, began = Path.cwd(), time.perf_counter()
    room = folder / "room"
    room.mkdir()
    _build_quietly(base, folder / "built.log")
    os.chdir(here)
    print(f"the project is made: {time.perf_counter() - began:.0f} s", flush=True)
    result: dict[str, dict[str, list[str]]] = {}
    seconds = {}
    for case in cases:
        start = time.perf_counter()
        try:
            faults = run_case(case, base, room)
        except BrokenCaseError as error:
            faults = [f"cannot be prepared: {str(error)[-600:]}"]
        seconds[case.title] = time.perf_counter() - start
        result.setdefault(case.kind, {})[case.name] = faults
        for fault in faults:
            print(f"FAILED {case.title}: {fault}", flush=True)
    print(
        f"{len(cases)} cases: {sum(seconds.values()):.0f} s, with the project {sum(os.times()[:4]):.0f} s of a core"
    )
    return result, seconds


def _build_quietly(base: Path, log: Path) -> None:
    """What the stages print goes to a file, and from there to stderr where one fails."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in (1, 2)]
    with log.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            build(base)
        except BaseException:
            os.write(kept[1], log.read_bytes())
            raise
        finally:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def table(faults_by_kind: dict[str, dict[str, list[str]]]) -> str:
    """Tried and passed by kind."""
    width = max(map(len, (*faults_by_kind, "all kinds")))
    rows = [
        (kind, len(names), sum(not faults for faults in names.values()))
        for kind, names in faults_by_kind.items()
    ]
    rows.append(("all kinds", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    lines = [f"{kind:{width}} {tried:6d} {passed:7d}" for kind, tried, passed in rows]
    return "\n".join([f"{'kind':{width}} {'tried':>6} {'passed':>7}", *lines])


if __name__ == "__main__":
    sys.exit(main())
