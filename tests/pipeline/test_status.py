"""`dvc status` after a line of code has changed, where outputs are files of no meaning: nothing is trained here."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.repo import Repo

from histo_monai.pipeline import imports
from histo_monai.pipeline.stages import code
from tests.folders import NewFolder
from tests.pipeline.names import run_of

Shell = Callable[..., str]

METHODS = ("random", "rsp", "moco")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def clone(root: Path, shell: Shell, module_folder: NewFolder) -> Path:
    """The files that git tracks, with three methods; every output is there, and the lock is that of the code now."""
    folder = module_folder("status")
    for name in shell("git ls-files --cached --others --exclude-standard", root).split():
        if (root / name).is_file() and name != "dvc.lock":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params |= {
        "pretraining_methods": list(METHODS),
        "training_seeds": [0],
        "semisupervised_methods": ["spatial_neighbors"],
    }
    params["slide_level"]["pretraining_methods"] = list(METHODS)
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    for stage in yaml.safe_load((folder / "dvc.yaml").read_text())["stages"].values():
        _write_outputs(folder, stage)
    for method, name in itertools.product(
        METHODS, ("encoder.safetensors", "encoder.json", "patches/file")
    ):  # files of an output folder that stages depend on
        _write(folder / f"data/features/{method}-0/{name}")
    for name in (params["pretraining_dataset"], params["dataset"]):
        _write(folder / f"data/phantom/{name}/slide")
    _write_digests(folder)
    shell("git init -q && dvc commit --force", folder)
    return folder


def _write_outputs(folder: Path, stage: Any) -> None:
    kinds = (stage.get(kind, ()) for kind in ("outs", "metrics", "plots"))
    paths = [
        next(iter(out)) if isinstance(out, dict) else out for out in itertools.chain.from_iterable(kinds)
    ]
    for path, method in itertools.product(paths, METHODS):
        for name, value in {"student": "spatial_neighbors", "encoder": "0", "seed": "0"}.items():
            path = path.replace(f"${{item.{name}}}", value)
        output = folder / path.replace("${item.method}", method)
        _write(output if output.suffix else output / "file")


def _write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def _write_digests(folder: Path) -> None:
    """The stage `code`, which `dvc repro` begins with, of the package in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for module in (imports, code):
            patch.setattr(module, "PACKAGE", folder / "histo_monai")
        code.run()


@pytest.fixture
def changed(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Adds a line to files of code, and gives the stages that DVC would run again for it."""
    monkeypatch.chdir(clone)
    digests = {path: path.read_bytes() for path in (clone / "data/code").rglob("*.json")}

    def change(*patterns: str) -> set[str]:
        files = {
            path: path.read_bytes() for pattern in patterns for path in clone.glob(f"histo_monai/{pattern}")
        }
        assert len(files) >= len(patterns)
        for path, text in files.items():
            path.write_bytes(text + b"\n# a line\n")
        _write_digests(clone)
        with Repo() as repo:  # as `dvc status` does, without starting Python for each
            status = repo.status()
        for path, text in files.items():
            path.write_bytes(text)
        for path, text in digests.items():
            path.write_bytes(text)
        assert "code" in status
        return set(status) - {"code"}

    return change


def _of_each(*stages: str, methods: tuple[str, ...] = METHODS) -> set[str]:
    return {run_of(stage, method) for stage in stages for method in methods}


def test_nothing_has_changed_at_first(clone: Path, shell: Shell) -> None:
    assert "up to date" in shell("dvc status", clone)


def test_a_change_in_the_reports_reaches_only_what_draws_results(changed: Callable[..., set[str]]) -> None:
    assert changed("reports/*.py", "reports/*.csv") == _of_each("evaluate", "heatmap", "aggregate", "mil") | {
        "check",
        "compare",
        "report",
    }


def test_a_change_in_a_method_reaches_the_pretraining_of_that_method_alone(
    changed: Callable[..., set[str]],
) -> None:
    assert changed("pretraining/moco.py") == {"pretrain@moco-0"}


def test_a_change_in_what_every_pretraining_runs_reaches_no_other_stage(
    changed: Callable[..., set[str]],
) -> None:
    assert changed("pretraining/trainer.py") == {f"pretrain@{method}-0" for method in METHODS}


def test_a_change_in_the_students_network_reaches_no_encoder_and_no_finetuned_model(
    changed: Callable[..., set[str]],
) -> None:
    assert changed("semisupervised/students/student.py") == _of_each("consistency")
    assert changed("models/teacher_student.py") == set()  # of `paper`, which is not in use


def test_a_change_in_a_command_reaches_nothing(changed: Callable[..., set[str]]) -> None:
    assert changed("pipeline/commands/*.py", "pipeline/doctor/*.py", "__init__.py") == set()


def test_a_change_in_the_readers_of_other_datasets_reaches_nothing(changed: Callable[..., set[str]]) -> None:
    others = (f"data/readers/{dataset}/*.py" for dataset in ("breastpathq", "kather", "own"))
    assert changed(*others) == set()


def test_a_change_in_the_reader_of_the_dataset_in_use_reaches_the_index(
    changed: Callable[..., set[str]],
) -> None:
    assert changed("data/readers/camelyon16/reader.py") == {"index"}


def test_a_change_in_what_loads_batches_reaches_no_index(changed: Callable[..., set[str]]) -> None:
    assert changed("data/loaders/streams.py") == _of_each("finetune", "consistency", "evaluate")
