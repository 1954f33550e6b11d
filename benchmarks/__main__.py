"""What takes how long, against what users would pick otherwise, and against the least that must be done.

    python -m benchmarks [--quick] [--only reading steps ...] [--out data/benchmarks]

Each part is a process of its own (`benchmarks/parts/`); what it compares takes turns, after a round that warms up.
Ratios are of speed, medians of those of the rounds: 2 in `ours/peer` is twice as fast as the peer, 1 in `ours/limit` as
fast as it can be. CPU time is that of one core, which another program beside hardly changes; wall time needs a quiet
machine. A part that fails is reported, the others go on, and the program ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # as parts have it

from running import machine, rows_from, with_ratios  # noqa: E402

PARTS = tuple(path.stem for path in sorted((HERE / "parts").glob("*.py")))
COLUMNS = ("part", "what", "clock", "ours", "peer", "limit", "ours/peer", "ours/limit")


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every part gave its rows."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rounds of little work: three minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument(
        "--out", type=Path, default=Path("data/benchmarks"), help="folder of table and picture"
    )
    options = parser.parse_args(argv)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / ".gitignore").write_text("*\n")
    except OSError as error:
        print(
            f"benchmarks: error: {options.out}: {error.strerror}; name another folder by --out",
            file=sys.stderr,
        )
        return 1
    found: dict[str, Any] = {"machine": machine(), "rows": [], "notes": []}
    has_failed = False
    print(json.dumps(found["machine"], indent=1))
    print(line(COLUMNS))
    for part in options.only:
        for row in rows_of(part, options.quick):
            if "what" in row:
                found["rows"].append(row)
                print(line([row[name] for name in COLUMNS]), flush=True)
            for kind in {"note", "failed"} & row.keys():
                found["notes"].append(f"{part}: {kind}: {row[kind]}")
                print(found["notes"][-1], file=sys.stderr)
                has_failed |= kind == "failed"
        (options.out / "benchmarks.json").write_text(json.dumps(found, indent=1))
    if found["rows"]:
        plot(found["rows"], options.out / "benchmarks.png")
    return int(has_failed)


def rows_of(part: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Rows and notes as they come, see `rows_from`; with what the table shows."""
    command = [sys.executable, str(HERE / "parts" / f"{part}.py"), *(["--quick"] if quick else [])]
    for row in rows_from(command):
        yield with_ratios(part, row)


def line(cells: Sequence[Any]) -> str:
    """Cells under each other."""
    widths = (10, 62, 5, 10, 10, 10, 9, 10)
    texts = ["-" if cell is None else str(cell) for cell in cells]
    return "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)).rstrip()


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Both ratios of every row, on a logarithmic axis with a line at 1."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 1.2 + 0.26 * len(rows)), layout="constrained")
    places = range(len(rows))
    for name, color, marker, label in (
        ("ours/limit", "#0072B2", "s", "of the limit"),
        ("ours/peer", "#D55E00", "o", "against the peer"),
    ):
        known = [(row[name], place) for place, row in zip(places, rows, strict=True) if row[name]]
        axes.scatter(
            *zip(*known, strict=True), color=color, marker=marker, label=label, zorder=3
        ) if known else None
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set(xscale="log", xlabel="speed, times as fast", ylim=(len(rows) - 0.4, -0.6))
    axes.set_yticks(list(places), [row["what"] for row in rows], fontsize=8)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="both", color="0.9", zorder=0)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
