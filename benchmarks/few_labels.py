"""Accuracy with few labels on simulated datasets and on real patches: stages, dataset after dataset, then a table.

    python benchmarks/few_labels.py run DIR --dataset camelyon16 --dataset-seeds 10 11 12 13 14    # hours
    python benchmarks/few_labels.py run DIR --dataset lung    # real patches, see real_patches.py
    python benchmarks/few_labels.py report DIR --values docs/few_labels.csv    # those of the file too; it is written

Each seed of `--dataset-seeds` is one simulated dataset, or one repetition on the same real patches. It has its own
slides, encoder and random label subsets, so the intervals include the run-to-run variation of all of them. Differences
are means over seeds, with Student's t. The value of a seed is the mean over its label subsets; a difference of two
models of few labels is a mean over the subsets that both models were run with.
Fresh seeds (`FRESH_FROM`) have columns apart from seeds whose results were known when settings were chosen.
A second `run` goes on after a stop. Params are those of params.yaml but for the seeds, `--set` and what `RUNS` names.
Each run has one thread, if HISTO_MONAI_CPUS gives it no more; start several with other seeds to use more cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import real_patches
import yaml
from intervals import difference_cells, gap_closed, numbers_in_words

from histo_monai.data.tables.predictions import Predictions, read_predictions
from histo_monai.evaluation.metrics import accuracy, intraclass_correlation, macro_auc

ROOT = Path(__file__).resolve().parent.parent
REAL = ROOT.parent / "shared" / "real"
MARGIN = 0.02
"""Of accuracy, AUC or ICC: a student that is at most so much behind all labels is not inferior to them."""
FRESH_FROM = 15
"""Seed of the first fresh simulated dataset: fresh ones were announced, run once, and no setting was chosen by them.
Seeds 0 to 2 chose the settings; 10 to 14 were reported before the settings were chosen anew. Real patches are the
same with every seed, and are never fresh."""
FEW, ALL = "few", "all"
STUDENT, STUDENT_STEPS = "", "supervised"
TAUGHT = {"camelyon16": "spatial_neighbors"}
"""The student of a dataset: of slides and two classes, that of neighbors."""
OTHERS_TAUGHT = "mixed_teacher"
PRETRAINED = {"breastpathq": "rsp"}
"""Method of pretraining where it is not that of params.yaml: scores are of stains, that MoCo's views change."""
DEFAULT, NONE = "rsp_moco", "random"
CORPORA = {"breastpathq": "breastpathq", "camelyon16": "camelyon16", "kather": "camelyon16"}
"""Simulated datasets, and whose slides are pretrained on; those of `real_patches.TABLES` are `own`."""
RUNS = (
    (FEW, True, STUDENT),
    (FEW, False, STUDENT_STEPS),
    (ALL, True, STUDENT_STEPS),
    (ALL, False, STUDENT_STEPS),
)
"""Labels (alpha of params.yaml, or 1.0), whether pretrained, student (of the dataset, or a baseline of equal steps)."""
SUBSET_STEP = 100
"""Difference between the seeds of two consecutive label subsets; the first has the seed of its dataset."""


class Model(NamedTuple):
    """A row of the report: of which run of `RUNS`, and which of its predictions."""

    run: int
    predictions: str


MODELS = {
    "color": Model(0, "color"),
    "frozen, linear": Model(0, "encoder_linear"),
    "fine-tuned": Model(0, "finetuned"),
    "student": Model(0, "student"),
    "student and color, stacked": Model(0, "stacked"),
    "random, fine-tuned": Model(1, "finetuned"),
    "random, as many steps": Model(1, "student"),
    "all labels, fine-tuned": Model(2, "finetuned"),
    "all labels, as many steps": Model(2, "student"),
    "random, all labels, as many steps": Model(3, "student"),
}
DIFFERENCES = (
    ("student", "fine-tuned"),
    ("student", "random, as many steps"),
    ("student", "color"),
    ("student and color, stacked", "color"),
    ("fine-tuned", "color"),
    ("student", "all labels, fine-tuned"),
    ("student", "all labels, as many steps"),
    ("student", "random, all labels, as many steps"),
)
STARTS = {
    "all labels, fine-tuned": "fine-tuned",
    "all labels, as many steps": "fine-tuned",
    "random, all labels, as many steps": "random, as many steps",
}
"""Model of all labels -> the model of few labels whose gap to it a student closes in part."""
VALUES = ["dataset", "dataset_seed", "subset", "metric", "model", "value"]
Metric = Callable[[Predictions, str], float]


