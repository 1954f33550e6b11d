"""The tasks: tables of real patches, folds that leave patients out, and random subsets of the labels."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold

from histo_monai.data.tables.patches import labeled_table
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator
from histo_monai.utils.storage import file_sha256

from . import simulated

ALL_LABELS = 0
"""As a budget: every label of the training patients."""
BUDGETS = (15, 30, 60, 120, 240, ALL_LABELS)
SUBSETS = (0, 1, 2, 3, 4)
"""Seeds of the random subsets of the labels, by which models are compared and defaults are chosen."""
FRESH_SUBSETS = (100, 101, 102, 103, 104)
"""Seeds of one final report; nothing is chosen by them."""


@dataclass(frozen=True)
class Dataset:
    """A zip of patches.

    Attributes:
        archive: its file.
        tables: csv files in it; the first has a row for every patch.
        side_px: of the patches.
        prefix: of the paths in the tables, which a path in the zip lacks.
    """

    archive: str
    tables: tuple[str, ...]
    side_px: int
    prefix: str = ""


DATASETS = {
    "glas": Dataset("glas-patches.zip", ("scores.csv", "classes.csv"), 128),
    "consep": Dataset("consep-patches.zip", ("scores.csv",), 128),
    "lung": Dataset("lung-patches.zip", ("patches.csv",), 112, "lung-patches.zip/"),
    "breast": Dataset("idc-patches.zip", ("idc-patches/index.csv",), 50),
    "camelyon16-simulated": Dataset(simulated.ARCHIVE, (simulated.TABLE,), simulated.PATCH_PX),
}


@dataclass(frozen=True)
class RealTask:
    """What is predicted of the patches of a dataset.

    Attributes:
        name: of the task.
        dataset: a name in `DATASETS`.
        classes: in the order of their numbers; None for scores.
        groups: what the folds keep apart, in words.
        num_folds: how many.
        metrics: names in `figures.METRICS`, the headline first.
    """

    name: str
    dataset: str
    classes: tuple[str, ...] | None
    groups: str
    num_folds: int
    metrics: tuple[str, ...]


TASKS = {
    task.name: task
    for task in (
        RealTask(
            "glas-classes",
            "glas",
            ("benign-gland", "malignant-gland", "stroma"),
            "patients",
            3,
            ("balanced_accuracy",),
        ),
        RealTask("glas-score", "glas", None, "patients", 3, ("icc",)),
        RealTask("consep", "consep", None, "fields", 3, ("icc",)),
        RealTask(
            "lung",
            "lung",
            ("adenocarcinoma", "normal", "squamous"),
            "sources",
            3,
            ("balanced_accuracy",),
        ),
        RealTask("breast", "breast", ("idc", "normal"), "patients", 2, ("auc", "balanced_accuracy")),
        RealTask(
            "camelyon16-simulated",
            "camelyon16-simulated",
            ("normal", "tumor"),
            "slides",
            3,
            ("balanced_accuracy",),
        ),
    )
}
REAL_TASKS = [name for name, task in TASKS.items() if DATASETS[task.dataset].archive != simulated.ARCHIVE]
"""Names of the tasks of real tissue: the report's."""


def check_data(real: Path, tasks: Sequence[str]) -> None:
    """Refuse to start without data.

    Raises:
        InputError: names every zip that is missing.
    """
    archives = dict.fromkeys(DATASETS[TASKS[name].dataset].archive for name in tasks)
    missing = [archive for archive in archives if not (real / archive).is_file()]
    if missing:
        raise InputError(
            f"{real}: {', '.join(missing)} missing. Fix: put the zips there, or name their folder by --real."
        )


@cache
def read_patches(real: Path, task: RealTask) -> pd.DataFrame:
    """All patches of a task's dataset: `PATCH_COLUMNS`, the row order of the dataset's first table.

    `label` is empty and `score` missing where a patch has none for this task. Tasks of one dataset have equal rows.
    """
    dataset = DATASETS[task.dataset]
    with zipfile.ZipFile(real / dataset.archive) as archive:
        tables = [pd.read_csv(io.BytesIO(archive.read(name))) for name in dataset.tables]
    patches = tables[0].rename(columns={"label": "class"})
    for table in tables[1:]:
        patches = patches.merge(
            table[["path", "label"]].rename(columns={"label": "class"}), how="left", on="path"
        )
    names = patches["path"].str.removeprefix(dataset.prefix)
    columns = {
        "patch_id": names,
        "path": str(real / dataset.archive) + "/" + names,
        "patient_id": patches["patient_id"].astype(str),
        "side_px": dataset.side_px,
    }
    if "mpp" in patches:
        columns["mpp"] = patches["mpp"]
    columns |= {"score": patches["score"]} if task.classes is None else {"label": patches["class"]}
    return labeled_table(pd.DataFrame(columns))


@cache
def data_digest(real: Path, dataset: str) -> str:
    """SHA-256 of the dataset's zip."""
    return file_sha256(real / DATASETS[dataset].archive)


def targets_of(task: RealTask, patches: pd.DataFrame) -> NDArray:
    """Class numbers, int64, -1 for a patch without a class; or scores, float64. Shape (n,)."""
    if task.classes is None:
        return patches["score"].to_numpy(np.float64)
    return pd.Index(task.classes).get_indexer(pd.Index(patches["label"])).astype(np.int64)


def labeled_rows_of(task: RealTask, patches: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each patch has a class or score; Shape (n,)."""
    targets = targets_of(task, patches)
    return ~np.isnan(targets) if task.classes is None else targets >= 0


def fold_of_rows(task: RealTask, patches: pd.DataFrame) -> NDArray[np.int64]:
    """The fold that tests each row; Shape (n,). A patient has one fold; no label is looked at."""
    fold = np.empty(len(patches), np.int64)
    groups = patches["patient_id"].to_numpy(dtype=object)
    for number, (_, tested) in enumerate(GroupKFold(task.num_folds).split(fold, groups=groups)):
        fold[tested] = number
    return fold


def label_ranks(task: RealTask, num_rows: int, subset: int) -> NDArray[np.int64]:
    """A random order of all rows of the dataset: the rank of each; Shape (n,).

    The order depends on dataset and subset alone, so budgets are nested and all folds have one order.
    """
    return generator(subset, "labels", task.dataset).permutation(num_rows)


@dataclass(frozen=True)
class Split:
    """Row numbers of one fold, subset and budget.

    Attributes:
        labeled: training patients' patches whose labels are given, sorted.
        unlabeled: all patches of the training patients.
        tested: patches of the other patients that have a label.
    """

    labeled: NDArray[np.intp]
    unlabeled: NDArray[np.intp]
    tested: NDArray[np.intp]


def split_rows(task: RealTask, patches: pd.DataFrame, fold: int, subset: int, budget: int) -> Split:
    """The rows of one fold, with a random budget of the training patients' labeled patches.

    Raises:
        ValueError: the training patients have fewer labels than the budget.
    """
    has_label = labeled_rows_of(task, patches)
    is_tested = fold_of_rows(task, patches) == fold
    pool = np.flatnonzero(~is_tested & has_label)
    if budget > len(pool):
        raise ValueError(f"{task.name}: {budget} labels asked for, {len(pool)} are there in fold {fold}")
    if budget != ALL_LABELS:
        pool = np.sort(pool[np.argsort(label_ranks(task, len(patches), subset)[pool])][:budget])
    return Split(pool, np.flatnonzero(~is_tested), np.flatnonzero(is_tested & has_label))
