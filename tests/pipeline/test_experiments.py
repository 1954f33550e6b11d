"""What `dvc exp show --json` tells, as DVC 3.67 writes it; where experiments leave event files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from histo_monai.pipeline import paths
from histo_monai.pipeline.experiments import Experiment, listed, read_experiments


def _data(alpha: float, **metrics: Any) -> dict[str, Any]:
    contents = {path: {"data": content} for path, content in metrics.items()}
    return {"params": {"params.yaml": {"data": {"alpha": alpha}}}, "metrics": contents}


def _entry(name: str, rev: str, state: str, data: Any) -> dict[str, Any]:
    executor = {"state": state, "name": "dvc-task", "local": {"returncode": None}}
    return {
        "name": name,
        "executor": executor,
        "revs": [{"rev": rev, "name": name, "data": data, "error": None}],
    }


def _baseline(rev: str, name: str | None, data: Any, *experiments: Any) -> dict[str, Any]:
    return {"rev": rev, "name": name, "data": data, "error": None, "experiments": list(experiments) or None}


SUMMARY = {"test_accuracy": {"student": 0.9}}


def test_finished_failed_and_waiting_experiments_are_distinguished() -> None:
    experiments = listed(
        [
            _baseline("workspace", None, _data(0.1)),
            _baseline(
                "a" * 40,
                "main",
                _data(0.1, summary=SUMMARY),
                _entry("rathe-tosh", "b" * 40, "success", _data(0.25, summary=SUMMARY)),
                _entry("focal-bice", "c" * 40, "failed", _data(0.001)),
                _entry("ionic-coho", "d" * 40, "running", _data(0.5)),
                _entry("soupy-miss", "e" * 40, "queued", _data(0.5)),
            ),
        ]
    )
    assert [(experiment.name, experiment.params["alpha"]) for experiment in experiments.done] == [
        ("main", 0.1),
        ("rathe-tosh", 0.25),
    ]
    assert experiments.done[1].metrics == {"summary": SUMMARY}
    assert experiments.failed == ["focal-bice"]
    assert experiments.waiting == ["ionic-coho", "soupy-miss"]


def test_an_experiment_run_in_the_workspace_has_no_executor_and_counts() -> None:
    entry = {
        "name": "oaken-fish",
        "executor": None,
        "revs": [{"rev": "f" * 40, "data": _data(1.0, s=SUMMARY)}],
    }
    experiments = listed([_baseline("a" * 40, "main", None, entry)])
    assert [experiment.name for experiment in experiments.done] == ["oaken-fish"]


def test_a_commit_that_was_never_run_is_no_experiment() -> None:
    assert listed([_baseline("a" * 40, "main", _data(0.1))]).done == []


def test_a_revision_seen_from_two_commits_counts_once() -> None:
    entry = _entry("rathe-tosh", "b" * 40, "success", _data(0.25, summary=SUMMARY))
    experiments = listed([_baseline("a" * 40, "main", None, entry), _baseline("9" * 40, "dev", None, entry)])
    assert len(experiments.done) == 1


def test_outside_a_repository_the_error_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"dvc exp show: .*Fix: run in the project") as caught:
        read_experiments(all_commits=False)
    assert "\n" not in str(caught.value)


def test_a_file_that_an_experiment_has_not_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lost = Experiment("rathe-tosh", "b" * 40, {}, {})
    with pytest.raises(
        ValueError, match=r"experiment rathe-tosh: data/x.csv is not in cache or remote .*dvc exp pull"
    ):
        lost.fetch(Path("data/x.csv"), tmp_path / "x.csv")


@pytest.mark.parametrize("temporary", [".dvc/tmp/exps/tmpx1", ".dvc/tmp/exps/standalone/tmpx1"])
def test_events_of_an_experiment_from_the_queue_lie_in_the_project_that_queued_it(
    temporary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / temporary
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setenv("DVC_EXP_NAME", "sober-rime")
    lies = tmp_path / "data/tensorboard/sober-rime/finetune/rsp-0-0"
    assert paths.tensorboard_folder("finetune", "rsp-0-0") == lies


@pytest.mark.parametrize(
    ("name", "folder", "root"),
    [
        pytest.param(None, ".", None, id="by hand"),
        pytest.param(None, ".", ".", id="dvc repro"),
        pytest.param("sober-rime", ".", ".", id="dvc exp run"),
        pytest.param(
            "sober-rime", "elsewhere", "project", id="another project, started by a stage of the first"
        ),
    ],
)
def test_events_of_all_else_lie_here(
    name: str | None, folder: str, root: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / folder)
    for variable, value in {"DVC_EXP_NAME": name, "DVC_ROOT": root and str(tmp_path / root)}.items():
        if value is None:
            monkeypatch.delenv(variable, raising=False)
        else:
            monkeypatch.setenv(variable, value)
    assert paths.tensorboard_folder("finetune", "rsp-0-0") == Path("data/tensorboard/finetune/rsp-0-0")
