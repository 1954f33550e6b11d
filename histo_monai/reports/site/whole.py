"""Whole slides: how they were diagnosed, and a viewer of their maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

from histo_monai.data.tables.slide_scores import score_column
from histo_monai.reports.site import charts
from histo_monai.reports.site.blocks import Block, Cell, Chart, Lines, Section, Table, Viewer, missing, number
from histo_monai.reports.site.viewer import SlideEntry
from histo_monai.utils.roles import MODELS


def slides_section(
    slides: pd.DataFrame,
    scores: pd.DataFrame,
    run: str,
    entries: Sequence[SlideEntry],
    classes: Sequence[str],
    estimates: Mapping[str, Mapping[str, Mapping[str, float]]],
    positive: str,
    why_none: str,
) -> Section:
    """The section.

    Args:
        slides: mapped: `slide_id`, `split`, `label`, `size`, `num_cells`.
        scores: diagnosed: `slide_id` and `<model>_score`, where there was a diagnosis.
        run: whose maps they are.
        entries: slides in the viewer.
        classes: whose probabilities are mapped; empty for a score.
        estimates: model -> metric -> value, low, high, of test slides.
        positive: the label that was diagnosed.
        why_none: where no slide was mapped.
    """
    title = "Whole slides"
    if slides.empty:
        return Section("slides", title, [missing("No slide was mapped", why_none)])
    blocks: list[Block] = [
        Lines([f"Maps by {run}: {len(slides)} slides, {len(entries)} of them in the viewer."])
    ]
    if entries:
        blocks.append(
            Viewer(
                [entry.as_dict() for entry in entries], list(MODELS), list(classes), 50 if estimates else 0
            )
        )
    else:
        blocks.append(missing("No viewer", "report.num_slides is 0"))
    if estimates:
        blocks.append(_estimates(estimates))
        roc = _roc(slides, scores, positive)
        blocks += [roc] if roc else []
    else:
        blocks.append(
            missing("No diagnosis", "slides of both kinds with labels, in training and test, are needed")
        )
    blocks.append(_table(slides, scores, {entry.slide_id for entry in entries}))
    return Section("slides", title, blocks)


def _estimates(estimates: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    names = list(dict.fromkeys(metric for of_model in estimates.values() for metric in of_model))
    rows = []
    for metric in names:
        cells = [Cell(metric.replace("_", " "))]
        for model in estimates:
            value = estimates[model].get(metric)
            told = Cell("—")
            if isinstance(value, Mapping) and value.get("value") is not None:
                low, high = (np.nan if value.get(end) is None else value[end] for end in ("low", "high"))
                told = number(value["value"], low, high)
            elif isinstance(value, int | float):
                told = number(value)
            cells.append(told)
        rows.append(cells)
    return Table("Test slides", ["", *estimates], rows)


def _roc(slides: pd.DataFrame, scores: pd.DataFrame, positive: str) -> Chart | None:
    test = scores[(scores["split"] == "test") & (scores["label"] != "")]
    known = (test["label"] == positive).to_numpy()
    columns = [name for name in MODELS if score_column(name) in test]
    if not columns or known.all() or not known.any():
        return None
    rows = []
    for name in columns:
        false, true, _ = roc_curve(known, test[score_column(name)].to_numpy(float))
        rows += [
            {"name": name, "x": round(float(x), 5), "y": round(float(y), 5)}
            for x, y in zip(false, true, strict=True)
        ]
    words = f"{len(test)} test slides, {int(known.sum())} of them {positive}. On the dashed line a score tells nothing."
    spec = charts.steps(rows, "false positives", "sensitivity", diagonal=True)
    return Chart("Which slides are positive", spec, words)


def _table(slides: pd.DataFrame, scores: pd.DataFrame, shown: set[str]) -> Table:
    columns = [score_column(name) for name in MODELS if score_column(name) in scores]
    given = {column: pd.to_numeric(scores.set_index("slide_id")[column]) for column in columns}
    rows = []
    slide: Any
    for slide in slides.itertuples():
        cells = [
            Cell(slide.slide_id, None, False, slide.slide_id if slide.slide_id in shown else ""),
            *(Cell(text or "—") for text in (slide.split, slide.label, slide.size)),
            Cell(f"{slide.num_cells:,}", float(slide.num_cells)),
        ]
        scored = [number(float(given[column].get(slide.slide_id, np.nan))) for column in columns]
        rows.append([*cells, *scored])
    names = [name.removesuffix("_score") for name in columns]
    head = ["slide", "split", "label", "size", "cells", *(f"score, {name}" for name in names)]
    note = "A slide that is a link opens in the viewer."
    if columns:
        note += " Scores are signed distances from the classifier's border: above 0 it says positive."
    return Table("All mapped slides", head, rows, note=note)


def in_order_of_interest(slides: pd.DataFrame, scores: pd.DataFrame, positive: str) -> pd.DataFrame:
    """Slides of the test before others; in turn the worst diagnosed, the best of the positive, and of the others.

    Args:
        slides: `slide_id`, `split`, `label`.
        scores: `slide_id`, and `student_score` where there was a diagnosis.
        positive: the label that was diagnosed.
    """
    column = score_column(MODELS[-1])
    if column not in scores:
        return slides.sort_values("split", key=lambda split: split != "test", kind="stable")
    given = (
        pd.to_numeric(scores.set_index("slide_id")[column], errors="coerce")
        .reindex(slides["slide_id"])
        .to_numpy()
    )
    sign = np.where(slides["label"] == positive, 1.0, -1.0)
    right = np.nan_to_num(given * sign, nan=0.0)
    kind = np.where(right < 0, 0, np.where(sign > 0, 1, 2))
    order = pd.DataFrame(
        {"kind": kind, "clear": -np.abs(right), "late": (slides["split"] != "test").to_numpy()}
    )
    order["turn"] = order.sort_values(["late", "clear"], kind="stable").groupby(["late", "kind"]).cumcount()
    return slides.iloc[order.sort_values(["late", "turn", "kind"], kind="stable").index]
