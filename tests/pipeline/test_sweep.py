"""A sweep through DVC's queue, one member of which fails: docs/sweeps.md."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.event_files import scalars, table_of_runs
from tests.folders import NewFolder

Shell = Callable[..., str]

pytestmark = pytest.mark.slow
EVALUATE = "evaluate@rsp-0-spatial_neighbors-0"


@pytest.fixture(scope="module")
def swept(finished: Any, shell: Shell, module_folder: NewFolder) -> Path:
    """A clone that shares the finished one's cache, and so its pretraining, after a sweep of rsp over mu.

    It goes to the predictions of patches: `curves` reads no more.
    """
    folder = module_folder("swept")
    shell(f"git clone -q {finished.folder} . && dvc cache dir --local {finished.folder}/.dvc/cache", folder)
    patches_only = (
        "dvc exp run --queue -S 'pretraining_methods=[rsp]' -S 'slide_level.pretraining_methods=[]'"
    )
    shell(f"{patches_only} -S alpha=0.5 -S mu=1,2 {EVALUATE}", folder)
    shell(f"{patches_only} -S alpha=0.001 --name too-few {EVALUATE}", folder)
    shell("dvc queue start", folder)
    without_worker = 0
    for _ in range(75):
        status = shell("dvc queue status", folder)
        if not re.search("Running|Queued", status):
            return folder
        is_without = "Running" not in status and "Worker status: 0 active, 0 idle" in status
        without_worker = without_worker + 1 if is_without else 0
        if without_worker == 5:  # Not still starting: a busy machine has stopped it early.
            shell("dvc queue start", folder)
        time.sleep(4)
    pytest.fail(shell("dvc queue status", folder))


def test_one_that_fails_is_named_with_its_reason_and_leaves_the_others(swept: Path, shell: Shell) -> None:
    status = shell("dvc queue status", swept)
    assert re.search(r"too-few .*Failed", status)
    assert status.count("Success") == 2
    assert "alpha 0.001 leaves class" in shell("dvc queue logs too-few", swept)


def test_the_sweep_pretrains_not_at_all_and_fine_tunes_once(swept: Path) -> None:
    logs = "".join(path.read_text() for path in swept.glob(".dvc/tmp/exps/run/*/*.out"))
    assert "Running stage 'pretrain@rsp-0'" not in logs
    assert "Running stage 'index'" not in logs
    assert logs.count("Running stage 'finetune@rsp-0-0'") == 1  # alpha 0.5, for both mu
    assert logs.count("Running stage 'check'") == 2  # and the one that fails there
    assert logs.count("Running stage 'consistency@rsp-0-spatial_neighbors-0'") == 2


def test_tensorboard_compares_queued_experiments_in_the_project_that_queued_them(
    swept: Path, shell: Shell
) -> None:
    logs = swept / "data/tensorboard"
    table = table_of_runs(logs)
    students = {
        name.removesuffix("/consistency/rsp-0-spatial_neighbors-0"): row.hyperparameters["mu"]
        for name, row in table.items()
        if "/consistency/" in name
    }
    assert sorted(students.values()) == [1, 2]
    status = shell("dvc queue status", swept)
    assert all(re.search(rf"{name} .*Success", status) for name in students)
    (finetuned,) = table.keys() - {f"{name}/consistency/rsp-0-spatial_neighbors-0" for name in students}
    assert finetuned.removesuffix("/finetune/rsp-0-0") in students
    assert {path.name for path in logs.iterdir()} == set(
        students
    )  # neither what failed, nor what the cache had
    for name in table:
        assert len(scalars(logs / name)["loss/train"]) == 1  # epoch
        assert table[name].metrics["final/validation_accuracy"] <= 1
    assert shell("git status --porcelain", swept) == ""


def test_curves_collects_what_ended_well(swept: Path, shell: Shell) -> None:
    output = shell("python -m histo_monai curves", swept)
    assert "experiment=too-few excluded, it failed" in output
    points = pd.read_csv(swept / "data/curves/points.csv").query("metric == 'accuracy' and method == 'rsp'")
    settings = {
        (training, alpha, mu)
        for training, alpha, mu in points[["training", "alpha", "mu"]].fillna(0).to_numpy()
    }
    committed = {("finetune", 0.25, 0), ("spatial_neighbors", 0.25, 7)}  # the commit's own run
    assert settings == committed | {
        ("finetune", 0.5, 0),
        ("spatial_neighbors", 0.5, 1),
        ("spatial_neighbors", 0.5, 2),
    }
    assert "against mu, 50 % of the labels" in (swept / "data/curves/index.html").read_text()
