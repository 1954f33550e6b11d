"""The paper's tables 3 to 6 in small, on real tissue: pretraining methods x alpha, without and with `paper`, and mu.

    python benchmarks/paper_tables.py FOLDER [--workers 2]    # needs ../shared/real, which is only read

CoNSeP's scores stand in for BreastPathQ (table 3), GlaS's classes for Camelyon16's and Kather's patches (tables 4 and
5). Encoders are ResNet-18 from random weights, pretrained on the atlas by DVC. Then params/paper.yaml with the values
in `SMALL`, and epochs that give `STEPS` at each alpha. Separate validation patches select epochs, as in the paper;
the tables state how many labels that takes. Test patients have no patch in training or validation. A second call goes
on after a stop.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import math
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from atlas import ROOT, lay_out, read_slides
from numpy.typing import NDArray
from real.encoders import digest_of
from real.figures import METRICS, Replicates, crossed, difference, estimate
from real.jobs import one_thread_each, over_processes
from real.tasks import (
    TASKS,
    RealTask,
    check_data,
    data_digest,
    fold_of_rows,
    labeled_rows_of,
    read_patches,
    targets_of,
)
from real.trained import assembly_of, changed_params, no_picture

from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.data.tables.splits import label_ranks, labeled_rows, random_splits
from histo_monai.evaluation.metrics import Estimate, Resampling
from histo_monai.models.checkpoint import save_model
from histo_monai.models.layers import merged_state
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.context import Assembly, TrainingRows
from histo_monai.pipeline.finetuning import Finetuning
from histo_monai.pipeline.teaching import Teaching
from histo_monai.training.fit import Records
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import derive_seed, generator
from histo_monai.utils.storage import whole_file, whole_folder

REAL = ROOT.parent / "shared" / "real"
PAPER = ROOT / "params/paper.yaml"
STAND_INS = {"consep": "table 3", "glas-classes": "tables 4 and 5"}
METHODS = ("random", "vae", "moco", "rsp")
ALPHAS = (0.1, 0.25, 0.5, 1.0)
MUS = (1, 2, 3, 4, 5, 6, 7)
"""Table 6, of RSP at the smallest alpha."""
PATCH_PX = 64
NUM_TRAIN, NUM_VALIDATION = 160, 64
"""Patches, drawn at random from the training and validation patients'."""
VALIDATION_FRACTION = 0.25
BATCH_SIZE = 4
STEPS = {"finetune": 400, "consistency": 300}
SMALL = (
    "labels.own.validation=separate",
    *(
        f"{stage}.paper.{name}"
        for stage in STEPS
        for name in (f"batch_size={BATCH_SIZE}", "optimizer=adam", "lr=1.0e-4")
    ),
)
"""Batch, optimizer and learning rate of the paper's BreastPathQ."""
PRETRAINING = (
    f"patch_px={PATCH_PX}",
    f"pretraining_methods=[{', '.join(METHODS)}]",
    "encoder.name=resnet18",
    *(f"encoder.{name}=null" for name in ("weights", "sha256", "license", "side")),
    "corpora.own.num_train=1600",
    "corpora.own.num_validation=320",
    "pretrain.vae.epochs=5",
)
MODEL = "model.safetensors"
FINETUNED = 0
"""In place of mu: the fine-tuned model."""


class Cell(NamedTuple):
    """One fine-tuning, and the students that start from it."""

    task: str
    fold: int
    method: str
    alpha: float

    @property
    def mus(self) -> tuple[int, ...]:
        """Values of mu with a student."""
        return MUS if (self.method, self.alpha) == ("rsp", ALPHAS[0]) else MUS[-1:]