def pretraining_of(dataset: str) -> str:
    """Its method."""
    return PRETRAINED.get(dataset, DEFAULT)


def student_of(dataset: str, student: str) -> str:
    """The method that a student of `RUNS` stands for."""
    return student or TAUGHT.get(dataset, OTHERS_TAUGHT)


def run_dataset(
    folder: Path, dataset: str, dataset_seed: int, subset: int, changes: Sequence[str], runs: Sequence[int]
) -> None:
    """All stages that `RUNS` needs; leaves <dataset>-<seed>-<run>-<subset>.csv in `folder`."""
    wanted = [folder / f"{dataset}-{dataset_seed}-{number}-{subset}.csv" for number in range(len(RUNS))]
    place = folder / f"{dataset}-{dataset_seed}"
    place.mkdir(parents=True, exist_ok=True)
    seed = seed_of(dataset_seed, subset)
    changes = [f"training_seeds=[{seed}]", *changes]
    alpha = write_params(place, dataset, dataset_seed, changes)["alpha"]
    if dataset in CORPORA:
        _stage(place, "data/phantom/metrics.json", "phantom")
    elif not (place / "data/index/metrics.json").exists():
        real_patches.lay_out(place, dataset, dataset_seed, REAL)
    _stage(place, "data/index/metrics.json", "index")
    for number, (labels, is_pretrained, student) in enumerate(RUNS):
        method = pretraining_of(dataset) if is_pretrained else NONE
        if wanted[number].exists() or number not in runs:
            continue
        write_params(place, dataset, dataset_seed, [*changes, f"alpha={alpha if labels == FEW else 1.0}"])
        of_method, of_run = ("--method", method), ("--method", method, "--seed", str(seed))
        encoder = Path(f"data/models/{method}-{dataset_seed}")
        _take_encoder(folder, place, encoder)
        _stage(place, str(encoder / "metrics.json"), "pretrain", *of_method)
        _stage(place, "", "finetune", *of_run)
        _stage(place, "", "consistency", *of_run, "--student", student_of(dataset, student))
        evaluate(folder, dataset, dataset, dataset_seed, subset, number)


def evaluate(folder: Path, title: str, dataset: str, dataset_seed: int, subset: int, number: int) -> None:
    """Evaluate one of `RUNS` in <title>-<seed>; the result is <title>-<seed>-<run>-<subset>.csv in `folder`."""
    place, seed = folder / f"{title}-{dataset_seed}", seed_of(dataset_seed, subset)
    _, is_pretrained, of_run = RUNS[number]
    student = student_of(dataset, of_run)
    method = pretraining_of(dataset) if is_pretrained else NONE
    _stage(place, "", "evaluate", "--method", method, "--seed", str(seed), "--student", student)
    done = place / f"data/evaluation/{method}-{dataset_seed}-{student}-{seed}/predictions.csv"
    shutil.copy(done, folder / f"{title}-{dataset_seed}-{number}-{subset}.csv")


def seed_of(dataset_seed: int, subset: int) -> int:
    """Seed of a label subset and of its trainings."""
    return dataset_seed + SUBSET_STEP * subset


