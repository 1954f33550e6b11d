"""Command `next`: labels given so far -> model, regions to label next and their page, then maps and report."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.tables.csv_rows import read_rows
from histo_monai.data.tables.patches import read_patches
from histo_monai.data.tables.predictions import read_predictions
from histo_monai.evaluation.recommendation import Candidate, read_candidate, recommend
from histo_monai.pipeline import paths
from histo_monai.pipeline.commands import dvc, label
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run, runs
from histo_monai.pipeline.suggestions.merging import SUGGESTIONS, answer_files, merge_labels
from histo_monai.pipeline.suggestions.squares import TABLE, folder_of
from histo_monai.pipeline.warm import warm_process
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.csv_values import read_texts, read_varied_csv
from histo_monai.utils.storage import whole_file

_LOG = logging.getLogger(__name__)

ROUNDS = SUGGESTIONS / "rounds.csv"
_COLUMNS = (
    *("round", "labels", "test_labels", "model", "split", "balanced_accuracy", "low", "high", "unit", "num_units"),
    *("regions", "random_regions", "page"),
)  # fmt: skip

_TEXTS = ("model", "split", "unit", "page")


def run(read: Sequence[str], classes: Sequence[str], num: int, num_random: int) -> None:
    """Add labels, train, suggest regions and write their page; then evaluate, and write maps and report.

    After an error the next call goes on.

    Args:
        read: files of answers; empty: those that `label --serve` has saved in data/suggestions.
        classes: names to begin with, beside those of the labels.
        num: number of regions of the page.
        num_random: number of regions among them that are sampled at random, as soon as there is a model.

    Raises:
        InputError: the project is not of own slides with two classes, or a step fails.
        OutputError: a file cannot be written.
    """
    params = load_params(paths.PARAMS)
    if (params.source, params.dataset) != ("raw", "own"):
        raise InputError(
            f"{paths.PARAMS}: {params.source}/{params.dataset} is not data/raw/own. Fix: run `histo-monai init FOLDER "
            "--dataset own` for your own slides"
        )
    if not 0 <= num_random < num:
        raise InputError(f"--random: {num_random} of {num} regions. Fix: give 0 to {num - 1}")
    table = label.own_table()
    _refuse_scores(table)
    merge_labels([Path(path) for path in read] or answer_files(), table)
    _refuse_one_class(table, num)
    with warm_process() as loaded:
        known = runs(params.pretraining_methods, params.semisupervised_methods, params.repeats)
        patches = _patches(loaded, "consistency" if len(known) == 1 else "evaluate")
        run = _recommended(known) if (patches["split"] == "train").any() else None
        if run is None:
            method, encoder = _first_encoder(params)
            about_run = ["--first", "--num", str(num)]
        else:
            method, encoder = run.method, run.encoder
            about_run = ["--student", run.student, "--seed", str(run.seed)]
            about_run += ["--num", str(num - num_random), "--random", str(num_random)]
        words = ["--method", method, "--pretraining-seed", str(encoder), *about_run]
        _run(loaded, "histo_monai", "suggest", *words)
        row, how = _write_page(run, classes, patches)
        if run is not None:
            print(f"{how}\nthe page is ready; metrics, maps and the report follow")
            _run(loaded, "dvc", "repro")
            validation = "validation" if params.is_validation_separate else "cross-validation"
            row |= {"model": run.name} | _quality(run, validation)
    print(_summary(_remembered(patches, row)), how, sep="\n")


def _write_page(run: Run | None, classes: Sequence[str], patches: pd.DataFrame) -> tuple[dict[str, Any], str]:
    """Write the page of the suggested regions; about it for rounds.csv, and in words."""
    folder = folder_of(run)
    labels = set(patches["label"].dropna())  # those of outlines, too
    page, squares, names = label.write_page(folder, classes, None, label.own_table(), labels)
    row = {"regions": len(squares), "random_regions": 0, "page": os.path.relpath(page), "model": ""}
    how = "typical tissue, without a model"
    if run is not None:  # Fewer at random where nothing else is free.
        row["random_regions"] = int((read_texts(folder / TABLE, ["chosen_by"]) == "random").sum().sum())
        how = f"{row['random_regions']} at random"
    call = ["histo-monai", "label", str(folder), "--serve", *(["--classes", *names] if names else [])]
    return row, (
        f"regions to label now: {row['regions']}, {how}\n"
        f"label them: {shlex.join(call)}; or open {row['page']}; then run histo-monai next"
    )


def _refuse_scores(table: Path) -> None:
    if table.is_file() and (read_rows(table).get("score", pd.Series(dtype=str)) != "").any():
        raise InputError(
            f"{table}: has scores, and the page labels classes. Fix: run `dvc repro` and `histo-monai suggest`, and "
            "add scores of the squares to your table"
        )


def _refuse_one_class(table: Path, num: int) -> None:
    """Refuse labels of one class before `index` does, whose tables `suggest --first` needs for more squares."""
    labels = set(read_rows(table).get("label", [])) - {""} if table.is_file() else set()
    if len(labels) == 1 and not any(table.parent.glob("annotations/*")):
        raise InputError(
            f"{table}: all labels are {labels.pop()!r}, and a model needs two classes. Fix: see more tissue with "
            f"`histo-monai suggest --first --num {2 * num}` and `histo-monai label --serve`, then run `histo-monai "
            "next` again; the labels are added"
        )


def _first_encoder(params: Params) -> tuple[str, int]:
    """The first pretraining of params.yaml: without labels nothing selects one."""
    known = [(name, number) for name in params.pretraining_methods for number in params.pretraining_seeds]
    if len(known) > 1:
        _LOG.info("next: encoder=%s-%d, the first of %d in %s", *known[0], len(known), paths.PARAMS)
    return known[0]


def _patches(loaded: Mapping[str, str], stage: str) -> pd.DataFrame:
    """Labeled patches of the index; the pipeline has run to a stage if a patch is labeled, else to the encoder.

    Args:
        loaded: environment variables of `warm_process`.
    """
    tracked = paths.dataset_folder("raw", "own").with_suffix(".dvc")
    if tracked.is_file():
        _run(loaded, "dvc", "add", str(tracked.with_suffix("")))
    if not paths.CHOSEN.is_file():
        _run(loaded, "dvc", "repro", "pretrain")
        patches = read_patches(paths.PATCHES_CSV)
        if not (patches["split"] == "train").any():
            return patches
    _run(loaded, "dvc", "repro", stage)
    return read_patches(paths.PATCHES_CSV)


def _recommended(known: Sequence[Run]) -> Run:
    """The only run, or the one that `compare` will recommend.

    Raises:
        InputError: validation selects none.
    """
    if len(known) == 1:
        return known[0]
    found = recommend([_candidate(run) for run in known])
    if found["model"] is None:
        raise InputError(
            f"next: no model to suggest by: {found['why']}. Fix: set one method in {paths.PARAMS}"
        )
    return Run(found["method"], found["encoder"], found["seed"], found["student"])


def _candidate(run: Run) -> Candidate:
    mend = "run `dvc repro evaluate`"
    return read_candidate(run.evaluation / paths.METRICS, mend, run.models, **run._asdict())


def _run(loaded: Mapping[str, str], module: str, *arguments: str) -> None:
    sys.stdout.flush()
    if dvc.run_module(module, arguments, loaded) != 0:
        raise InputError(
            f"{module.replace('_', '-')} {' '.join(arguments)}: failed, see its error above. Fix: mend it, then run "
            "`histo-monai next` again; the labels are added"
        )


def _quality(of_run: Run, validation: str) -> dict[str, Any]:
    """Balanced accuracy of a model, 95 % interval over patients: on test patches, else validation patches, if any."""
    from histo_monai.evaluation.metrics import balanced_accuracy, grouped_bootstrap  # SciPy: after the page

    table = read_predictions(of_run.evaluation / paths.PREDICTIONS)
    split = next((name for name in ("test", "validation") if name in table.splits), None)
    if split is None:
        return {}
    rows = table.of_split(split)
    arrays = [rows.references[""], rows.predictions[_candidate(of_run).kind]]
    found = grouped_bootstrap(balanced_accuracy, arrays, rows.groups, seed=0, num_replicates=1000)
    about = {"split": validation if split == "validation" else split, "unit": rows.unit, "num_units": found.n}
    return about | {"balanced_accuracy": found.value, "low": found.low, "high": found.high}


def _remembered(patches: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    """Add this round to rounds.csv, in place of one with as many labels; all rounds."""
    rounds = pd.DataFrame(columns=list(_COLUMNS))
    if ROUNDS.is_file():
        rounds = _earlier_rounds()
    num_test = int((patches["split"] == "test").sum())
    num = len(patches) - num_test
    rounds = rounds[(rounds["labels"] != num) | (rounds["test_labels"] != num_test)]
    row |= {
        "round": int(rounds["round"].max()) + 1 if len(rounds) else 0,
        "labels": num,
        "test_labels": num_test,
    }
    rounds = pd.DataFrame([*rounds.to_dict("records"), row]).reindex(columns=list(_COLUMNS))
    with whole_file(ROUNDS) as draft:
        rounds.to_csv(draft, index=False, float_format="%.6g")
    return rounds


def _earlier_rounds() -> pd.DataFrame:
    try:
        rounds = read_varied_csv(ROUNDS, _TEXTS, stage="next")
        is_table = list(rounds.columns) == list(_COLUMNS) and rounds["labels"].dtype.kind == "i"
    except InputError:
        is_table = False
    if not is_table:
        raise InputError(
            f"{ROUNDS}: not the table that `next` writes. Fix: move it away; rounds then count from 0"
        )
    return rounds


def _summary(rounds: pd.DataFrame) -> str:
    """Labels and quality of all rounds."""
    lines = []
    for row in rounds.to_dict("records"):
        line = f"round {row['round']}: {row['labels']} labels to learn from, {row['test_labels']} to test on"
        if row["balanced_accuracy"] == row["balanced_accuracy"]:
            interval = f"{row['low']:.2f} to {row['high']:.2f}" if row["low"] == row["low"] else "no interval"
            line += (
                f"; {row['split']} balanced accuracy {row['balanced_accuracy']:.2f} ({interval}, "
                f"{row['num_units']:.0f} {row['unit']})"
            )
        lines.append(line)
    last = rounds.iloc[-1]
    before = rounds["labels"].iloc[-2] if len(rounds) > 1 else 0
    lines.append(f"labels added since the round before: {last['labels'] - before}")
    return "\n".join(lines)