@dataclass(frozen=True)
class Place:
    """Folders of the data and the results."""

    real: Path
    folder: Path

    def encoder(self, method: str) -> Path:
        """A pretrained encoder."""
        return self.folder / f"encoders/data/models/{method}-0/encoder.safetensors"

    def of(self, cell: Cell) -> Path:
        """Results of a cell; the name depends on data, encoder and settings."""
        about = (
            data_digest(self.real, TASKS[cell.task].dataset),
            digest_of(self.encoder(cell.method)),
            PAPER.read_text(),
            (SMALL, STEPS, NUM_TRAIN, NUM_VALIDATION, VALIDATION_FRACTION),
        )
        digest = hashlib.sha256("\n".join(map(str, about)).encode()).hexdigest()[:16]
        return self.folder / f"{cell.task}-{cell.fold}-{cell.method}-{cell.alpha:g}-{digest}"

    def predictions(self, cell: Cell, mu: int) -> Path:
        """Predictions of the test patches: fine-tuned model, or student with mu."""
        return self.of(cell) / f"{mu or 'finetuned'}.npz"


def main() -> int:
    """Pretrain, train what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--real", type=Path, default=REAL, help=f"folder of zips and atlas (default: {REAL})")
    parser.add_argument("--tasks", nargs="+", choices=list(STAND_INS), default=list(STAND_INS))
    parser.add_argument("--folds", nargs="+", type=int, choices=range(3), default=[0], help="default: 0")
    parser.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    place = Place(options.real.absolute(), options.folder.absolute())
    try:
        check_data(place.real, options.tasks)
        pretrain(place)
        cells = cells_of(options.tasks, options.folds)
        run(place, cells, options.workers)
        print("\n".join(tables(place, cells)))
    except InputError as error:
        print(f"paper_tables: error: {error}", file=sys.stderr)
        return 1
    return 0


def pretrain(place: Place) -> None:
    """The encoders, by DVC in a project of the atlas."""
    project = place.folder / "encoders"
    slides = read_slides(place.real / "atlas")
    if not project.exists():
        words = [sys.executable, "-m", "histo_monai", "init", str(project), "--dataset", "own"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    lay_out(project, slides, 0, list(PRETRAINING))
    stages = [f"pretrain@{method}-0" for method in METHODS]
    subprocess.run([sys.executable, "-m", "dvc", "repro", *stages], cwd=project, check=True)


def cells_of(tasks: Sequence[str], folds: Sequence[int]) -> list[Cell]:
    """Every fine-tuning that counts."""
    return [
        Cell(task, fold, method, alpha)
        for fold in folds
        for alpha in ALPHAS
        for method in METHODS
        for task in tasks
    ]


def run(place: Place, cells: Sequence[Cell], workers: int) -> None:
    """Train and predict what is missing."""
    missing = [
        cell
        for cell in cells
        if not all(place.predictions(cell, mu).exists() for mu in (FINETUNED, *cell.mus))
    ]
    num_students = sum(len(cell.mus) for cell in cells)
    print(
        f"{len(cells)} fine-tunings and {num_students} students count; {len(missing)} fine-tunings are not complete"
    )
    for number, cell in enumerate(over_processes(partial(train, place), missing, workers), start=1):
        print(f"{number} of {len(missing)}: {' '.join(map(str, cell))}", flush=True)


def train(place: Place, cell: Cell) -> Cell:
    """Fine-tune, teach the students, and save the predictions of each; log.txt has their epochs."""
    place.of(cell).mkdir(parents=True, exist_ok=True)
    with (place.of(cell) / "log.txt").open("a") as log, redirect_stdout(log), redirect_stderr(log):
        _train(place, cell)
    return cell


def _train(place: Place, cell: Cell) -> None:
    table = table_of(place.real, TASKS[cell.task], cell.fold)
    encoder, model = place.encoder(cell.method), place.of(cell) / "finetuned" / MODEL
    if not model.exists():
        assembly, rows = _parts(table, cell, FINETUNED)
        finetuning = Finetuning(
            assembly, encoder, rows, LabelFolds({}), derive_seed(0, "finetune"), no_picture, _no_records
        )
        trained, description, _ = finetuning.train()
        with whole_folder(model.parent) as draft:
            save_model(draft / MODEL, merged_state(trained), description)
    for mu in (FINETUNED, *cell.mus):
        path = place.predictions(cell, mu)
        if path.exists():
            continue
        assembly, rows = _parts(table, cell, mu)
        predicting = assembly.load(model)[0]
        if mu:
            predicting = Teaching(
                assembly,
                "paper",
                partial(_saved, assembly, model),
                rows,
                LabelFolds({}),
                derive_seed(0, "consistency"),
                no_picture,
                _no_records,
            ).train()[0]
        predictions = assembly.predictions(predicting, _split(table, "test"))
        with whole_file(path) as draft:
            np.savez(draft, predictions=predictions)


def table_of(real: Path, task: RealTask, fold: int) -> pd.DataFrame:
    """Labeled patches of a task with split and label rank; a fold's patients are the test patients."""
    patches = read_patches(real, task)
    is_tested = fold_of_rows(task, patches) == fold
    table = patches.assign(split=np.where(is_tested, "test", ""))[labeled_rows_of(task, patches)].reset_index(
        drop=True
    )
    table["split"] = random_splits(table, VALIDATION_FRACTION, generator(fold, "paper tables, splits"))
    order = generator(fold, "paper tables, patches").permutation(len(table))
    place_in_split = table.iloc[order].groupby("split").cumcount().sort_index()
    most = table["split"].map({"train": NUM_TRAIN, "validation": NUM_VALIDATION}).fillna(len(table))
    table = table[place_in_split < most].reset_index(drop=True)
    return table.assign(label_rank=label_ranks(table, generator(fold, "paper tables, ranks")))