def write_params(place: Path, dataset: str, dataset_seed: int, changes: Sequence[str]) -> dict[str, Any]:
    """Params of a dataset, with `changes` (dotted key=value); returned as they are written."""
    tree: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text())
    if dataset in CORPORA:
        tree |= {"dataset": dataset, "pretraining_dataset": CORPORA[dataset]}
    else:
        tree |= {"source": "raw", "dataset": "own", "pretraining_dataset": "own"}
        changes = [*real_patches.CHANGES[dataset], *changes]
    tree |= {"pretraining_methods": [NONE, pretraining_of(dataset)], "training_seeds": [dataset_seed]}
    tree |= {"semisupervised_methods": [student_of(dataset, STUDENT), STUDENT_STEPS]}
    tree["slide_level"]["pretraining_methods"] = []
    for section in ("phantom", "index"):
        tree[section]["seed"] = dataset_seed
    tree["pretraining_seeds"] = [dataset_seed]
    for change in changes:
        dotted, _, value = change.partition("=")
        *sections, key = dotted.split(".")
        part: Any = tree
        for name in sections:
            part = part[name]
        if key not in part:
            raise SystemExit(f"--set {change}: params.yaml has no {dotted}")
        part[key] = yaml.safe_load(value)
    (place / "params.yaml").write_text(yaml.safe_dump(tree))
    return tree


def _take_encoder(folder: Path, place: Path, encoder: Path) -> None:
    """Unless it is there, copy it from another dataset with the same centers of the same slides."""
    if (place / encoder / "metrics.json").exists():
        return
    pretrained_on = [Path("data/index") / name for name in ("slides.csv", "centers.csv")]
    for other in sorted(folder.glob(f"*-{place.name.rsplit('-', 1)[1]}")):
        done = other != place and (other / encoder / "metrics.json").exists()
        if done and all((other / path).read_bytes() == (place / path).read_bytes() for path in pretrained_on):
            shutil.copytree(other / encoder, place / encoder, dirs_exist_ok=True)


def _stage(place: Path, done: str, *call: str) -> None:
    """Run a stage where what it leaves last is not there yet."""
    if done and (place / done).exists():
        return
    print(place.name, *call, flush=True)
    found = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    cpus = os.environ.get("HISTO_MONAI_CPUS", "1")
    alone = {"OMP_NUM_THREADS": "1", "HISTO_MONAI_CPUS": cpus, "PYTHONPATH": found}
    command = [sys.executable, "-m", "histo_monai", *call]
    with (place / "log").open("ab") as log:
        subprocess.run(command, cwd=place, env=os.environ | alone, stdout=log, stderr=log, check=True)


def accuracy_of(table: Predictions, model: str) -> float:
    """Of classes."""
    return accuracy(table.references[""], table.predictions[model])


def macro_auc_of(table: Predictions, model: str) -> float:
    """Mean of each class against the rest."""
    return macro_auc(table.references[""], table.predictions[model])


def icc_of(table: Predictions, model: str) -> float:
    """ICC(2,1) with the first rater, or with the score."""
    reference = next(iter(table.references.values()))
    return intraclass_correlation(np.stack([reference, table.predictions[model]], axis=1), form="ICC2").value


def measured(folder: Path) -> pd.DataFrame:
    """Columns `VALUES` of every run in `folder`."""
    rows = []
    for path in sorted(folder.glob("*-*-0-*.csv")):
        dataset, dataset_seed, _, subset = path.stem.split("-")
        paths = {
            number: folder / f"{dataset}-{dataset_seed}-{number}-{subset}.csv" for number in range(len(RUNS))
        }
        tables = {
            number: read_predictions(path).of_split("test") for number, path in paths.items() if path.exists()
        }
        metrics: dict[str, Metric] = (
            {"ICC": icc_of}
            if tables[0].classes is None
            else {"accuracy": accuracy_of, "macro AUC": macro_auc_of}
        )
        rows += [
            (
                dataset,
                int(dataset_seed),
                int(subset),
                title,
                name,
                round(metric(tables[model.run], model.predictions), 4),
            )
            for title, metric in metrics.items()
            for name, model in MODELS.items()
            if model.run in tables
        ]
    return pd.DataFrame(rows, columns=VALUES)


