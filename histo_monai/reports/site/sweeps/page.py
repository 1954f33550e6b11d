"""Sections of the page of all experiments: answer, charts, numbers, experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from histo_monai.evaluation.comparison.rows import FINETUNE
from histo_monai.reports.site.blocks import Block, Cell, Chart, Lines, Section, Table, missing, number
from histo_monai.reports.site.sweeps.charts import (
    against_setting,
    law_rows,
    learning_curves,
    ratios,
    values_with_runs,
)
from histo_monai.reports.site.sweeps.family import SAVES, FamilyTables, OfMetric, looks_of, name_of, verdict
from histo_monai.reports.site.sweeps.story import BASELINE, doubts, story

TITLE = "The labels that each method saves"

LeftOut = tuple[str, str]
"""Experiment, and the reason for its exclusion."""


def sweep_sections(
    families: Sequence[FamilyTables],
    experiments: Sequence[Mapping[str, str | float]],
    left_out: Sequence[LeftOut],
    warnings: Sequence[str],
) -> list[Section]:
    """Sections in order.

    Args:
        families: one or more.
        experiments: used ones: column -> text or number.
        warnings: one line each.
    """
    several = len(families) > 1
    answers = []
    for i, family in enumerate(families):
        answers.append(_answer(family, warnings if i == 0 else [], several))
        if len(family.metrics) > 1:
            answers.append(_other_metrics(family, several))
        answers += _settings(family, several)
    tables = [table for family in families for table in _tables(family)]
    words = (
        "Files with more digits are beside this page: `points.csv`, `runs.csv`, `labels_saved.csv`, "
        "`labels_needed.csv`, `power_laws.csv`."
    )
    numbers = Section("numbers", "All numbers", [Lines([words]), *tables])
    return [*answers, numbers, _experiments(experiments, left_out)]


def subtitle(families: Sequence[FamilyTables], num_used: int, num_left_out: int) -> str:
    """Subtitle: number of experiments, splits, kind of intervals."""
    names = ", ".join(family.name for family in families)
    splits = " and ".join(sorted({family.split for family in families}))
    used = f"{num_used} experiment{'s' * (num_used > 1)}, {num_left_out or 'none'} left out"
    return f"{names}: {used}; {splits} patches; intervals are 95 %, over patients and seeds."


def _answer(family: FamilyTables, warnings: Sequence[str], several: bool) -> Section:
    known = [*warnings, *doubts(family)]
    notes = [f"{line[:1].upper()}{line[1:]}" for line in known]
    blocks: list[Block] = [Lines(story(family), "lead")]
    blocks += [Lines(["Limits of these results", *notes], "warning")] if notes else []
    if family.differences:
        blocks.append(Lines([f"Different params of these experiments:{family.differences}"]))
    if (family.points["training"] != FINETUNE).any():
        mu, n_aug = family.setting
        others = family.points.loc[family.points["training"] != FINETUNE, ["mu", "n_aug"]].drop_duplicates()
        rest = "; the tables list the others" if len(others) > 1 else ""
        blocks.append(Lines([f"Students have mu {mu:g} and n_aug {n_aug:g}{rest}."]))
    blocks += _charts(family, family.of(family.metrics[0]), wide=True)
    title = f"Labels saved: {family.name}" if several else "Labels saved"
    return Section(family.name, title, blocks)


def _other_metrics(family: FamilyTables, several: bool) -> Section:
    others = [family.of(metric) for metric in family.metrics[1:]]
    blocks = [block for metric in others for block in _charts(family, metric, wide=False)]
    title = f"Other metrics: {family.name}" if several else "Other metrics"
    return Section(f"{family.name}-others", title, blocks)


def _settings(family: FamilyTables, several: bool) -> list[Section]:
    """Sections of the main metric against mu and n_aug, a chart per fraction of the labels; empty with one value."""
    points = family.points[family.points["metric"].eq(family.metrics[0])].dropna(subset=["value"])
    is_finetuned = points["training"].eq(FINETUNE)
    blocks: list[Block] = []
    for setting, other in (("mu", "n_aug"), ("n_aug", "mu")):
        charts: Any = points[~is_finetuned].groupby(["alpha", other])
        for (alpha, value), same in charts:
            if same[setting].nunique() > 1:
                base = points[
                    is_finetuned & points["alpha"].eq(alpha) & points["method"].isin(same["method"])
                ]
                blocks.append(
                    _against(
                        family, same, base, setting, f"{100 * alpha:g} % of the labels, {other} {value:g}"
                    )
                )
    title = f"mu and n_aug: {family.name}" if several else "mu and n_aug"
    return [Section(f"{family.name}-settings", title, blocks)] if blocks else []


def _against(
    family: FamilyTables, points: pd.DataFrame, base: pd.DataFrame, setting: str, where: str
) -> Chart:
    name = family.of(family.metrics[0]).name
    rows = _records(points, [setting, "value", "low", "high"])
    spec = against_setting(rows, _records(base, ["value"]), family.series, setting, name)
    title = f"{name[:1].upper()}{name[1:]} against {setting}, {where}"
    return Chart(
        title,
        spec,
        "Means of the students, with 95 % intervals. Dashed: the fine-tuned model of each pretraining.",
    )


def _charts(family: FamilyTables, metric: OfMetric, *, wide: bool) -> list[Block]:
    known = metric.points.dropna(subset=["value"])
    name = f"{metric.name[:1].upper()}{metric.name[1:]}"
    if known.empty:
        return [missing(name, "no model has a value")]
    if known["num_labels"].nunique() == 1:
        return [_values(known, metric, name, wide)]
    blocks: list[Block] = [_curves(family, known, metric, name, wide)]
    stated = metric.saved.dropna(subset=["ratio"]) if len(metric.saved) else metric.saved
    if metric.has_ratios and len(stated):
        return [*blocks, _ratios(family, stated, metric.name, wide)]
    return [*blocks, missing(f"Labels saved by {metric.name}", "unknown for the reason above")]


def _curves(family: FamilyTables, known: pd.DataFrame, metric: OfMetric, name: str, wide: bool) -> Chart:
    points = _records(known, ["num_labels", "value", "low", "high"])
    runs = _records(metric.runs.dropna(subset=["value"]), ["num_labels", "value", "encoder", "seed"])
    fewest = float(known["num_labels"].min())
    fitted: list[Any] = list(metric.laws.itertuples())
    reached = [(law, _reach(family, metric, law)) for law in fitted]
    laws = [
        row
        for law, reach in reached
        if reach > law.largest
        for row in law_rows(looks_of(law), law._asdict(), fewest, reach)
    ]
    words = (
        f"{name} on {family.split}. Filled: mean over encoders and seeds with 95 % interval. Small circles: "
        "runs. Models are slightly offset."
    )
    if laws:
        words += " Dotted: inverse power law through the means, used for extrapolation."
    elif len(fitted) == 0:
        words += " No power law is fitted: a fit needs four numbers of labels and a rise above the noise."
    else:
        words += " No result is extrapolated, so no power law is drawn."
    spec = learning_curves(points, runs, laws, family.series, metric.name)
    return Chart(f"{name} against the number of labels", spec, words, wide=wide)


def _reach(family: FamilyTables, metric: OfMetric, law: Any) -> float:
    """Largest number of labels in an answer about a model."""
    needed = family.labels_needed
    own = needed[needed["metric"].eq(metric.metric) & (needed["method"] == law.method)]
    counts = own.loc[
        own["training"].eq(law.training) & own["extrapolated"].astype(bool), "num_labels"
    ].tolist()
    if name_of(law) == BASELINE and len(metric.saved):
        counts += metric.saved.loc[metric.saved["extrapolated"].astype(bool), "needed_value"].tolist()
    return max([law.largest, *(count for count in counts if np.isfinite(count))])


def _ratios(family: FamilyTables, stated: pd.DataFrame, name: str, wide: bool) -> Chart:
    table: list[Any] = list(stated.itertuples())
    rows = [
        {
            **looks_of(row), "label": f"{row.num_labels:.0f} labels, {name_of(row)}", "text": row.text,
            "ratio": row.ratio, "low": row.ratio_low, "high": row.ratio_high,
            "fewest": row.ratio_fewest, "most": row.ratio_most, "extrapolated": row.extrapolated,
        }
        for row in table
    ]  # fmt: skip
    words = (
        f"Labels that {BASELINE} needs for an equal score, per label of the model; above 1, the model saves labels. "
        "Bars: 95 % intervals. Arrows: open ends. Hollow: extrapolated."
    )
    return Chart(f"Labels saved, by {name}", ratios(rows, family.series), words, wide=wide)


def _values(known: pd.DataFrame, metric: OfMetric, name: str, wide: bool) -> Chart:
    kinds = known["training"].map(lambda training: "fine-tuned" if training == FINETUNE else "student")
    points = _records(known.assign(kind=kinds), ["value", "low", "high", "kind"])
    runs = _records(metric.runs.dropna(subset=["value"]), ["value", "encoder", "seed"])
    count = f"{known['num_labels'].iloc[0]:,.0f} labels"
    words = f"{name} with {count}, the only number of labels. Bars: 95 % intervals. Ticks: runs."
    return Chart(f"{name} with {count}", values_with_runs(points, runs, metric.name), words, wide=wide)


def _records(table: pd.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """Chart rows: model in words, and columns as JSON values."""
    rows: list[Any] = list(table.itertuples())
    return [looks_of(row) | {name: _plain(getattr(row, name)) for name in names} for row in rows]


def _plain(value: Any) -> str | float | None:
    if isinstance(value, str):
        return value
    return round(float(value), 6) if np.isfinite(value) else None


def _tables(family: FamilyTables) -> list[Block]:
    points = _points_table(family)
    blocks: list[Block] = [points]
    if len(family.labels_saved):
        blocks.append(_saved_table(family))
    blocks.append(_needed_table(family))
    return blocks


def _points_table(family: FamilyTables) -> Table:
    """Table with a row per model and setting, a column per metric."""
    setting = ["method", "training", "alpha", "num_labels", "mu", "n_aug", "num_encoders", "num_seeds"]
    rows = []
    for _, same in family.points.groupby(setting, dropna=False, sort=False):
        first: Any = next(same.itertuples())
        of_metric = same.set_index("metric")[["value", "low", "high"]]
        cells = [
            Cell(name_of(first)),
            _count(first.num_labels),
            Cell(f"{100 * first.alpha:g} %", float(first.alpha)),
            *(_setting(value) for value in (first.mu, first.n_aug)),
            _runs(first),
        ]
        rows.append([*cells, *(number(*of_metric.loc[metric]) for metric in family.metrics)])
    names = [family.of(metric).name for metric in family.metrics]
    head = ["model", "labels", "fraction", "mu", "n_aug", "runs", *names]
    return Table(f"{family.name}: every model at every number of labels", head, rows)


def _saved_table(family: FamilyTables) -> Table:
    table: list[Any] = list(family.labels_saved.itertuples())
    rows = [
        [
            Cell(family.of(row.metric).name),
            Cell(name_of(row)),
            _count(row.num_labels),
            number(row.value),
            _ratio_of_labels_saved(row, marked=family.of(row.metric).has_ratios and verdict(row) == SAVES),
            Cell(row.reason, long=True),
        ]
        for row in table
    ]
    head = ["metric", "model", "labels", "score", "the baseline needs", "basis"]
    note = f"The baseline is {BASELINE}. Marked: interval above 1. Open intervals sort by their stated end."
    return Table(f"{family.name}: labels saved", head, rows, note)


def _ratio_of_labels_saved(row: Any, *, marked: bool) -> Cell:
    """Cell sorted by its value or its stated end."""
    if np.isnan(row.ratio):
        return Cell("—")
    return Cell(row.text, float(np.clip(row.ratio, row.ratio_fewest, row.ratio_most)), marked)


def _needed_table(family: FamilyTables) -> Table:
    table: list[Any] = list(family.labels_needed.itertuples())
    rows = [
        [
            Cell(family.of(row.metric).name),
            Cell(name_of(row)),
            number(row.score),
            Cell(row.text, float(row.num_labels) if np.isfinite(row.num_labels) else None),
            Cell(row.reason, long=True),
        ]
        for row in table
    ]
    head = ["metric", "model", "score", "labels that it needs", "basis"]
    note = "Score: best of all models, or `--score`."
    return Table(f"{family.name}: labels needed for one score", head, rows, note, folded=True)


def _count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", float(value))


def _runs(row: Any) -> Cell:
    """ "3", or "6 of 2 encoders"."""
    encoders = f" of {row.num_encoders} encoders" if row.num_encoders > 1 else ""
    return Cell(f"{row.num_seeds}{encoders}", float(row.num_seeds))


def _setting(value: float) -> Cell:
    return Cell("—") if np.isnan(value) else Cell(f"{value:g}", float(value))


def _experiments(experiments: Sequence[Mapping[str, str | float]], left_out: Sequence[LeftOut]) -> Section:
    head = list(experiments[0])
    rows = [
        [
            Cell(f"{value:g}", float(value)) if isinstance(value, int | float) else Cell(value)
            for value in row.values()
        ]
        for row in experiments
    ]
    blocks: list[Block] = [Table(f"Used: {len(rows)}", head, rows)]
    if left_out:
        cells = [[Cell(name), Cell(why, long=True)] for name, why in left_out]
        blocks.append(Table(f"Left out: {len(cells)}", ["experiment", "why"], cells))
    else:
        blocks.append(Lines(["No experiment was left out."]))
    return Section("experiments", "Experiments", blocks)