def _split(table: pd.DataFrame, split: str) -> pd.DataFrame:
    return table[table["split"] == split].reset_index(drop=True)


def _parts(table: pd.DataFrame, cell: Cell, mu: int) -> tuple[Assembly, TrainingRows]:
    """The product's parts for a training, and its rows."""
    train_rows = _split(table, "train")
    rows = TrainingRows(labeled_rows(table, cell.alpha), train_rows, train_rows, _split(table, "validation"))
    changes = [f"alpha={cell.alpha}", *SMALL, *schedule(len(rows.labeled), len(train_rows), mu)]
    params = changed_params(changes, PATCH_PX, PAPER)
    return assembly_of(params, table, TASKS[cell.task], torch.device("cpu")), rows


def schedule(num_labeled: int, num_unlabeled: int, mu: int) -> list[str]:
    """Changes of params for `STEPS`: epochs, and a tenth of the rate after each third of them; mu of a student.

    An epoch has every labeled patch once; a student's has every unlabeled patch once, too.
    """
    labeled = math.ceil(num_labeled / BATCH_SIZE)
    per_epoch = {
        "finetune": labeled,
        "consistency": max(labeled, math.ceil(num_unlabeled / (BATCH_SIZE * (mu or MUS[-1])))),
    }
    changes = [f"mu={mu}"] if mu else []
    for stage, steps in STEPS.items():
        epochs = max(3, round(steps / per_epoch[stage]))
        changes += [
            f"{stage}.paper.epochs={epochs}",
            f"{stage}.paper.milestones=[{epochs // 3}, {2 * epochs // 3}]",
        ]
    return changes


