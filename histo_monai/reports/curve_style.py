"""How pictures of sweeps look, and how they are written: the same method has the same color in all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from histo_monai.errors import InputError
from histo_monai.reports.drawing import INK, PALE
from histo_monai.reports.tables import in_words, model_id

STAGES = ("finetune", "consistency")
COLORS = {"random": "#333333", "vae": "#E69F00", "moco": "#009E73", "rsp": "#0072B2"}
"""Okabe & Ito 2008, and ink for the baseline; other methods take the rest in alphabetical order."""

STYLE: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#eeeeee",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": PALE,
    "ytick.color": PALE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}

_OTHER_COLORS = ("#D55E00", "#CC79A7", "#56B4E9")
_MARKERS = {"random": "o", "vae": "s", "moco": "^", "rsp": "D"}


@dataclass(frozen=True)
class Line:
    """One method at one stage: how it is drawn, and its place among those side by side, 0 in the middle."""

    method: str
    stage: str
    color: str
    place: float

    @property
    def label(self) -> str:
        """E.g. "RSP + CR"."""
        return in_words(model_id(self.method, self.stage))

    @property
    def style(self) -> dict[str, Any]:
        """Dashed and open where fine-tuned, solid and filled after consistency training."""
        return {"color": self.color, "linewidth": 1.7, **self.marker} | (
            {"linestyle": "-"} if self.stage == "consistency" else {"linestyle": (0, (4, 2.5))}
        )

    @property
    def marker(self) -> dict[str, Any]:
        """The marker alone."""
        filled = self.stage == "consistency"
        return {
            "marker": _MARKERS.get(self.method, "P"),
            "markersize": 6.5,
            "markerfacecolor": self.color if filled else "white",
            "markeredgecolor": "white" if filled else self.color,
            "markeredgewidth": 0.7 if filled else 1.4,
        }


def lines(rows: pd.DataFrame) -> list[Line]:
    """One for each method and stage that the rows have, methods in the order of the colors.

    Raises:
        InputError: If a stage is unknown.
    """
    unknown = sorted(set(rows["stage"]) - set(STAGES))
    if unknown:
        raise InputError(f"stage {unknown[0]!r}: expected one of {', '.join(STAGES)}")
    others = sorted(set(rows["method"]) - set(COLORS))
    colors = COLORS | {name: _OTHER_COLORS[i % len(_OTHER_COLORS)] for i, name in enumerate(others)}
    present = set(zip(rows["method"], rows["stage"], strict=True))
    pairs = [(name, stage) for name in colors for stage in STAGES if (name, stage) in present]
    middle = (len(pairs) - 1) / 2
    return [Line(name, stage, colors[name], i - middle) for i, (name, stage) in enumerate(pairs)]


def require_columns(table: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise a ValueError that tells which columns a table lacks."""
    missing = [name for name in names if name not in table]
    if missing:
        raise InputError(f"the table lacks {', '.join(missing)}: it has {', '.join(map(str, table))}")


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write `<stem>.png` and `<stem>.svg`: the same picture gives the same bytes, with no date and no version.

    Args:
        figure: to write.
        stem: path without suffix; its folder is made where it does not exist.

    Returns:
        The two paths.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("png", "svg"))
    figure.draw_without_rendering()  # The layout settles in a second pass where names are long.
    with mpl.rc_context({"svg.hashsalt": "histo_monai"}):
        figure.savefig(png, dpi=150, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg
