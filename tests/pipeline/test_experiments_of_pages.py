"""Every `dvc exp run` of the pages, by DVC itself: planned to the last stage, or queued."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from dvc.cli import parse_args
from dvc.utils.hydra import apply_overrides

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


@pytest.mark.parametrize("command", _experiments(queued=False), ids=str)
def test_an_experiment_of_the_pages_is_planned_to_its_last_stage(
    command: Command, projects: Projects, shell: Shell, tmp_path: Path
) -> None:
    folder = projects.of(command)
    output = shell(command.text.replace("dvc exp run", f"dvc exp run {PLAN}", 1), folder)
    planned = re.findall(r"Running stage '([^'@]+)", output)
    path = Path(shutil.copy(folder / "params.yaml", tmp_path))
    apply_overrides(path, parse_args(shlex.split(command.text)[1:]).set_param or [])
    wanted = _runs(yaml.safe_load(path.read_text()))
    if command.text.endswith(" check"):
        wanted = dict.fromkeys(("code", "index", "check"), 1)
        assert {*planned} - {"phantom"} == {*wanted}
    assert {stage: planned.count(stage) for stage in wanted} == wanted
    assert not shell("git status --porcelain", folder)


@pytest.mark.parametrize("command", _experiments(queued=True), ids=str)
def test_a_sweep_of_the_pages_is_queued(command: Command, projects: Projects, shell: Shell) -> None:
    folder = projects.of(command)
    output = shell(command.text, folder)
    values = [
        word.split("=")[1].split(",") for word in command.text.split() if word.count(",") and "[" not in word
    ]
    wanted = 1
    for some in values:
        wanted *= len(some)
    assert output.count("Queued experiment") == wanted > 3
    assert shell("dvc queue remove --all", folder).count(",") == wanted - 1
