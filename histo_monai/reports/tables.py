"""Comparison of all models as text: a table per split, then paired tests in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from histo_monai.data.tables.slide_classes import CROSS_FITTED
from histo_monai.evaluation.comparison.models import ALIKE, BETTER, UNTESTED, WORSE
from histo_monai.evaluation.comparison.rows import FINETUNE, REFERENCE, SLIDE_MODELS, SUPERVISED, Row

METRICS = {
    "accuracy": "accuracy",
    "mean_one_versus_rest_accuracy": "mean one-versus-rest accuracy",
    "weighted_f1": "weighted F1",
    "macro_auc": "macro AUC",
    "auc": "AUC",
    "slide_auc": "slide AUC",
    "slide_accuracy": "slide accuracy",
    "slide_mean_one_versus_rest_accuracy": "slide mean one-versus-rest accuracy",
    "slide_weighted_f1": "slide weighted F1",
    "slide_macro_auc": "slide macro AUC",
    "icc": "ICC(2,1)",
    "icc_a": "ICC(2,1) with A",
    "icc_b": "ICC(2,1) with B",
}
_METHODS = {
    "vae": "VAE",
    "moco": "MoCo",
    "rsp": "RSP",
    "rsp_moco": "RSP + MoCo",
    "dino": "DINO",
    "color": "color alone",
}
_TRAININGS = {
    "finetune": " fine-tuned",
    "paper": " + CR",
    "linear": " frozen, linear",
    "knn": " frozen, kNN",
    "attention": " frozen, attention",
    "moments": " frozen, slide means",
    "": "",
}

_HOW = (
    "Differences are paired by patch and seed. Verdicts use p-values adjusted after Holm, at 0.05, "
    "in two families per metric: pairs of networks and color; pairs with other baselines. "
    '"Not distinguishable" means that these data show no difference, not that the models are equal. Intervals in '
    "brackets are 95 %, not adjusted. tests.csv lists all tests, their family and method."
)
_BASELINES = (
    "Fast baselines train no network: a linear model or nearest neighbors on features of the frozen pretrained "
    "encoder, and each student combined with color (mean of log odds, or of scores). They use the labels of the "
    "networks and select hyperparameters by cross-validation on them."
)
_SLIDE_MODELS = (
    '"attention" and "slide means" use slide labels and patch features of the pretrained encoder: cross-fitted '
    "attention pooling, and a linear model on each slide's mean features, with or without standard deviations. "
    "The other models diagnose maps and use labeled patches."
)


@dataclass(frozen=True)
class SplitTable:
    """Results of one split.

    Attributes:
        split: name.
        about: numbers of patches, patients and seeds, in words.
        table: columns model, metric, value, low, high, paper_value, paper_low, paper_high.
        tests: columns metric, first, second, difference, low, high, p_holm, verdict; names of models as in `table`.
    """

    split: str
    about: str
    table: pd.DataFrame
    tests: pd.DataFrame

    @property
    def models(self) -> list[str]:
        """Models in table order."""
        return list(dict.fromkeys(self.table["model"]))

    @property
    def metrics(self) -> list[str]:
        """Shown metrics; one-versus-rest accuracy of two classes equals accuracy and is left out."""
        names = list(dict.fromkeys(self.table["metric"]))
        values = {
            name: self.table.loc[self.table["metric"] == name, "value"].round(12).tolist() for name in names
        }
        twice = "mean_one_versus_rest_accuracy"
        return [name for name in names if name != twice or values[name] != values["accuracy"]]

    def best(self, metric: str) -> float:
        """Highest value of a metric."""
        return float(self.table.loc[self.table["metric"] == metric, "value"].max())

    def row(self, model: str, metric: str) -> Any:
        """Row (named tuple) of a model and metric."""
        table = self.table
        return next(table[(table["model"] == model) & (table["metric"] == metric)].itertuples())

    def against(self, model: str, other: str, metric: str) -> tuple[float, float, float, float, str]:
        """Difference, low, high, adjusted p and verdict of a model against another."""
        tests = self.tests[self.tests["metric"] == metric]
        rows = tests[(tests["first"] == model) & (tests["second"] == other)]
        if len(rows):
            row: Any = next(rows.itertuples())
            return row.difference, row.low, row.high, row.p_holm, row.verdict
        row = next(tests[(tests["first"] == other) & (tests["second"] == model)].itertuples())
        turned = {BETTER: WORSE, WORSE: BETTER}.get(row.verdict, row.verdict)
        return -row.difference, -row.high, -row.low, row.p_holm, turned


def in_words(model: str) -> str:
    """Model in words: "rsp-finetune" -> "RSP fine-tuned"; "rsp-paper" -> "RSP + CR"; other students by method name."""
    row = Row.of(model)
    training = row.student or row.training
    words = _METHODS.get(row.method, row.method) + _TRAININGS.get(training, f" + {training}")
    return words + " + color" * row.is_stacked


def number(value: float, low: float, high: float) -> str:
    """ "0.778 (0.70 to 0.85)"; without unknown ends; a dash if unknown."""
    if pd.isna(value):
        return "—"
    return f"{value:.3f}" if pd.isna(low) else f"{value:.3f} ({low:.2f} to {high:.2f})"


def comparison_report(title: str, splits: Sequence[SplitTable], warnings: Sequence[str]) -> str:
    """Markdown report: color baseline, data warnings, and per split the table and the verdicts.

    Args:
        splits: in order.
        warnings: one line each.
    """
    if all(split.split == "validation" for split in splits):
        title = f"{title}, validation only: no test patches"
    if all(split.split == CROSS_FITTED for split in splits):
        title = f"{title}, cross-fitted: no test slides"
    parts = [f"# {title}", *_color_ahead(splits), "\n".join(f"- {line}" for line in warnings)]
    for split in splits:
        parts += [f"## {split.split.capitalize()}: {split.about}", _values(split), *_verdicts(split)]
    rows = [Row.of(model) for split in splits for model in split.models]
    baselines = [_BASELINES] * any(row.is_baseline and row.training not in SLIDE_MODELS for row in rows)
    baselines += [_SLIDE_MODELS] * any(row.training in SLIDE_MODELS for row in rows)
    return "\n\n".join([*parts, _HOW, *baselines, _words(splits)]) + "\n"


def _words(splits: Sequence[SplitTable]) -> str:
    """List of the terms used in tables and title."""
    shown = {metric for split in splits for metric in split.table["metric"]}
    trainings = {Row.of(model).training for split in splits for model in split.models}
    used = [
        "alpha: fraction of the training labels",
        "mu: unlabeled images per labeled image in a step",
        "n_aug: operations per strong view of the method CR",
        *["CR: consistency training as published"] * any("paper" in name for name in trainings),
        *["RSP: resolution sequence prediction, pretraining on the order of patches of several µm/px"],
        *["macro AUC: mean of one-versus-rest AUCs"] * any("macro" in name for name in shown),
        *["slide AUC: probability that a positive slide scores above a negative one"]
        * ("slide_auc" in shown),
        *["ICC(2,1): absolute agreement with a pathologist, 1 at best"]
        * any("icc" in name for name in shown),
        "Holm: p-values adjusted for the number of pairs, to limit the probability of any false verdict",
    ]
    return "## Words\n\n" + "\n".join(f"- {line}" for line in used) + "\n\nMore: docs/glossary.md."


def _values(split: SplitTable) -> str:
    """Table of models and metrics, best values in bold, with published numbers."""
    printed = split.table.dropna(subset=["paper_value"])["metric"].unique()
    head = ["", *(column for name in split.metrics for column in _columns(name, name in printed))]
    lines = []
    for model in split.models:
        cells = [in_words(model)]
        for metric in split.metrics:
            row = split.row(model, metric)
            text = number(row.value, row.low, row.high)
            cells.append(f"**{text}**" if row.value == split.best(metric) else text)
            if metric in printed:
                paper = number(row.paper_value, row.paper_low, row.paper_high)
                cells.append("" if pd.isna(row.paper_value) else paper)
        lines.append(cells)
    return _table(head, lines)


def _columns(metric: str, printed: bool) -> list[str]:
    name = METRICS.get(metric, metric)
    return [name, f"{name}, paper"] if printed else [name]


def _color_ahead(splits: Sequence[SplitTable]) -> Iterable[str]:
    """Sentence if color has the highest value of the main metric, in the first such split."""
    split = next((split for split in splits if REFERENCE.id in split.models), None)
    networks = [] if split is None else _networks(split)
    if split is None or not networks:
        return
    metric = split.metrics[0]
    color, *others = (float(split.row(model, metric).value) for model in (REFERENCE.id, *networks))
    best = max((value for value in others if not pd.isna(value)), default=color)
    if color > best:
        digits = next((num for num in (2, 3) if f"{color:z.{num}f}" != f"{best:z.{num}f}"), 4)
        yield (
            f"**Color alone is better than every network: {METRICS.get(metric, metric)} {color:z.{digits}f} against "
            f"{best:z.{digits}f}.**"
        )


def _networks(split: SplitTable) -> list[str]:
    return [model for model in split.models if Row.of(model).is_network]


def _verdicts(split: SplitTable) -> Iterable[str]:
    networks = _networks(split)
    others = [model for model in networks if model != SUPERVISED.id]
    if SUPERVISED.id in networks and others:
        yield f"### Against {in_words(SUPERVISED.id)} (the supervised baseline)"
        yield "\n".join(_sentence(split, others, SUPERVISED.id, metric) for metric in split.metrics)
        yield _differences(
            split, [(model, SUPERVISED.id) for model in others], lambda pair: in_words(pair[0])
        )
    students = [model for model in networks if Row.of(model).student]
    if students:
        yield "### Gain of semi-supervised training: each student against its fine-tuned model"
        pairs = [(model, Row(Row.of(model).method, FINETUNE).id) for model in students]
        yield _differences(split, pairs, lambda pair: in_words(pair[0]))
    if REFERENCE.id in split.models:
        yield "### Against color alone (histograms of colors and of stains)"
        yield _differences(
            split, [(model, REFERENCE.id) for model in networks], lambda pair: in_words(pair[0])
        )
    baselines = _baseline_pairs(split)
    if baselines:
        yield "### Fast baselines"
        yield _differences(split, baselines, _both_in_words)
    for title, rest in (
        ("Between students of the same model", _pairs(students, same=0)),
        ("Between the other methods, with equal training", _pairs(others, same=1)),
    ):
        if rest:
            yield f"### {title}"
            yield _differences(split, rest, _both_in_words)


def _both_in_words(pair: tuple[str, str]) -> str:
    return f"{in_words(pair[0])} against {in_words(pair[1])}"


def _baseline_pairs(split: SplitTable) -> list[tuple[str, str]]:
    """Tests of fast baselines other than color, baseline first."""
    tests = split.tests[split.tests["metric"] == split.metrics[0]]
    pairs = zip(tests["first"], tests["second"], strict=True)
    return [(first, second) for first, second in pairs if Row.of(first).is_baseline]


def _pairs(models: Sequence[str], same: int) -> list[tuple[str, str]]:
    """Pairs of models with equal method (`same` 0) or training (`same` 1), later models first."""
    return [
        (first, second)
        for i, second in enumerate(models)
        for first in models[i + 1 :]
        if Row.of(first)[same] == Row.of(second)[same]
    ]


def _sentence(split: SplitTable, models: Sequence[str], baseline: str, metric: str) -> str:
    """ "accuracy: better: ...; not distinguishable: ..." """
    models_of: dict[str, list[str]] = {}
    for model in models:
        models_of.setdefault(split.against(model, baseline, metric)[-1], []).append(in_words(model))
    parts = (
        f"{verdict}: {', '.join(models_of[verdict])}"
        for verdict in (BETTER, WORSE, ALIKE, UNTESTED)
        if verdict in models_of
    )
    return f"- **{METRICS.get(metric, metric)}** — {'; '.join(parts)}."


def _differences(
    split: SplitTable, pairs: Sequence[tuple[str, str]], name: Callable[[tuple[str, str]], str]
) -> str:
    lines = [
        [name(pair), *(_cell(*split.against(*pair, metric)) for metric in split.metrics)] for pair in pairs
    ]
    return _table(["", *(METRICS.get(metric, metric) for metric in split.metrics)], lines)


def _cell(difference: float, low: float, high: float, p: float, verdict: str) -> str:
    """ "**better**, +0.061 (+0.03 to +0.09), p 0.003"."""
    if pd.isna(difference):
        return "—"
    shown = f"**{verdict}**" if verdict in (BETTER, WORSE) else verdict
    ends = "" if pd.isna(low) else f" ({_signed(low, 2)} to {_signed(high, 2)})"
    chance = (
        "" if pd.isna(p) else ", p < 0.001" if p < 0.001 else f", p {p:.3f}" if p < 0.1 else f", p {p:.2f}"
    )
    return f"{shown}, {_signed(difference, 3)}{ends}{chance}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = "|".join(["---"] * len(head))
    return "\n".join(
        [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(cells)} |" for cells in lines)]
    )


def _signed(value: float, digits: int) -> str:
    """Signed number; +0 instead of -0."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"
