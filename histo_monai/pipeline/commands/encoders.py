"""Command `encoders`: published encoders, one line each; with names, all facts of their rows."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from histo_monai.models.encoders.published import PUBLISHED, Published
from histo_monai.utils.errors import InputError

_HEADER = ("name", "features", "parameters", "side", "µm/px", "license", "weights")
_NULLS = "license: null, mean: null, std: null, side: null, arguments: null"
"""Values of another encoder would override the table's."""


def run(names: Sequence[str]) -> None:
    """Print the table of published encoders, or the rows of `names` in full.

    Raises:
        InputError: a name is not in the table.
    """
    for name in names:
        if name not in PUBLISHED:
            close = difflib.get_close_matches(name.lower(), PUBLISHED, n=1)
            mend = f"name {close[0]}" if close else "run `histo-monai encoders` without a name"
            raise InputError(f"encoders: {name[:80]!r} is not in the table. Fix: {mend}.")
    print("\n\n".join(_in_full(name) for name in names) if names else _table())


def _table() -> str:
    rows = [_HEADER, *(_row(name, published) for name, published in PUBLISHED.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _row(name: str, published: Published) -> tuple[str, ...]:
    return (
        name,
        str(published.num_features),
        _millions(published),
        str(published.side_px),
        _mpps(published),
        published.license or "see source",
        published.source,
    )


def _in_full(name: str) -> str:
    published = PUBLISHED[name]
    facts = {
        "architecture": published.architecture,
        "arguments": ", ".join(f"{key}={value}" for key, value in published.arguments.items()) or "none",
        "input side": f"{published.side_px} px; multiples of {published.multiple_px} px",
        "mean, std": f"{list(published.mean)}, {list(published.std)}",
        "trained at µm/px": _mpps(published),
        "output": f"{published.num_features} features: {published.output}",
        "parameters": _millions(published),
        "license": published.license or "no source; read the page of the weights",
        "facts from": published.sources,
        "weights": published.source,
        "SHA-256": published.sha256 or "no source",
        "params": f"encoder: {{name: {name}, weights: FILE, sha256: DIGEST, {_NULLS}}}",
    }
    return "\n".join([name, *(f"  {key + ':':<18}{value}" for key, value in facts.items())])


def _millions(published: Published) -> str:
    return f"{published.num_parameters / 1e6:,.0f} M"


def _mpps(published: Published) -> str:
    return ", ".join(f"{mpp:g}" for mpp in published.mpps) if published.mpps else "no source"
