"""How pictures of sweeps look, and how they are written: the same method has the same color in all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from histo_monai import escapes
from histo_monai.comparison.rows import Row
from histo_monai.errors import InputError
from histo_monai.reports.drawing import INK, PALE
from histo_monai.reports.tables import in_words

COLORS = {"random": "#333333", "vae": "#E69F00", "moco": "#009E73", "rsp": "#0072B2", "rsp_moco": "#D55E00"}
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

_OTHER_COLORS = ("#CC79A7", "#56B4E9", "#F0E442")
_OF_STUDENTS: tuple[Any, ...] = ("-", "-.", (0, (1, 1.2)), (0, (7, 1.5, 1, 1.5)))
_MARKERS = {"random": "o", "vae": "s", "moco": "^", "rsp": "D", "rsp_moco": "v"}


@dataclass(frozen=True)
class Line:
    """One method after one training: how it is drawn, and its place among those side by side, 0 in the middle.

    Attributes:
        method: of the pretraining.
        training: "finetune", or the name of a semi-supervised method.
        color: of the method.
        place: among the lines.
        dashes: of the training.
    """

    method: str
    training: str
    color: str
    place: float
    dashes: Any

    @property
    def label(self) -> str:
        """E.g. "RSP + CR"."""
        return in_words(Row(self.method, self.training).id)

    @property
    def style(self) -> dict[str, Any]:
        """Dashed and open where fine-tuned; students filled, the first solid."""
        return {"color": self.color, "linewidth": 1.7, "linestyle": self.dashes, **self.marker}

    @property
    def marker(self) -> dict[str, Any]:
        """The marker alone."""
        filled = self.training != "finetune"
        return {
            "marker": _MARKERS.get(self.method, "P"),
            "markersize": 6.5,
            "markerfacecolor": self.color if filled else "white",
            "markeredgecolor": "white" if filled else self.color,
            "markeredgewidth": 0.7 if filled else 1.4,
        }


def lines(rows: pd.DataFrame) -> list[Line]:
    """One for each method and training that the rows have, methods in the order of the colors."""
    students = sorted(set(rows["training"]) - {"finetune"})
    dashes: dict[str, Any] = {"finetune": (0, (4, 2.5))}
    dashes |= {name: _OF_STUDENTS[i % len(_OF_STUDENTS)] for i, name in enumerate(students)}
    others = sorted(set(rows["method"]) - set(COLORS))
    colors = COLORS | {name: _OTHER_COLORS[i % len(_OTHER_COLORS)] for i, name in enumerate(others)}
    present = set(zip(rows["method"], rows["training"], strict=True))
    pairs = [(name, training) for name in colors for training in dashes if (name, training) in present]
    middle = (len(pairs) - 1) / 2
    return [
        Line(name, training, colors[name], i - middle, dashes[training])
        for i, (name, training) in enumerate(pairs)
    ]


def require_columns(table: pd.DataFrame, names: Iterable[str]) -> None:
    """Raise an `InputError` that names the columns a table lacks."""
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
    escapes.figure(figure)
    figure.draw_without_rendering()  # The layout settles in a second pass where names are long.
    with mpl.rc_context({"svg.hashsalt": "histo_monai"}):
        figure.savefig(png, dpi=150, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg
