"""Stage `compare`: predictions of all runs -> table, paired tests, report, plot, recommended model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import image

from histo_monai.data.tables.predictions import Predictions, check_same_patches, read_predictions
from histo_monai.data.tables.slide_classes import TEST, read_slide_classes
from histo_monai.data.tables.slide_scores import read_slide_scores
from histo_monai.evaluation.baselines.models import BASELINES, MAJORITY
from histo_monai.evaluation.comparison.caveats import OTHER_LABELS, repeat_warnings, split_warnings
from histo_monai.evaluation.comparison.models import (
    VERDICTS,
    Comparison,
    ModelValue,
    PairedTest,
    compare_models,
)
from histo_monai.evaluation.comparison.rows import Row, families
from histo_monai.evaluation.recommendation import Candidate, read_candidate, recommend
from histo_monai.evaluation.runs import Key, Repeat, by_baseline, by_model
from histo_monai.evaluation.slides import Axes, compare_slides
from histo_monai.pipeline import paths
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run, runs
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.pipeline.skip import why_idle
from histo_monai.reports.forest import forest
from histo_monai.reports.paper import PaperNumber, is_papers_experiment, paper_number
from histo_monai.reports.tables import SplitTable, comparison_report
from histo_monai.utils.errors import InputError
from histo_monai.utils.roles import MODELS
from histo_monai.utils.storage import whole_folder, write_json

_LOG = logging.getLogger(__name__)

VALIDATION = "validation"
SPLITS = (VALIDATION, "test")
LABELING = "docs/own_slides.md"
TABLE, TESTS, REPORT, PICTURE = "table.csv", "tests.csv", "report.md", "table.png"


def run() -> None:
    """Write data/comparison (table.csv, tests.csv, report.md, table.png, metrics.json, summary.json) and chosen.json.

    Raises:
        InputError: predictions of a run are missing, or cover other patches.
    """
    params = load_params(paths.PARAMS)
    read = _read(params)
    tables, warnings = [], []
    for split in SPLITS:
        parts = {
            key: predictions.of_split(split)
            for key, predictions in read.items()
            if split in predictions.splits
        }
        if not parts:
            continue
        if split == VALIDATION and not _have_same_patches(parts):
            warnings.append(OTHER_LABELS)
            continue
        for part in parts.values():
            check_same_patches(next(iter(parts.values())), part)
        _LOG.info(
            "compare: split=%s patches=%d tables=%d", split, len(parts[next(iter(parts))].rows), len(parts)
        )
        tables.append(_split_table(params, split, parts))
        warnings += split_warnings(split, parts[next(iter(parts))])
    headline = tables[-1:]
    if (slides := _slides_table(params)) is not None:
        tables, headline = [*tables, slides], [*headline, slides]
    if not tables and warnings:
        raise InputError(
            f"{paths.PATCHES_CSV}: without test patches, runs with different label subsets cannot be compared. "
            "Fix: set split: test for some patients, or set alpha: 1"
        )
    if not tables:
        raise InputError(f"{paths.INDEX}: no labeled patches or slides. Fix: label some ({LABELING})")
    are_scores = any(predictions.classes is None for predictions in read.values())
    warnings = [*repeat_warnings(params.pretraining_seeds, params.training_seeds, are_scores), *warnings]
    files = [predictions.path for predictions in read.values()]
    files += [*_diagnoses(params).values(), *_learned(params).values()]
    provenance = made_from(params, files)
    recommended = recommend([_candidate(Run(*key)) for key in read])
    with whole_folder(paths.COMPARISON) as draft:
        _csv(draft / TABLE, [part.table.drop(columns="model") for part in tables])
        _csv(draft / TESTS, [part.tests for part in tables])
        report = comparison_report(_title(params), tables[::-1], warnings)
        (draft / REPORT).write_text(report, encoding="utf-8")
        image.imsave(draft / PICTURE, forest(_title(params), tables[::-1]))
        summary = summarize(headline)
        headings = {
            "title": _title(params),
            "warnings": warnings,
            "about": {part.split: part.about for part in tables},
        }
        write_metrics(draft, headings | summary, provenance, summary=summary)
    write_json(paths.CHOSEN, recommended)
    for line in warnings:
        _LOG.warning("%s", line)
    _LOG.info("compare: recommended model=%s, %s", recommended["model"] or "none", recommended["why"])
    splits = " and ".join(part.split for part in headline)
    _LOG.info("compare: split=%s verdicts=%s", splits, summary["verdicts"])


def summarize(parts: Sequence[SplitTable]) -> dict[str, dict[str, Any]]:
    """Values of the models by metric, and counts of each verdict."""
    values = {
        f"{part.split.partition(' ')[0].replace('-', '_')}_{metric}": {
            row.model: _rounded(row.value) for row in part.table[part.table["metric"] == metric].itertuples()
        }
        for part in parts
        for metric in dict.fromkeys(part.table["metric"])
    }
    counts = pd.concat([part.tests for part in parts])["verdict"].value_counts()
    return values | {"verdicts": {verdict: int(counts.get(verdict, 0)) for verdict in VERDICTS}}


def _read(params: Params) -> dict[Key, Predictions]:
    read: dict[Key, Predictions] = {}
    for run in runs(params.pretraining_methods, params.semisupervised_methods, params.repeats):
        path = run.evaluation / paths.PREDICTIONS
        if (run.evaluation / paths.METRICS).is_file() and why_idle(run.evaluation):
            continue
        if not path.is_file():
            raise InputError(f"{path}: not found. Fix: run `dvc repro evaluate@{run.name}`")
        read[run] = read_predictions(path)
        for name in (*MODELS, *BASELINES):
            if name not in read[run].predictions:
                raise InputError(
                    f"{path}: no predictions of {name!r}. Fix: run `dvc repro evaluate@{run.name}`"
                )
    return read


def _candidate(run: Run) -> Candidate:
    """Selected model of a run, from its choice.json."""
    mend = f"run `dvc repro evaluate@{run.name}` again"
    return read_candidate(run.evaluation / paths.METRICS, mend, run.models, **run._asdict())


def _have_same_patches(parts: Mapping[Key, Predictions]) -> bool:
    """Whether all runs predict equal patches; out-of-fold predictions cover a run's own label subset."""
    first = next(iter(parts.values())).rows["patch_id"].tolist()
    return all(part.rows["patch_id"].tolist() == first for part in parts.values())


