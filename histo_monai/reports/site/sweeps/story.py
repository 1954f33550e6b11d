"""Sentences of the sweep page: methods that save labels, and limits of the results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from histo_monai.evaluation.comparison.learning_curve import FEWEST_SIZES
from histo_monai.evaluation.comparison.rows import SUPERVISED
from histo_monai.reports.site.blocks import number
from histo_monai.reports.site.sweeps.family import (
    COSTS,
    OPEN,
    SAVES,
    FamilyTables,
    OfMetric,
    name_of,
    surely,
    verdict,
)
from histo_monai.reports.tables import in_words

BASELINE = in_words(SUPERVISED.id)
"""Name of the baseline."""
_FEW_SEEDS = 5
_MORE_ALPHAS = "`dvc exp run --queue -S alpha=0.05,0.1,0.2,1.0`, `dvc queue start`, then `histo-monai curves`"


def story(family: FamilyTables) -> list[str]:
    """Sentences: answer, labels saved by each model, agreement of other metrics."""
    first = family.of(family.metrics[0])
    if not first.has_ratios:
        return [_why_unknown(first), *_best_of_fewest_labels(first)]
    rows: list[Any] = list(first.saved.itertuples())
    sure = [row for row in rows if verdict(row) == SAVES]
    if not sure:
        return [*_nothing_shown(rows, first.name), *_by_model(rows)]
    best = max(sure, key=lambda row: (not row.extrapolated, surely(row)))
    answer = (
        f"{name_of(best)} saves labels: with {_labels(best)} its {first.name} is {best.value:.3f}; "
        f"{BASELINE}, the supervised baseline, needs {best.text}."
    )
    if best.extrapolated:
        answer += " This number is extrapolated beyond the baseline's largest number of labels."
    return [answer, *_by_other_metrics(family, best), *_by_model(rows)]


def doubts(family: FamilyTables) -> list[str]:
    """Limits of the results, one line each."""
    first = family.of(family.metrics[0])
    return [*_doubts_of_runs(family, first), *(_doubts_of_ratios(first) if first.has_ratios else [])]


def _why_unknown(metric: OfMetric) -> str:
    if metric.baseline.empty:
        return (
            f"Labels saved are unknown: {BASELINE}, the supervised baseline, was not run. "
            "Add `random` to `pretraining_methods`."
        )
    only: Any = next(metric.baseline.itertuples())
    return (
        f"Labels saved are unknown: {BASELINE}, the supervised baseline, was run only with {_labels(only)}. "
        f"Run two or more numbers of labels: {_MORE_ALPHAS}."
    )


def _best_of_fewest_labels(metric: OfMetric) -> Iterator[str]:
    """Sentences on the best model at the fewest labels, and the baseline there."""
    known = metric.points.dropna(subset=["value"])
    known = known[known["num_labels"] == known["num_labels"].min()]
    if known.empty:
        return
    best: Any = next(known.sort_values("value", ascending=False).itertuples())
    text = f"With {_labels(best)} {name_of(best)} has the highest {metric.name}: {_value(best)}"
    others = metric.baseline[metric.baseline["num_labels"] == best.num_labels]
    if len(others) and name_of(best) != BASELINE:
        base: Any = next(others.itertuples())
        text += f"; {BASELINE} has {_value(base)}. Paired tests are in data/report"
    yield f"{text}."


def _nothing_shown(rows: list[Any], name: str) -> list[str]:
    known = [row for row in rows if surely(row) > 0 or row.ratio > 0]
    text = (
        f"No model is shown to save labels: by {name}, no interval of labels saved is above 1, the number that "
        f"{BASELINE}, the supervised baseline, needs."
    )
    if not known:
        return [text]
    near = max(known, key=lambda row: (surely(row), row.ratio))
    return [
        text,
        f"The largest lower end is of {name_of(near)} with {_labels(near)}: {BASELINE} needs {near.text}.",
    ]


def _by_other_metrics(family: FamilyTables, best: Any) -> Iterator[str]:
    """Sentence on other metrics of the best model."""
    words = {SAVES: "", OPEN: ", which shows no saving", COSTS: ", more labels than the baseline"}
    parts = []
    for metric in map(family.of, family.metrics[1:]):
        if len(metric.saved):
            rows: Any = metric.saved.itertuples()
            same = [row for row in rows if (name_of(row), row.num_labels) == (name_of(best), best.num_labels)]
            parts += [f"by {metric.name} {row.text}{words[verdict(row)]}" for row in same]
    if parts:
        text = "; ".join(parts)
        yield f"{text[:1].upper()}{text[1:]}."


def _by_model(rows: list[Any]) -> Iterator[str]:
    """Sentences on the numbers of labels at which each model saves labels."""
    words = {
        SAVES: "saves labels with",
        COSTS: "needs more labels than the baseline with",
        OPEN: "no saving is shown with",
    }
    for name in dict.fromkeys(map(name_of, rows)):
        own = [row for row in rows if name_of(row) == name]
        parts = []
        for kind, text in words.items():
            counts = [f"{row.num_labels:,.0f}" for row in own if verdict(row) == kind]
            if counts:
                parts.append(f"{text} {_listed(counts)}")
        yield f"{name}: {'; '.join(parts)} labels."


def _doubts_of_runs(family: FamilyTables, metric: OfMetric) -> Iterator[str]:
    points = metric.points
    if family.split != "test":
        yield f"These are patches of {family.split}, used for model selection: expect lower values on other patches."
    if points["num_labels"].nunique() == 1:
        yield "Only one number of labels was run: points, no curve."
    fewest, most = int(points["num_seeds"].min()), int(points["num_seeds"].max())
    if fewest == 1:
        alone = (
            "One seed"
            if most == 1
            else f"{(points['num_seeds'] == 1).sum()} of {len(points)} points: one seed"
        )
        yield f"{alone}: intervals include variation of patients, but not of label subsets and training."
    elif fewest < _FEW_SEEDS:
        yield f"{fewest} seeds are few: variation between label subsets is uncertain."
    if points["num_encoders"].max() == 1:
        yield "One encoder per method: intervals do not include variation of pretraining."


def _doubts_of_ratios(metric: OfMetric) -> Iterator[str]:
    rows: list[Any] = list(metric.saved.itertuples())
    if not rows:
        yield f"{BASELINE} is the only model: there is no comparison."
        return
    num_open = sum(verdict(row) == OPEN for row in rows)
    if num_open:
        yield (
            f"{num_open} of {len(rows)} intervals include 1 or are unknown: these show no saving, whatever the mean."
        )
    if len(rows) > 1 and num_open < len(rows):
        yield (
            f"The answer is the best of {len(rows)} ratios, selected after the fact; each interval is 95 %, not "
            "adjusted for their number."
        )
    extrapolated = int(metric.saved["extrapolated"].astype(bool).sum())
    if extrapolated:
        yield (
            f"{extrapolated} of {len(rows)} ratios are extrapolated beyond the largest number of labels: they assume "
            "a power law, and the intervals do not include this assumption."
        )
    sizes = metric.baseline["num_labels"].nunique()
    if sizes < FEWEST_SIZES:
        yield (
            f"{BASELINE} was run with {sizes} numbers of labels, and {FEWEST_SIZES} are needed for a power law: beyond "
            "the largest, only a lower limit is known."
        )


def _labels(row: Any) -> str:
    """ "60 labels (10 % of all)"."""
    return f"{row.num_labels:,.0f} labels ({100 * row.alpha:g} % of all)"


def _value(row: Any) -> str:
    return number(row.value, row.low, row.high).text


def _listed(words: list[str]) -> str:
    """ "60, 150 and 600"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
