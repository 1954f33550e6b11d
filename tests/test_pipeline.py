"""params.yaml, dvc.yaml, the stages and the methods agree with each other and with the code."""

from __future__ import annotations

import itertools
import typing
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

from histo_monai import params as params_module
from histo_monai.__main__ import COMMANDS, STAGES
from histo_monai.pretext import PRETEXTS


@pytest.fixture(scope="module")
def pipeline(root: Path) -> Any:
    return yaml.safe_load((root / "dvc.yaml").read_text())["stages"]


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("histo_monai", cache_dir=None)


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


def test_methods_are_the_pretexts_and_have_sections(root: Path) -> None:
    assert set(typing.get_args(params_module.Method)) == set(PRETEXTS)
    section = yaml.safe_load((root / "params.yaml").read_text())["pretrain"]
    assert set(PRETEXTS) <= set(section)


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dependencies_of_a_stage_cover_what_it_imports(
    stage: str, pipeline: Any, root: Path, imports: grimp.ImportGraph
) -> None:
    dependencies = [Path(dep) for dep in pipeline[stage]["deps"] if not dep.startswith("data/")]
    modules = {f"histo_monai.stages.{stage}", "histo_monai.__main__"}
    for module in set(modules):
        modules |= imports.find_upstream_modules(module)
    modules -= {"histo_monai", "histo_monai.stages"}  # a version and nothing
    for module in sorted(modules):
        path = Path(module.replace(".", "/"))
        file = path / "__init__.py" if (root / path).is_dir() else path.with_suffix(".py")
        assert any(dep == file or dep in file.parents for dep in dependencies), (
            f"{stage} does not depend on {file}"
        )


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dependencies_of_a_stage_exist(stage: str, pipeline: Any, root: Path) -> None:
    for dep in pipeline[stage]["deps"]:
        assert dep.startswith("data/") or (root / dep).exists(), dep


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_params_of_a_stage_exist(stage: str, pipeline: Any, root: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    for dotted in pipeline[stage]["params"]:
        choices = itertools.product(tree["methods"], typing.get_args(params_module.Dataset))
        for method, dataset in choices:
            named = {"${item.method}": method, "${dataset}": dataset, "${corpus}": tree["corpus"]}
            filled = dotted
            for template, value in named.items():
                filled = filled.replace(template, value)
            section = tree
            for key in filled.split("."):
                assert key in section, filled
                section = section[key]


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_alpha_mu_and_n_aug_reach_neither_index_nor_pretrain(stage: str, pipeline: Any) -> None:
    used = set(pipeline[stage]["params"]) & {"alpha", "mu", "n_aug", "seeds"}
    expected = {"finetune": {"alpha"}, "consistency": {"alpha", "mu", "n_aug"}, "evaluate": {"alpha"}}
    expected["crossfit"] = expected["consistency"]
    expected["compare"] = {"alpha", "mu", "n_aug", "seeds"}
    assert used == expected.get(stage, set())