def _split_table(params: Params, split: str, parts: Mapping[Key, Predictions]) -> SplitTable:
    first = next(iter(parts.values()))
    axes = (params.pretraining_methods, params.semisupervised_methods, params.repeats)
    predictions = by_model(parts, *axes) | by_baseline(parts, *axes)
    comparison = compare_models(
        first.references,
        {row.id: of_row for row, of_row in predictions.items()},
        first.groups,
        seed=params.compare.seed,
        num_replicates=params.compare.num_replicates,
        families=families(list(predictions)),
        encoders=[encoder for encoder, _ in params.repeats],
    )
    about = f"{len(first.rows)} patches, {_in_words('seed', params.training_seeds)}"
    if len(params.pretraining_seeds) > 1:
        about += f" of {_in_words('encoder', params.pretraining_seeds)}"
    if MAJORITY in first.predictions and first.classes is not None:
        always = first.predictions[MAJORITY].argmax(axis=1)
        right = float(np.mean(always == first.references[""]))
        about += f"; accuracy of the most frequent label, {first.classes[always[0]]!r}: {right:.3f}"
    if first.unit != "patches":
        about = f"{len(set(first.groups))} {first.unit}, {about}"
    return _table(params, params.repeats, split, about, comparison, first.unit)


def _diagnoses(params: Params) -> dict[Key, Path]:
    """Slide score files by run; empty if no slides are mapped."""
    if params.heatmap_section is None:
        return {}
    of_all = runs(*params.mapping, params.mapped_repeats)
    return {run: run.diagnosis / paths.MAPPED_CSV for run in of_all}


def _learned(params: Params) -> dict[Run, Path]:
    """Output folders of learning from slide labels, by run."""
    methods = [method for method in params.pretraining_methods if params.learns_from_slides(method)]
    all_runs = runs(methods, ("",), params.mapped_repeats)
    for run in all_runs:
        if not (run.mil / paths.METRICS).is_file():
            raise InputError(f"{run.mil}: not found. Fix: run `dvc repro mil@{run.name}`")
    return {run: run.mil / paths.MAPPED_CSV for run in all_runs if not why_idle(run.mil)}


