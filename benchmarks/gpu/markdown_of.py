"""What was measured as tables in Markdown, as docs/benchmarks.md has them."""

from __future__ import annotations

import statistics
from typing import Any

Row = dict[str, Any]


def markdown(found: Row) -> str:
    """Outcomes of the parts, ceilings, steps, and everything else that was timed."""
    lines = [f"Device: {found['device']}{', smallest sizes' if found['quick'] else ''}.", ""]
    lines += ["| part | outcome | | seconds |", "|---|---|---|---|"]
    lines += [
        f"| {one['part']} | {one['outcome']} | {one['figure']} | {one['seconds']:.0f} |"
        for one in found["outcomes"]
    ]
    if ceilings := found["ceilings"]:
        lines += [
            "",
            f"At most: {ceilings['flops'] / 1e12:.3g} TFLOP/s ({ceilings['dtype']}), copies within the device "
            f"{ceilings['copied_bytes'] / 1e9:.3g} GB/s, to it {ceilings['transferred_bytes'] / 1e9:.3g} GB/s.",
        ]
    steps = [row for row in found["rows"] if "flops" in row["seconds"]["counts"]]
    if steps:
        lines += [
            "",
            "| | a step, ms | of model only | augmentation alone, ms | reading alone, ms | GFLOP | floor, ms | "
            "MB sent | MB decoded | an epoch | a run |",
            "|---" * 11 + "|",
            *(step_line(row, ceilings, found["quick"]) for row in steps),
        ]
    others = [row for row in found["rows"] if row not in steps]
    if others:
        lines += ["", "| | seconds | of the limit | limit | otherwise, s | |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {row['what']} | {statistics.median(row['seconds']['ours']):.3g} | {of_limit(row)} | "
            f"{row['seconds']['limit_is']} | {otherwise(row)} | {row['seconds'].get('peer_is', '')} |"
            for row in others
        ]
    return "\n".join(
        [*lines, *(["", *(f"- {note}" for note in found["notes"])] if found["notes"] else []), ""]
    )


def otherwise(row: Row) -> str:
    """Seconds of what users would pick otherwise; a dash where there is nothing."""
    peer = row["seconds"].get("peer")
    return f"{statistics.median(peer):.3g}" if peer else "-"


def step_line(row: Row, ceilings: dict[str, Any], is_quick: bool) -> str:
    """One step; the floor is the larger of its operations and its bytes sent, each at the device's most.

    Smallest sizes (`is_quick`) are not extrapolated.
    """
    measured, counts = row["seconds"], row["seconds"]["counts"]
    ours = statistics.median(measured["ours"])
    views, read = (statistics.median(measured["parts"][name]) for name in ("augmentation", "reading"))
    floor = "-"
    if ceilings:
        floor_s = max(counts[name] / ceilings[of] for name, of in FLOORS)
        floor = f"{1e3 * floor_s:.3g}"
    cells = [
        row["what"],
        f"{1e3 * ours:.3g}",
        of_limit(row),
        f"{1e3 * views:.3g}",
        f"{1e3 * read:.3g}",
        f"{counts['flops'] / 1e9:.4g}",
        floor,
        f"{counts['transferred_bytes'] / 1e6:.3g}",
        f"{counts['decoded_bytes'] / 1e6:.3g}",
        *(
            spent(ours * counts[of]) if counts[of] and not is_quick else "-"
            for of in ("steps_of_epoch", "steps_of_run")
        ),
    ]
    return "| " + " | ".join(cells) + " |"


FLOORS = (("flops", "flops"), ("transferred_bytes", "transferred_bytes"))
"""What is counted of a step, and the ceiling of it."""


def of_limit(row: Row) -> str:
    """Speed in parts of the limit's."""
    return "-" if row["ours/limit"] is None else f"{row['ours/limit']:.2f}"


def spent(seconds: float) -> str:
    """In the unit that fits."""
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"
