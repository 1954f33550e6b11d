"""Report section on whole slides: diagnoses and a viewer of maps."""

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
    """Section on diagnoses and maps.

    Args:
        slides: mapped: `slide_id`, `split`, `label`, `size`, `num_cells`.
        scores: diagnosed: `slide_id` and `<model>_score`.
        run: name of the run.
        entries: slides in the viewer.
        classes: mapped classes; empty for a score.
        estimates: model -> metric -> value, low, high, of test slides.
        positive: diagnosed label.
        why_none: reason if no slide was mapped.
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
        blocks.append(missing("No diagnosis", "it needs labeled slides of both kinds in training and test"))
    blocks.append(_table(slides, scores, {entry.slide_id for entry in entries}))
    return Section("slides", title, blocks)


def _estimates(estimates: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    names = list(dict.fromkeys(metric for of_model in estimates.values() for metric in of_model))
    rows = []
    for metric in names:
        cells = [Cell(metric.replace("_", " "))]
        for model in estimates:
            value = estimates[model].get(metric)
            cell = Cell("—")
            if isinstance(value, Mapping) and value.get("value") is not None:
                low, high = (np.nan if value.get(end) is None else value[end] for end in ("low", "high"))
                cell = number(value["value"], low, high)
            elif isinstance(value, int | float):
                cell = number(value)
            cells.append(cell)
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
    words = f"{len(test)} test slides, {int(known.sum())} of them {positive}. Dashed line: chance."
    spec = charts.steps(rows, "false positives", "sensitivity", diagonal=True)
    return Chart("ROC curves of slides", spec, words)


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
        note += " Scores are signed distances from the decision boundary: above 0 is positive."
    return Table("All mapped slides", head, rows, note=note)


def in_order_of_interest(slides: pd.DataFrame, scores: pd.DataFrame, positive: str) -> pd.DataFrame:
    """Slides by interest, test slides first: alternately worst diagnosed, best positive, others.

    Args:
        slides: `slide_id`, `split`, `label`.
        scores: `slide_id`, and `student_score` after a diagnosis.
        positive: diagnosed label.
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
