"""What the page of a sweep says in words: which method saves labels, and what of it not to believe."""

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
    arm_of,
    surely,
    verdict,
)
from histo_monai.reports.tables import in_words

BASELINE = in_words(SUPERVISED.id)
"""Whose labels are counted, in words."""
_FEW_SEEDS = 5
_MORE_ALPHAS = "`dvc exp run --queue -S alpha=0.05,0.1,0.2,1.0`, `dvc queue start`, then `histo-monai curves`"


def story(family: FamilyTables) -> list[str]:
    """The answer, then what each model saves, and whether other metrics say the same; a sentence a line."""
    first = family.of(family.metrics[0])
    if not first.has_ratios:
        return [_why_unknown(first), *_what_was_seen(first)]
    rows: list[Any] = list(first.saved.itertuples())
    sure = [row for row in rows if verdict(row) == SAVES]
    if not sure:
        return [*_nothing_shown(rows, first.name), *_by_arm(rows)]
    best = max(sure, key=lambda row: (not row.extrapolated, surely(row)))
    answer = (
        f"{arm_of(best)} saves labels: with {_labels(best)} it reaches {first.name} {best.value:.3f}, for which "
        f"{BASELINE}, the supervised baseline, needs {best.told}."
    )
    if best.extrapolated:
        answer += " That is extrapolated: the baseline was not run with so many."
    return [answer, *_by_other_metrics(family, best), *_by_arm(rows)]


def doubts(family: FamilyTables) -> list[str]:
    """What not to believe, a line each."""
    first = family.of(family.metrics[0])
    return [*_doubts_of_runs(family, first), *(_doubts_of_ratios(first) if first.has_ratios else [])]


def _why_unknown(metric: OfMetric) -> str:
    if metric.baseline.empty:
        return (
            f"How many labels are saved is not known: {BASELINE}, the supervised baseline, was not run. "
            "Let `pretraining_methods` hold `random`."
        )
    only: Any = next(metric.baseline.itertuples())
    return (
        f"How many labels are saved is not known: {BASELINE}, the supervised baseline, was run with {_labels(only)} "
        f"alone, and a learning curve takes two numbers of labels or more: {_MORE_ALPHAS}."
    )


def _what_was_seen(metric: OfMetric) -> Iterator[str]:
    """The best model at the fewest labels, and the baseline there."""
    known = metric.points.dropna(subset=["value"])
    known = known[known["num_labels"] == known["num_labels"].min()]
    if known.empty:
        return
    best: Any = next(known.sort_values("value", ascending=False).itertuples())
    told = f"With {_labels(best)} {arm_of(best)} has the highest {metric.name}: {_value(best)}"
    others = metric.baseline[metric.baseline["num_labels"] == best.num_labels]
    if len(others) and arm_of(best) != BASELINE:
        base: Any = next(others.itertuples())
        told += f"; {BASELINE} has {_value(base)}. Whether that is a difference, paired tests say: see data/report"
    yield f"{told}."


def _nothing_shown(rows: list[Any], name: str) -> list[str]:
    known = [row for row in rows if surely(row) > 0 or row.ratio > 0]
    told = (
        f"No saving of labels is shown: by {name}, no interval of labels saved lies above 1, which is as many as "
        f"{BASELINE}, the supervised baseline, needs."
    )
    if not known:
        return [told]
    near = max(known, key=lambda row: (surely(row), row.ratio))
    return [told, f"The nearest to one is {arm_of(near)} with {_labels(near)}: {BASELINE} needs {near.told}."]


def _by_other_metrics(family: FamilyTables, best: Any) -> Iterator[str]:
    """What the other metrics say of the model of the answer."""
    words = {SAVES: "", OPEN: ", which shows no saving", COSTS: ", which is more labels, not fewer"}
    parts = []
    for metric in map(family.of, family.metrics[1:]):
        if len(metric.saved):
            rows: Any = metric.saved.itertuples()
            same = [row for row in rows if (arm_of(row), row.num_labels) == (arm_of(best), best.num_labels)]
            parts += [f"by {metric.name} {row.told}{words[verdict(row)]}" for row in same]
    if parts:
        told = "; ".join(parts)
        yield f"{told[:1].upper()}{told[1:]}."


def _by_arm(rows: list[Any]) -> Iterator[str]:
    """At which numbers of labels each model saves some."""
    words = {
        SAVES: "saves labels with",
        COSTS: "needs more labels than the baseline with",
        OPEN: "no saving is shown with",
    }
    for arm in dict.fromkeys(map(arm_of, rows)):
        own = [row for row in rows if arm_of(row) == arm]
        parts = []
        for kind, told in words.items():
            counts = [f"{row.num_labels:,.0f}" for row in own if verdict(row) == kind]
            if counts:
                parts.append(f"{told} {_listed(counts)}")
        yield f"{arm}: {'; '.join(parts)} labels."


def _doubts_of_runs(family: FamilyTables, metric: OfMetric) -> Iterator[str]:
    points = metric.points
    if family.split != "test":
        yield f"These are patches of {family.split}, which choices were made on: expect less of others."
    if points["num_labels"].nunique() == 1:
        yield "One number of labels alone was run: points, no curve."
    fewest, most = int(points["num_seeds"].min()), int(points["num_seeds"].max())
    if fewest == 1:
        alone = (
            "One seed"
            if most == 1
            else f"{(points['num_seeds'] == 1).sum()} of {len(points)} points: one seed"
        )
        yield f"{alone}: intervals hold the luck of the patients, not that of the labels drawn and of the training."
    elif fewest < _FEW_SEEDS:
        yield f"{fewest} seeds are few: how much luck there is in the labels drawn is itself hardly known."
    if points["num_encoders"].max() == 1:
        yield "One encoder of each method: no interval holds the luck of its pretraining."


def _doubts_of_ratios(metric: OfMetric) -> Iterator[str]:
    rows: list[Any] = list(metric.saved.itertuples())
    if not rows:
        yield f"{BASELINE} alone was run: there is nothing to compare it with."
        return
    num_open = sum(verdict(row) == OPEN for row in rows)
    if num_open:
        yield (
            f"{num_open} of {len(rows)} intervals hold 1 or are not known: there no saving is shown, wherever the dot "
            "stands."
        )
    if len(rows) > 1 and num_open < len(rows):
        yield (
            f"The answer is the surest of {len(rows)} ratios, picked after looking; intervals are 95 % each, not "
            "adjusted for their number."
        )
    extrapolated = int(metric.saved["extrapolated"].astype(bool).sum())
    if extrapolated:
        yield (
            f"{extrapolated} of {len(rows)} ratios are extrapolated beyond the most labels that were run: that the "
            "curve goes on as a power law is an assumption which no interval holds."
        )
    sizes = metric.baseline["num_labels"].nunique()
    if sizes < FEWEST_SIZES:
        yield (
            f"{BASELINE} was run with {sizes} numbers of labels, and {FEWEST_SIZES} are needed for a power law: beyond "
            "the largest nothing is known but more than."
        )


def _labels(row: Any) -> str:
    """ "60 labels (10 % of all)"."""
    return f"{row.num_labels:,.0f} labels ({100 * row.alpha:g} % of all)"


def _value(row: Any) -> str:
    return number(row.value, row.low, row.high).text


def _listed(words: list[str]) -> str:
    """ "60, 150 and 600"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