def tables(place: Place, cells: Sequence[Cell]) -> list[str]:
    """All tables in Markdown."""
    lines: list[str] = []
    for task in dict.fromkeys(cell.task for cell in cells):
        of_task = [cell for cell in cells if cell.task == task]
        known = _Known(place, of_task)
        lines += ["", f"**{task}, in place of {STAND_INS[task]}**: {known.about()}", ""]
        lines += ["| | " + " | ".join(known.heads()) + " |", "|---" * (len(ALPHAS) + 1) + "|"]
        for method in METHODS:
            lines.append(_row(method, [known.value(method, alpha, FINETUNED) for alpha in ALPHAS]))
            lines.append(_row(f"{method} + CR", [known.value(method, alpha, MUS[-1]) for alpha in ALPHAS]))
            gains = [known.gain(method, alpha, MUS[-1]) for alpha in ALPHAS]
            lines.append(_row("difference", gains, sign="+"))
        lines += ["", "| table 6 | " + " | ".join(f"mu {mu}" for mu in MUS) + " |"]
        lines.append("|---" * (len(MUS) + 1) + "|")
        lines.append(_row("RSP + CR", [known.value("rsp", ALPHAS[0], mu) for mu in MUS]))
        lines.append(_row("difference", [known.gain("rsp", ALPHAS[0], mu) for mu in MUS], sign="+"))
    return lines


def _row(name: str, estimates: Sequence[Estimate], sign: str = "") -> str:
    cells = [
        f"{each.value:{sign}.3f}"
        + (f" ({each.low:+.3f} to {each.high:+.3f})" if sign and each.low == each.low else "")
        for each in estimates
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


class _Known:
    """Figures of one task from the saved predictions."""

    def __init__(self, place: Place, cells: Sequence[Cell]) -> None:
        self._place, self._cells = place, cells
        self._task = TASKS[cells[0].task]
        folds = dict.fromkeys(cell.fold for cell in cells)
        self._tables = {fold: table_of(place.real, self._task, fold) for fold in folds}
        tested = pd.concat([_split(table, "test") for table in self._tables.values()])
        self._targets = targets_of(self._task, tested)
        self._patients = tested["patient_id"].to_numpy(dtype=object)

    def about(self) -> str:
        """Metric, and numbers of patches and labels."""
        sizes = [table["split"].value_counts() for table in self._tables.values()]
        metric = self._task.metrics[0].replace("_", " ")
        groups = f"{len(np.unique(self._patients.astype(str)))} {self._task.groups}"
        counts = ", ".join(
            f"{size['train']} training and {size['validation']} validation patches" for size in sizes
        )
        return f"{metric} of {len(self._targets)} patches of {groups}; {counts}."

    def heads(self) -> list[str]:
        """Alpha and all labels in use, those of validation included."""
        heads = []
        for alpha in ALPHAS:
            counts = [
                len(labeled_rows(t, alpha)) + len(_split(t, "validation")) for t in self._tables.values()
            ]
            heads.append(f"alpha {alpha:g}, labels {' '.join(map(str, counts))}")
        return heads

    def value(self, method: str, alpha: float, mu: int) -> Estimate:
        """Of the fine-tuned model, or of the student with mu."""
        return estimate(*self._replicates(method, alpha, mu))

    def gain(self, method: str, alpha: float, mu: int) -> Estimate:
        """Student minus fine-tuned model, with a 95 % interval that resamples patients."""
        student, resampling = self._replicates(method, alpha, mu)
        return estimate(difference(student, self._replicates(method, alpha, FINETUNED)[0]), resampling)

    def _replicates(self, method: str, alpha: float, mu: int) -> tuple[Replicates, Resampling]:
        predictions: list[NDArray[np.float32]] = []
        for fold in self._tables:
            with np.load(self._place.predictions(Cell(self._task.name, fold, method, alpha), mu)) as arrays:
                predictions.append(arrays["predictions"])
        metric = METRICS[self._task.metrics[0]]
        return crossed(metric, self._targets, self._patients, [np.concatenate(predictions)])


def _saved(assembly: Assembly, model: Path, _: int | None) -> tuple[TaskModel, dict[str, Any]]:
    """The fine-tuned model; there are no folds."""
    return assembly.load(model)


def _no_records(*_: Any) -> Records:
    return Records()


if __name__ == "__main__":
    one_thread_each()
    sys.exit(main())
