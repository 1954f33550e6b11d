"""Report sections: main results with data warnings; full comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd

from histo_monai.evaluation.comparison.models import ALIKE, BETTER, WORSE
from histo_monai.evaluation.comparison.rows import FINETUNE, REFERENCE, Row
from histo_monai.reports.site import charts
from histo_monai.reports.site.blocks import Block, Cell, Chart, Lines, Section, Table, missing, number
from histo_monai.reports.tables import METRICS, SplitTable, in_words

CONTROL = "supervised"
"""Baseline without use of unlabeled patches."""
ACCURACY = "accuracy"
_KINDS = ("network", "color alone", "costs seconds")


def results_section(
    splits: Sequence[SplitTable], warnings: Sequence[str], labels: str, majority: Majority | None
) -> Section:
    """Section with the main results and their chart.

    Args:
        splits: of the comparison, the main one first.
        warnings: limits of the results, one line each.
        labels: sentence on the number of labels.
        majority: accuracy of the most frequent label; None without classes.
    """
    if not splits:
        none = missing("No comparison", "no patch or slide was labeled")
        return Section("results", "Results", [none])
    first = splits[0]
    blocks: list[Block] = [Lines(_with_majority([*story(first), labels], majority, splits), "lead")]
    notes = [f"{line[:1].upper()}{line[1:]}" for line in warnings]
    blocks.append(Lines(["Limits of these results", *notes], "warning") if notes else Lines([]))
    blocks.append(_values_chart(first))
    differences = _differences_chart(first)
    blocks += [differences] if differences else []
    if any(split.split == "test" for split in splits):  # curves need equal patches for all fractions
        blocks.append(
            Lines(
                [
                    "To measure the labels saved, run several fractions of the labels: "
                    "`dvc exp run --queue -S alpha=0.05,0.1,0.2,1.0`, `dvc queue start`, then `histo-monai curves`, "
                    "which writes `data/curves/index.html`."
                ]
            )
        )
    return Section("results", "Results", blocks)


def comparison_section(splits: Sequence[SplitTable]) -> Section:
    """Section with every model, metric and test."""
    blocks: list[Block] = []
    for split in splits:
        title = f"{split.split.capitalize()}: {split.about}"
        blocks += [_values(split, title), _tests(split)]
    if not blocks:
        blocks = [missing("No comparison", "see data/comparison")]
    words = (
        "Intervals are 95 %, not adjusted; p-values are adjusted after Holm. Not distinguishable means that these data "
        "show no difference, not that the models are equal."
    )
    return Section("comparison", "All models", [*blocks, Lines([words])])


class Majority(NamedTuple):
    """Baseline that always predicts the most frequent label.

    Attributes:
        label: the most frequent one.
        right: accuracy.
        split: of the patches.
    """

    label: str
    right: float
    split: str


def _with_majority(notes: list[str], majority: Majority | None, splits: Sequence[SplitTable]) -> list[str]:
    """Lines with the majority baseline, first if no network exceeds its accuracy on the same patches."""
    of_patches = [split for split in splits if majority is not None and split.split == majority.split]
    if majority is None or not of_patches or ACCURACY not in of_patches[0].metrics:
        return notes
    (split,) = of_patches
    values = [split.row(model, ACCURACY).value for model in split.models if Row.of(model).is_network]
    accuracy = f"{majority.right:.3f}"
    if any(value > majority.right for value in values):
        return [
            *notes,
            f"Predicting the most frequent label, {majority.label}, for every patch is correct on {accuracy}.",
        ]
    none = "No network exceeds the accuracy of predicting the most frequent label for every patch"
    return [f"{none}, {majority.label}: {accuracy}.", *notes]


def story(split: SplitTable) -> Iterator[str]:
    """Sentences: best network, color baseline, gain of semi-supervised training."""
    metric = split.metrics[0]
    name = METRICS.get(metric, metric)
    networks = [model for model in split.models if Row.of(model).is_network]
    known = [model for model in networks if not pd.isna(split.row(model, metric).value)]
    if not known:
        yield f"No network was tested on {split.split}."
        return
    best = max(known, key=lambda model: float(split.row(model, metric).value))
    row = split.row(best, metric)
    value = number(row.value, row.low, row.high).text
    yield f"The best network is {in_words(best)}: {name} {value} on {split.split}."
    if REFERENCE.id in split.models:
        verdict = _verdict(split, best, REFERENCE.id, metric)
        yield f"{verdict} (color and stain histograms, no network)."
    method = Row.of(best).method
    parent, control = Row(method, FINETUNE).id, Row(method, CONTROL).id
    students = [model for model in networks if Row.of(model).method == method and Row.of(model).student]
    for model in students:
        if parent in networks and model != control:
            yield f"{_verdict(split, model, parent, metric)}, its fine-tuned model."
        if control in networks and model != control:
            yield f"{_verdict(split, model, control, metric)}: equal steps without unlabeled patches."


def _verdict(split: SplitTable, model: str, other: str, metric: str) -> str:
    """ "RSP + MoCo + mixed_teacher is better than color alone, +0.18 (0.10 to 0.26)"."""
    difference, low, high, _, verdict = split.against(model, other, metric)
    words = {
        BETTER: "is better than",
        WORSE: "is worse than",
        ALIKE: "is not distinguishable from",
    }.get(verdict, "was not tested against")
    size = "" if pd.isna(difference) else f", {_signed(difference, 3)}"
    ends = "" if pd.isna(low) else f" ({_signed(low, 2)} to {_signed(high, 2)})"
    return f"{in_words(model)} {words} {in_words(other)}{size}{ends}"


def _signed(value: float, digits: int) -> str:
    """Signed number without a minus on 0."""
    return f"{round(float(value), digits) + 0.0:+.{digits}f}"


def _kind(model: str) -> str:
    row = Row.of(model)
    return _KINDS[0] if row.is_network else _KINDS[1] if model == REFERENCE.id else _KINDS[2]


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else round(float(value), 6)


def _values_chart(split: SplitTable) -> Chart:
    metric = split.metrics[0]
    name = METRICS.get(metric, metric)
    rows = [
        {
            "name": in_words(model),
            "kind": _kind(model),
            **{key: _known(getattr(split.row(model, metric), key)) for key in ("value", "low", "high")},
        }
        for model in split.models
    ]
    words = (
        f"{name[0].upper()}{name[1:]} of every model on {split.split}, with 95 % intervals: {split.about}."
    )
    return Chart(
        f"{name[0].upper()}{name[1:]}, {split.split}", charts.intervals(rows, name), words, wide=True
    )


def _differences_chart(split: SplitTable) -> Chart | None:
    metric = split.metrics[0]
    name = METRICS.get(metric, metric)
    networks = [model for model in split.models if Row.of(model).is_network]
    pairs = []
    for model in networks:
        row = Row.of(model)
        others = [Row(row.method, FINETUNE).id, Row(row.method, CONTROL).id] if row.student else []
        pairs += [
            (model, other) for other in (*others, REFERENCE.id) if other != model and other in split.models
        ]
    rows = []
    for model, other in pairs:
        difference, low, high, _, verdict = split.against(model, other, metric)
        if not pd.isna(difference):
            ends = {"value": _known(difference), "low": _known(low), "high": _known(high)}
            rows.append({"name": f"{in_words(model)} − {in_words(other)}", "kind": verdict, **ends})
    if not rows:
        return None
    words = (
        f"Paired differences of {name} on {split.split}; above 0 the first model is better. Colors are verdicts "
        "by p-values adjusted for the number of tests; the 95 % intervals are not adjusted and may exclude 0."
    )
    spec = charts.intervals(rows, f"difference of {name}", zero=True, kinds=(ALIKE, BETTER, WORSE))
    return Chart("Differences between models", spec, words, wide=True)


def _values(split: SplitTable, title: str) -> Table:
    rows = []
    for model in split.models:
        cells = [Cell(in_words(model))]
        for metric in split.metrics:
            row = split.row(model, metric)
            cells.append(number(row.value, row.low, row.high, strong=row.value == split.best(metric)))
            if not pd.isna(row.paper_value):
                cells[-1] = Cell(
                    f"{cells[-1].text}; paper {row.paper_value:.3f}", cells[-1].value, cells[-1].strong
                )
        rows.append(cells)
    return Table(title, ["model", *(METRICS.get(metric, metric) for metric in split.metrics)], rows)


def _tests(split: SplitTable) -> Table:
    tests: Iterable[Any] = split.tests.itertuples()
    rows = [
        [
            Cell(METRICS.get(test.metric, test.metric)),
            Cell(in_words(test.first)),
            Cell(in_words(test.second)),
            number(test.difference, test.low, test.high),
            Cell("—" if pd.isna(test.p_holm) else f"{test.p_holm:.3g}", _known(test.p_holm)),
            Cell(test.verdict, None, test.verdict in (BETTER, WORSE)),
        ]
        for test in tests
    ]
    head = ["metric", "first", "second", "first − second", "p (Holm)", "first is"]
    return Table(f"All {len(rows)} tests, {split.split}", head, rows, folded=True)
