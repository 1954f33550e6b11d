"""Wrong labels of known datasets, equally many labels of each patient, and the simulated Camelyon16."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from benchmarks.real import simulated
from benchmarks.real.doubtful import Case, changed_labels, changed_patient, found, held_out
from benchmarks.real.models import Majority, PerPatient, Problem
from benchmarks.real.tasks import TASKS, read_patches, split_rows
from histo_monai.data.simulated.datasets.camelyon16 import make_world, slide_specs
from histo_monai.data.simulated.tissue.render import render
from histo_monai.finetuning.heads.selection import Labels


@pytest.mark.parametrize(("rate", "number"), [(0.05, 10), (0.1, 20), (0.2, 40)])
def test_so_many_labels_become_another_class(rate: float, number: int) -> None:
    targets = np.random.default_rng(0).integers(3, size=200)
    given, is_changed = changed_labels(targets, 3, rate, np.random.default_rng(1))
    assert ((given != targets) == is_changed).all()
    assert is_changed.sum() == number
    assert set(given.tolist()) <= {0, 1, 2}


def test_changed_labels_become_each_other_class_equally_often() -> None:
    given, _ = changed_labels(np.zeros(6000, np.int64), 3, 0.5, np.random.default_rng(0))
    assert np.bincount(given)[1:] / 3000 == pytest.approx([0.5, 0.5], abs=0.04)


def test_one_patients_class_is_changed_as_a_whole() -> None:
    targets = np.tile([0, 0, 1], 20)
    owners = np.repeat(["a", "b", "c", "d"], 15)
    for seed in range(10):
        given, is_changed = changed_patient(targets, owners, 2, np.random.default_rng(seed))
        assert ((given != targets) == is_changed).all()
        ((owner, number),) = set(zip(owners[is_changed], targets[is_changed], strict=True))
        assert (is_changed == ((owners == owner) & (targets == number))).all()


def test_no_label_of_a_patient_changes_predictions_of_its_patches() -> None:
    random = np.random.default_rng(0)
    owners = np.repeat(["a", "b", "c", "d", "e", "f"], 8)
    targets = np.tile([0, 1], 24)
    rows = {"features": (random.normal(size=(48, 6)) + targets[:, None]).astype(np.float32)}
    before = held_out(rows, Labels(targets, owners, 2), rows, owners, 0)
    changed = targets.copy()
    changed[:3] = 1 - changed[:3]  # Patient a still has both classes, so the folds are the same.
    after = held_out(rows, Labels(changed, owners, 2), rows, owners, 0)
    assert (before[:8] == after[:8]).all()
    assert (before[8:] != after[8:]).any()
    assert before.sum(axis=1) == pytest.approx(np.ones(48))


def test_the_first_fifty_are_counted() -> None:
    doubt = np.random.default_rng(0).permutation(200).astype(float)
    is_changed = np.random.default_rng(1).random(200) < 0.3
    case = Case(np.zeros(200, int), is_changed, np.zeros((200, 2)), np.zeros((200, 1), int))
    expected = sum(changed for _, changed in sorted(zip(-doubt, is_changed, strict=True))[:50])
    assert found(case, doubt) == expected


def test_without_doubt_a_list_is_random() -> None:
    """50 of 100 labels hold half of the changed ones."""
    is_changed = np.arange(100) < 40  # Rows in their order would list 40.
    case = Case(np.zeros(100, int), is_changed, np.zeros((100, 2)), np.zeros((100, 1), int))
    assert 10 <= found(case, np.zeros(100)) <= 30


@dataclass(frozen=True)
class _Remember(Majority):
    """Returns the rows that were labeled."""

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        return problem.split.labeled.astype(np.float64)[:, None]


def test_each_patient_gives_equally_many_labels(real: Path, tmp_path: Path) -> None:
    task = TASKS["glas-classes"]
    patches = read_patches(real, task)
    split = split_rows(task, patches, 0, 3, 20)
    problem = Problem(real, tmp_path, task, patches, 0, 3, split)
    labeled = PerPatient(_Remember()).predict(problem)[:, 0].astype(int)
    counts = Counter(patches["patient_id"].iloc[labeled])
    assert len(set(labeled)) == 20
    assert max(counts.values()) - min(counts.values()) <= 1
    assert len(counts) == patches["patient_id"].iloc[split.unlabeled].nunique()
    assert set(labeled) <= set(split.unlabeled)
    assert (patches["label"].iloc[labeled] != "").all()


def test_one_simulated_patch_of_twelve_shows_painted_tumor(tmp_path: Path) -> None:
    specs = list(slide_specs(simulated.SEED, 4, 0, simulated.SIDE_PX, simulated.MPP).values())
    cells = simulated.chosen_cells(specs)
    assert cells["is_tumor"].mean() == pytest.approx(simulated.PREVALENCE, abs=0.005)
    assert (cells.groupby("slide").size() == simulated.PER_SLIDE).all()
    assert not cells.duplicated(["slide", "row", "column"]).any()
    some = pd.concat([cells[cells["is_tumor"]][:4], cells[~cells["is_tumor"]][:4]], ignore_index=True)
    simulated.write_archive(tmp_path / simulated.ARCHIVE, specs, some)
    side = simulated.PATCH_PX
    with zipfile.ZipFile(tmp_path / simulated.ARCHIVE) as archive:
        table = pd.read_csv(io.BytesIO(archive.read(simulated.TABLE)))
        for cell, row in zip(some.itertuples(), table.itertuples(), strict=True):
            world = make_world(specs[cell.slide])[0]
            rendered = render(world, cell.row * side, cell.column * side, side, side)
            stored = cv2.imdecode(np.frombuffer(archive.read(row.path), np.uint8), cv2.IMREAD_COLOR)
            assert (stored[..., ::-1] == rendered.image).all()
            assert (rendered.malignant.mean() > 0.1) == (row.label == "tumor")
