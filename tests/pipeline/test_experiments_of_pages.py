"""Every `dvc exp run` of the pages, by DVC itself: planned to the last stage, or queued."""

from __future__ import annotations

import math
import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from dvc.cli import parse_args
from dvc.repo import Repo
from dvc.utils.cli_parse import to_path_overrides
from dvc.utils.hydra import apply_overrides, get_hydra_sweeps

from histo_monai.data.readers.registry import DATASETS
from tests.documentation.commands import EXPERIMENT, OF_THE_PAPER, RUN_ELSEWHERE, Command, commands, pages
from tests.folders import NewFolder
from tests.pipeline.conftest import Shell, copy_tracked

pytestmark = pytest.mark.slow

PLAN = "--dry --force --keep-going --allow-missing"
ONE_STAGE = ("code", "phantom", "index", "check", "compare", "report")


def _experiments(queued: bool) -> list[Command]:
    every = [command for path in pages() for command in commands(path)]
    ours = [one for one in every if re.fullmatch(EXPERIMENT, one.text)]
    here = {
        one.text: one for one in ours if not any(re.fullmatch(place, one.text) for place in RUN_ELSEWHERE)
    }
    return [one for one in here.values() if ("--queue" in one.text) == queued]


class Projects(NamedTuple):
    """Repositories with the params as committed, and with the paper's."""

    committed: Path
    of_the_paper: Path

    def of(self, command: Command) -> Path:
        """Where a page's command is given."""
        return self.of_the_paper if command.page == OF_THE_PAPER else self.committed


@pytest.fixture(scope="module")
def projects(root: Path, shell: Shell, module_folder: NewFolder) -> Projects:
    both = Projects(module_folder("committed"), module_folder("paper"))
    for folder in both:
        copy_tracked(root, folder, shell)
        for dataset in DATASETS:
            (folder / "data/raw" / dataset).mkdir(parents=True)
    shutil.copy(root / "params/paper.yaml", both.of_the_paper / "params.yaml")
    for folder in both:
        shell("git init -q && git add -A && git commit -qm start", folder)
    return both


def _runs(params: dict[str, Any]) -> dict[str, int]:
    """How often each stage runs."""
    pretrainings = len(params["pretraining_methods"]) * len(params["pretraining_seeds"])
    drawn = pretrainings * len(params["training_seeds"])
    return {
        **dict.fromkeys(ONE_STAGE, 1),
        **dict.fromkeys(("pretrain",), pretrainings),
        **dict.fromkeys(("finetune",), drawn),
        **dict.fromkeys(("consistency", "evaluate"), drawn * len(params["semisupervised_methods"])),
    }


def _wanted(command: Command, params: dict[str, Any]) -> dict[str, int]:
    if command.text.endswith(" check"):
        return dict.fromkeys(("code", "index", "check"), 1)
    return _runs(params)


def _check_plan(planned: list[str], command: Command, params: dict[str, Any]) -> None:
    wanted = _wanted(command, params)
    if command.text.endswith(" check"):
        assert {*planned} - {"phantom"} == {*wanted}
    assert {stage: planned.count(stage) for stage in wanted} == wanted


def _params_with(overrides: Any, params: Path, folder: Path) -> dict[str, Any]:
    """The tree of params.yaml as DVC writes it for `-S`."""
    path = Path(shutil.copy(params, folder / "params.yaml"))
    apply_overrides(path, overrides or [])
    result: dict[str, Any] = yaml.safe_load(path.read_text())
    return result


@pytest.mark.parametrize("command", _experiments(queued=False), ids=str)
def test_an_experiment_of_the_pages_is_planned_to_its_last_stage(
    command: Command, projects: Projects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the DVC of this process: `dvc exp run` sets the params and does the same."""
    folder = projects.of(command)
    asked = parse_args(shlex.split(command.text)[1:])
    params = _params_with(asked.set_param, folder / "params.yaml", tmp_path)
    committed = (folder / "params.yaml").read_text()
    monkeypatch.chdir(folder)
    shutil.copy(tmp_path / "params.yaml", folder)
    try:
        with Repo(str(folder)) as repo:
            done = repo.reproduce(asked.targets, dry=True, force=True, keep_going=True, allow_missing=True)
    finally:
        (folder / "params.yaml").write_text(committed)
    _check_plan([stage.addressing.partition("@")[0] for stage in done], command, params)


def test_the_first_experiment_of_each_project_is_planned_by_the_command_itself(
    projects: Projects, shell: Shell, tmp_path: Path
) -> None:
    first = {projects.of(command): command for command in reversed(_experiments(queued=False))}
    assert len(first) == len(projects)
    for folder, command in first.items():
        output = shell(command.text.replace("dvc exp run", f"dvc exp run {PLAN}", 1), folder)
        asked = parse_args(shlex.split(command.text)[1:]).set_param
        params = _params_with(asked, folder / "params.yaml", tmp_path)
        _check_plan(re.findall(r"Running stage '([^'@]+)", output), command, params)
        assert not shell("git status --porcelain", folder)


def _num_values(command: Command) -> int:
    lists = [word.split("=")[1] for word in command.text.split() if word.count(",") and "[" not in word]
    return math.prod(len(values.split(",")) for values in lists)


@pytest.mark.parametrize("command", _experiments(queued=True), ids=str)
def test_a_sweep_of_the_pages_is_as_many_experiments_as_it_has_values(
    command: Command, projects: Projects, tmp_path: Path
) -> None:
    asked = parse_args(shlex.split(command.text)[1:]).set_param
    experiments = get_hydra_sweeps(to_path_overrides(asked))
    params = projects.of(command) / "params.yaml"
    trees = [_params_with(one["params.yaml"], params, tmp_path) for one in experiments]
    assert len(trees) == _num_values(command) > 3
    assert all(tree not in trees[:i] for i, tree in enumerate(trees))


def test_the_first_sweep_of_the_pages_is_queued(projects: Projects, shell: Shell) -> None:
    command = _experiments(queued=True)[0]
    folder, wanted = projects.of(command), _num_values(command)
    assert shell(command.text, folder).count("Queued experiment") == wanted
    assert shell("dvc queue remove --all", folder).count(",") == wanted - 1
