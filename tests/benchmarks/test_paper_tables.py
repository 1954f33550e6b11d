"""`benchmarks/paper_tables.py`: patients apart, steps, and tables against scikit-learn."""

from __future__ import annotations

import importlib
import itertools
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import balanced_accuracy_score

from benchmarks.real import encoders
from tests.benchmarks.real_data import EACH, PATIENTS, archive


@pytest.fixture
def tables(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as its command line imports it, with few steps."""
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    module = importlib.import_module("paper_tables")
    monkeypatch.setattr(module, "STEPS", {"finetune": 3, "consistency": 3})
    return module


@pytest.mark.parametrize("num_labeled", [16, 39, 160])
@pytest.mark.parametrize("mu", [1, 7])
def test_every_alpha_has_the_steps_within_half_an_epoch(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch, num_labeled: int, mu: int
) -> None:
    monkeypatch.setattr(tables, "STEPS", {"finetune": 400, "consistency": 300})
    epochs = dict(change.split("=") for change in tables.schedule(num_labeled, 160, mu))
    per_epoch = {"finetune": math.ceil(num_labeled / 4)}
    per_epoch["consistency"] = max(per_epoch["finetune"], math.ceil(160 / (4 * mu)))
    for stage, steps in tables.STEPS.items():
        num = int(epochs[f"{stage}.paper.epochs"])
        assert abs(num * per_epoch[stage] - steps) <= per_epoch[stage] / 2
        assert epochs[f"{stage}.paper.milestones"] == f"[{num // 3}, {2 * num // 3}]"
    assert epochs["mu"] == str(mu)


def test_patients_are_in_one_split_and_a_larger_alpha_has_the_labels_of_a_smaller_one(
    tables: ModuleType, real: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "NUM_TRAIN", 30)
    monkeypatch.setattr(tables, "NUM_VALIDATION", 10)
    table = tables.table_of(real, tables.TASKS["glas-classes"], 1)
    assert table.groupby("patient_id")["split"].nunique().max() == 1
    assert table["split"].value_counts().to_dict() == {"test": 3 * (EACH - 1), "train": 30, "validation": 10}
    rest = [
        tables.table_of(real, tables.TASKS["glas-classes"], fold).query("split == 'test'") for fold in (0, 2)
    ]
    assert pd.concat([table[table["split"] == "test"], *rest])["patient_id"].nunique() == PATIENTS
    labeled = [set(tables.labeled_rows(table, alpha)["patch_id"]) for alpha in tables.ALPHAS]
    assert all(few < many for few, many in itertools.pairwise(labeled))
    assert labeled[-1] == set(table[table["split"] == "train"]["patch_id"])


@pytest.mark.slow
def test_a_cell_predicts_without_labels_of_its_test_patients_and_goes_on_after_a_stop(
    tables: ModuleType, tmp_path: Path, real: Path, truth: tuple[np.ndarray, np.ndarray]
) -> None:
    cell = tables.Cell("glas-classes", 1, "random", 0.5)
    table = tables.table_of(real, tables.TASKS["glas-classes"], 1)
    tested = table[table["split"] == "test"]
    all_patches = tables.read_patches(real, tables.TASKS["glas-classes"])
    is_tested = all_patches["patch_id"].isin(tested["patch_id"]).to_numpy()
    other = archive(tmp_path / "other", np.where(is_tested, (truth[0] + 1) % 3, truth[0]), truth[1])
    predictions = []
    for name, data in (("clean", real), ("poisoned", other)):
        place = tables.Place(data, tmp_path / name)
        written = encoders.write_encoder("random", tmp_path / "written")
        place.encoder("random").parent.mkdir(parents=True)
        for file in (written, written.with_suffix(".json")):
            (place.encoder("random").parent / file.name).write_bytes(file.read_bytes())
        assert tables.train(place, cell) == cell
        predictions.append([np.load(place.predictions(cell, mu))["predictions"] for mu in (0, 7)])
    for clean, poisoned in zip(*predictions, strict=True):
        assert clean.shape == (len(tested), 3)
        assert clean.tobytes() == poisoned.tobytes()
    assert predictions[0][0].tobytes() != predictions[0][1].tobytes()

    place = tables.Place(real, tmp_path / "clean")
    model, student = place.of(cell) / "finetuned" / tables.MODEL, place.predictions(cell, 7)
    changed = model.stat().st_mtime_ns
    student.unlink()
    tables.train(place, cell)
    assert model.stat().st_mtime_ns == changed
    assert np.load(student)["predictions"].tobytes() == predictions[0][1].tobytes()


def test_tables_show_the_metric_of_the_saved_predictions(
    tables: ModuleType, tmp_path: Path, real: Path
) -> None:
    place = tables.Place(real, tmp_path)
    for method in tables.METHODS:
        place.encoder(method).parent.mkdir(parents=True)
        place.encoder(method).write_bytes(method.encode())
    cells = tables.cells_of(["glas-classes"], [0, 2])
    random = np.random.default_rng(0)
    truths = {
        fold: tables.table_of(real, tables.TASKS["glas-classes"], fold).query("split == 'test'")["label"]
        for fold in (0, 2)
    }
    for cell in cells:
        place.of(cell).mkdir(parents=True, exist_ok=True)
        for mu in (0, *cell.mus):
            np.savez(place.predictions(cell, mu), predictions=random.random((len(truths[cell.fold]), 3)))
    lines = tables.tables(place, cells)

    classes = tables.TASKS["glas-classes"].classes
    wanted = {}
    for mu in (0, 7):
        right, guessed = [], []
        for fold in (0, 2):
            path = place.predictions(tables.Cell("glas-classes", fold, "rsp", 0.1), mu)
            right += list(truths[fold])
            guessed += [classes[k] for k in np.load(path)["predictions"].argmax(axis=1)]
        wanted[mu] = balanced_accuracy_score(right, guessed)
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ")[1:] for line in lines}
    assert rows["rsp"][0] == f"{wanted[0]:.3f}"
    assert rows["rsp + CR"][0] == rows["RSP + CR"][-1].strip(" |") == f"{wanted[7]:.3f}"
    assert rows["difference"][-1].split()[0] == f"{wanted[7] - wanted[0]:+.3f}"