def report(values: pd.DataFrame) -> str:
    """Tables of all datasets, in Markdown."""
    lines: list[str] = []
    for (dataset, title), part in values.groupby(["dataset", "metric"], sort=False):
        subsets = part.astype({"value": float}).pivot_table(
            index=["dataset_seed", "subset"], columns="model", values="value"
        )
        table = subsets.groupby("dataset_seed").mean()
        table = table[[name for name in MODELS if name in table and table[name].notna().sum() > 1]]
        lines += [f"## {dataset}, {title}", ""]
        if table.empty:
            lines += ["one seed, two are needed", ""]
            continue
        lines += [f"| | {' | '.join(map(str, table.index))} | mean |", "|---" * (len(table) + 2) + "|"]
        for name in table:  # a mean over some of the seeds cannot be compared with one over all of them
            cells = [*table[name], table[name].mean(skipna=False)]
            lines.append(f"| {name} | {' | '.join('' if np.isnan(x) else f'{x:.3f}' for x in cells)} |")
        parts = fresh_and_others(str(dataset), table.index)
        titles = [f"{title}, {numbers_in_words(dataset_seeds)}" for title, dataset_seeds in parts.items()]
        lines += ["", f"| difference | {' | | '.join(titles)} | | fraction of the gap closed |"]
        lines.append("|---" * (2 * len(parts) + 2) + "|")
        for first, second in DIFFERENCES:
            if first not in table or second not in table:
                continue
            paired = table if "all labels" in second else subsets  # all labels are one subset
            of_each = (paired[first] - paired[second]).dropna().groupby("dataset_seed").mean()
            margin = MARGIN if "all labels" in second else None
            cells = [cell for part in parts.values() for cell in difference_cells(of_each, part, margin)]
            closed = ""
            if second in STARTS and STARTS[second] in table:
                closed = gap_closed(table[[STARTS[second], first, second]].dropna())
            lines.append(f"| {first} - {second} | {' | '.join([*cells, closed])} |")
        lines.append("")
    return "\n".join(lines)


def fresh_and_others(dataset: str, dataset_seeds: pd.Index) -> dict[str, list[int]]:
    """Title of a column -> its seeds; no column without seeds."""
    is_fresh = (dataset_seeds >= FRESH_FROM) & (dataset not in real_patches.TABLES)
    parts = {"fresh": dataset_seeds[is_fresh].tolist(), "looked at before": dataset_seeds[~is_fresh].tolist()}
    return {title: part for title, part in parts.items() if part}


def main() -> None:
    """Run datasets, or report on those that were run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dataset", default="camelyon16", choices=(*CORPORA, *real_patches.TABLES))
    parser.add_argument(
        "--dataset-seeds",
        type=int,
        nargs="+",
        default=[10, 11, 12, 13, 14],
        help="of simulated datasets, or of repetitions on real patches",
    )
    parser.add_argument(
        "--subsets", type=int, nargs="+", default=[0], help="random label subsets of each dataset, by number"
    )
    parser.add_argument(
        "--runs", type=int, nargs="+", default=range(len(RUNS)), help="numbers of `RUNS`; all"
    )
    parser.add_argument(
        "--values", type=Path, help="a table of what was measured before; what is new is added"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a value of params")
    arguments = parser.parse_args()
    if arguments.what == "run":
        for dataset_seed in arguments.dataset_seeds:
            for subset in arguments.subsets:
                run_dataset(
                    arguments.folder, arguments.dataset, dataset_seed, subset, arguments.set, arguments.runs
                )
        return
    values = measured(arguments.folder)
    if arguments.values:
        known = pd.read_csv(arguments.values)[VALUES] if arguments.values.exists() else values.iloc[:0]
        values = pd.concat([known, values]).drop_duplicates(VALUES[:-1], keep="last")
        values = values.sort_values(VALUES[:3], kind="stable")
        values.to_csv(arguments.values, index=False)
    print(report(values))


if __name__ == "__main__":
    main()
