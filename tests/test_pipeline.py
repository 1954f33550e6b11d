"""params.yaml, dvc.yaml, the stages and the methods agree with each other and with the code."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from histo_monai.__main__ import COMMANDS, STAGES
from histo_monai.datasets.registry import DATASETS
from histo_monai.pretext import PRETEXTS
from histo_monai.semisupervised import METHODS
from tests.dvc_deps import with_code_deps


@pytest.fixture(scope="module")
def pipeline(root: Path) -> Any:
    return yaml.safe_load((root / "dvc.yaml").read_text())["stages"]


def test_stage_command_and_module_have_one_name(pipeline: Any, root: Path) -> None:
    modules = {path.stem for path in (root / "histo_monai/stages").glob("*.py")} - {"__init__"}
    assert set(pipeline) == set(STAGES) == modules
    commands = {path.stem for path in (root / "histo_monai/commands").glob("*.py")} - {"__init__"}
    assert set(COMMANDS) == commands
    for name, stage in pipeline.items():
        assert stage["cmd"].startswith(f"python -m histo_monai {name}")


def test_every_stage_is_a_section_of_params(pipeline: Any, root: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    assert set(pipeline) <= set(tree)


def test_all_methods_have_sections(root: Path) -> None:
    section = yaml.safe_load((root / "params.yaml").read_text())["pretrain"]
    assert list(section) == ["seed", "augmentation", *PRETEXTS]


def test_every_stage_depends_on_the_files_that_it_imports_and_on_no_others(root: Path) -> None:
    text = (root / "dvc.yaml").read_text()
    expected = with_code_deps(text)
    assert text == expected, "dvc.yaml names other files than the stages import: run `make deps`"


def test_dependencies_are_written_anew_between_what_is_written_by_hand(root: Path) -> None:
    text = (root / "dvc.yaml").read_text()
    lines = text.splitlines(keepends=True)
    code = [number for number, line in enumerate(lines) if line.startswith("      - histo_monai/")]
    lines[code[0]] = "      - histo_monai/gone.py\n"
    del lines[code[5] : code[9]]
    lines.insert(code[3], "      - histo_monai/slides\n")
    assert "".join(lines) != text
    assert with_code_deps("".join(lines)) == text
    code_free = [line for line in text.splitlines() if "- histo_monai/" not in line]
    assert "# Models by name, each a folder" in "\n".join(code_free)
    without = with_code_deps("\n".join(code_free) + "\n")
    assert without == text


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dependencies_of_a_stage_exist(stage: str, pipeline: Any, root: Path) -> None:
    for dep, method, student, dataset in itertools.product(
        pipeline[stage]["deps"], PRETEXTS, METHODS, DATASETS
    ):
        path = dep.replace("${item.method}", method).replace("${item.student}", student)
        path = path.replace("${dataset}", dataset).replace("${corpus}", dataset)
        assert path.startswith("data/") or (root / path).exists(), path


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "consistency", "crossfit"])
def test_an_unfinished_training_is_known_by_the_params_of_its_stage(stage: str, pipeline: Any) -> None:
    module = importlib.import_module(f"histo_monai.stages.{stage}")
    assert list(module.PARAM_NAMES) == pipeline[stage]["params"]


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_params_of_a_stage_exist(stage: str, pipeline: Any, root: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    for dotted in pipeline[stage]["params"]:
        choices = itertools.product(tree["methods"], DATASETS)
        for method, dataset in choices:
            named = {"${item.method}": method, "${dataset}": dataset, "${corpus}": tree["corpus"]}
            named["${item.student}"] = tree["students"][0]
            filled = dotted
            for template, value in named.items():
                filled = filled.replace(template, value)
            section = tree
            for key in filled.split("."):
                assert key in section, filled
                section = section[key]


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_alpha_mu_and_n_aug_reach_neither_index_nor_pretrain(stage: str, pipeline: Any) -> None:
    used = set(pipeline[stage]["params"]) & {"alpha", "mu", "n_aug", "students", "seeds"}
    expected = {"finetune": {"alpha"}, "consistency": {"alpha", "mu", "n_aug"}, "evaluate": {"alpha"}}
    expected["crossfit"] = expected["consistency"]
    expected["compare"] = {"alpha", "mu", "n_aug", "students", "seeds"}
    assert used == expected.get(stage, set())
