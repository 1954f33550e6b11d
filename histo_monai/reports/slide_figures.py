"""ROC curves of slides and FROC curves of lesions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from histo_monai.evaluation.metrics import Estimate
from histo_monai.reports.drawing import COLORS, GRAY, INK, PALE, drawn, new_figure, plain

_LINES = ("-", "--", "-.", ":")


def roc(
    is_positive: ArrayLike,
    scores: Mapping[str, ArrayLike],
    areas: Mapping[str, Estimate],
    classes: tuple[str, str] = ("normal", "tumor"),
) -> np.ndarray:
    """ROC curves of slides, (H, W, 3), uint8.

    Args:
        is_positive: (n,), bool.
        scores: model -> (n,).
        areas: model -> AUC.
        classes: names of the negative and the positive class.
    """
    labels = np.asarray(is_positive, bool)
    negative, positive = classes
    figure = new_figure(5.2, 5.0)
    axis = figure.subplots()
    axis.plot([0, 1], [0, 1], color=PALE, linewidth=1)
    for number, (name, values) in enumerate(scores.items()):
        wrong, right, _ = roc_curve(labels, np.asarray(values))
        axis.plot(
            wrong,
            right,
            _LINES[number % 4],
            color=COLORS[number % len(COLORS)],
            linewidth=2,
            label=_with_interval(name, areas[name]),
        )
    axis.set(
        xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=f"{negative} slides called {positive}", aspect="equal"
    )
    axis.set_ylabel(f"{positive} slides found")
    axis.set_title(
        f"{labels.sum()} {positive} and {(~labels).sum()} {negative} slides", fontsize=11, color=INK
    )
    axis.legend(loc="best", fontsize=9, frameon=False, title="AUC (95 % interval)", title_fontsize=9)
    plain(axis)
    return drawn(figure)


def froc_curves(
    curves: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    scores: Mapping[str, Estimate],
    rates: ArrayLike,
) -> np.ndarray:
    """FROC curves, (H, W, 3), uint8: lesion sensitivity against false positives per slide.

    Args:
        curves: model -> false positives per slide and sensitivity, (n,) each, ascending.
        scores: model -> FROC score.
        rates: false positives per slide whose mean sensitivity is the score.
    """
    figure = new_figure(6.2, 4.4)
    axis = figure.subplots()
    ticks = np.asarray(rates, float)
    for rate in ticks:
        axis.axvline(rate, color=PALE, linewidth=0.8)
    for number, (name, (false_positives, sensitivity)) in enumerate(curves.items()):
        axis.step(
            [ticks[0] / 2, *np.maximum(false_positives, ticks[0] / 2), ticks[-1] * 2],
            [0, *sensitivity, sensitivity.max(initial=0.0)],
            _LINES[number % 4],
            where="post",
            color=COLORS[number % len(COLORS)],
            linewidth=2,
            label=_with_interval(name, scores[name]),
        )
    axis.set_xscale("log")
    axis.set_xticks(ticks, [f"{rate:g}" for rate in ticks])
    axis.minorticks_off()
    axis.set(xlim=(ticks[0] / 2, ticks[-1] * 2), ylim=(-0.02, 1.02))
    axis.set_xlabel("false positives per slide")
    axis.set_ylabel("lesions found")
    axis.legend(loc="lower right", fontsize=9, frameon=False, title="score (95 % interval)", title_fontsize=9)
    plain(axis)
    axis.text(0.01, 1.01, "gray: rates of the score", transform=axis.transAxes, fontsize=8.5, color=GRAY)
    return drawn(figure)


def _with_interval(name: str, estimate: Estimate) -> str:
    return f"{name}: {estimate.value:.3f} ({estimate.low:.2f} to {estimate.high:.2f})"