def _slides_table(params: Params) -> SplitTable | None:
    """Slide AUCs with DeLong's intervals and tests; None without slide results."""
    diagnosed = {key: read_slide_scores(path) for key, path in _diagnoses(params).items()}
    learned = {
        (run.method, run.encoder, run.seed): read_slide_classes(path)
        for run, path in _learned(params).items()
    }
    repeats, compare = params.mapped_repeats, params.compare
    axes = Axes(*params.mapping, repeats, params.positive_class, compare.seed, compare.num_replicates)
    found = compare_slides(diagnosed, learned, axes)
    if found is None:
        return None
    about = found.about
    if len(repeats) < len(params.repeats):
        about += f"; {_in_words('encoder', params.mapping_encoders)} only"
    return _table(params, repeats, found.part, about, found.comparison, "slides")


def _table(
    params: Params, repeats: Sequence[Repeat], split: str, about: str, comparison: Comparison, unit: str
) -> SplitTable:
    over = unit + _beside_groups(repeats)
    values = [_value_row(params, repeats, split, value, over) for value in comparison.values]
    tests = [_test_row(split, test, over) for test in comparison.tests]
    return SplitTable(
        split, about, pd.DataFrame(values).astype({"mu": "Int64", "n_aug": "Int64"}), pd.DataFrame(tests)
    )


def _value_row(
    params: Params, repeats: Sequence[Repeat], split: str, value: ModelValue, over: str
) -> dict[str, Any]:
    """Row of table.csv."""
    row = Row.of(value.model)
    printed = _printed(params, split, row, value.metric)
    by_rows = value.metric.startswith("icc") and len(repeats) == 1  # `_F_BASED` explains these intervals.
    return {
        "dataset": params.dataset,
        "split": split,
        "method": row.method,
        "training": row.training,
        "model": row.id,
        "alpha": params.alpha,
        "mu": params.mu if row.student else None,
        "n_aug": params.n_aug if row.student else None,
        "metric": value.metric,
        "value": value.estimate.value,
        "low": value.estimate.low,
        "high": value.estimate.high,
        "seed_sd": value.seed_sd,
        "num_encoders": len(dict(repeats)),  # pairs of encoder and seed
        "num_seeds": len(repeats),
        "over": "patches" if by_rows else over,
        "paper_value": printed.value,
        "paper_low": printed.low,
        "paper_high": printed.high,
    }


def _printed(params: Params, split: str, row: Row, metric: str) -> PaperNumber:
    """Published number of the same experiment; NaN if there is none."""
    theirs = is_papers_experiment(
        source=params.source,
        dataset=params.dataset,
        corpus=params.pretraining_dataset,
        mpps=params.corpus_section.mpps,
        patch_px=params.patch_px,
        encoder=params.encoder.name,
        has_weights=params.encoder.weights is not None,
    )
    number = None
    if theirs:
        number = paper_number(
            params.dataset,
            "test" if split == TEST else split,
            metric,
            method=row.method,
            training=row.training,
            alpha=params.alpha,
            mu=params.mu,
            n_aug=params.n_aug,
        )
    return number or PaperNumber(np.nan, np.nan, np.nan)


def _test_row(split: str, test: PairedTest, over: str) -> dict[str, Any]:
    """Row of tests.csv."""
    return {
        "split": split,
        "metric": test.metric,
        "family": test.family,
        "first": test.first,
        "second": test.second,
        "difference": test.difference.value,
        "low": test.difference.low,
        "high": test.difference.high,
        "p": test.p,
        "p_holm": test.p_holm,
        "test": test.test,
        "over": over,
        "verdict": test.verdict,
    }


def _beside_groups(repeats: Sequence[Repeat]) -> str:
    """Further sources of variation in the intervals, beside patients, slides or patches."""
    if len(dict(repeats)) > 1:
        return " and encoders"
    return " and seeds" * (len(repeats) > 1)


def _in_words(what: str, numbers: Sequence[int]) -> str:
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _title(params: Params) -> str:
    kind = "simulated " if params.source == "phantom" else ""
    return f"{kind}{params.dataset}: alpha {params.alpha:g}, mu {params.mu}, n_aug {params.n_aug}"


def _csv(path: Path, tables: Sequence[pd.DataFrame]) -> None:
    pd.concat(tables).to_csv(path, index=False, float_format="%.6g")


def _rounded(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None
