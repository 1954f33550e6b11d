"""params.yaml, dvc.yaml, the stages and the methods agree with each other and with the code."""

from __future__ import annotations

import importlib
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from histo_monai.data.readers.registry import DATASETS
from histo_monai.pipeline.arguments import COMMANDS, STAGES
from histo_monai.pipeline.imports import PACKAGE
from histo_monai.pipeline.params import needs_fold_models, parse_params
from histo_monai.pipeline.stages.code import METHOD_FOLDERS, code_of, run
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS


@pytest.fixture(scope="module")
def pipeline(root: Path) -> Any:
    return yaml.safe_load((root / "dvc.yaml").read_text())["stages"]


def test_stage_command_and_module_have_one_name(pipeline: Any, root: Path) -> None:
    modules = {path.stem for path in (root / "histo_monai/pipeline/stages").glob("*.py")} - {"__init__"}
    assert set(pipeline) == set(STAGES) == modules
    commands = {path.stem for path in (root / "histo_monai/pipeline/commands").glob("*.py")} - {"__init__"}
    assert (
        set(COMMANDS) | {"features"} == commands
    )  # a stage for patches of the project, a command for other slides
    for name, stage in pipeline.items():
        assert stage["cmd"].startswith(f"python -m histo_monai {name}")


def test_every_stage_is_a_section_of_params(pipeline: Any, root: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    assert set(pipeline) - {"code"} <= set(tree)


def test_all_methods_have_sections(root: Path) -> None:
    section = yaml.safe_load((root / "params.yaml").read_text())["pretrain"]
    assert list(section) == ["augmentation", "freeze_batchnorm", *PRETEXTS]


@pytest.mark.parametrize("stage", sorted(STAGES.keys() - {"code"}))
def test_every_stage_depends_on_its_code_and_on_the_folders_of_parts_that_it_loads(
    stage: str, pipeline: Any, root: Path
) -> None:
    code = [dep for dep in pipeline[stage]["deps"] if dep.startswith("data/code/")]
    assert [dep for dep in code if dep.count("/") == 2] == [f"data/code/{stage}.json"]
    folders = {
        "pretraining": {"data/code/pretraining/${item.method}.json"},
        "semisupervised": {"data/code/semisupervised/${item.student}.json"},
        "data/readers": {"data/code/readers/${dataset}", "data/code/readers/${pretraining_dataset}"},
    }
    assert set(folders) == {*METHOD_FOLDERS, "data/readers"}
    loads = [room for room in folders if root / "histo_monai" / room / "protocol.py" in code_of(stage)]
    wanted = set().union(*(folders[room] for room in loads))
    named = {dep for dep in code if dep.count("/") > 2}
    assert {dep for dep in named if not dep.endswith("/dataset.json")} == wanted
    asks_what_a_dataset_is = {"phantom": 2, "heatmap": 1, "aggregate": 1, "mil": 1, "compare": 1}
    assert len(named - wanted) == asks_what_a_dataset_is.get(stage, 0)


def test_no_method_and_no_folder_of_a_dataset_stands_in_the_code_of_a_stage() -> None:
    for stage in STAGES.keys() - {"code"}:
        files = {path.relative_to(PACKAGE).as_posix() for path in code_of(stage)}
        assert not files & {
            f"{package}/{name}.py" for package, names in METHOD_FOLDERS.items() for name in names
        }
        folders = {
            path.split("/")[2] for path in files if path.startswith("data/readers/") and path.count("/") > 2
        }
        assert folders <= {"shared"}


def test_the_digests_of_a_method_hold_its_file_and_its_imports_and_no_other_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run()
    files = {
        f"{package}/{name}": set(json.loads((tmp_path / f"data/code/{package}/{name}.json").read_text()))
        for package, names in METHOD_FOLDERS.items()
        for name in names
    }
    methods = {
        f"{names.module(name).replace('.', '/')}.py": f"{package}/{name}"
        for package, names in METHOD_FOLDERS.items()
        for name in names
    }
    builds_on = {
        method: {methods[file] for file in read if file in methods} for method, read in files.items()
    }
    more = {"pretraining/rsp_moco": {"pretraining/rsp"}}
    assert builds_on == {method: {method} | more.get(method, set()) for method in files}
    momentum = "histo_monai/pretraining/momentum.py"
    assert {method for method, read in files.items() if momentum in read} == {
        "pretraining/moco",
        "pretraining/rsp_moco",
    }
    assert "histo_monai/pretraining/vae_decoder.py" in files["pretraining/vae"]


def test_stages_depend_on_nothing_but_data_and_the_digests_of_code_that_are_written(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pipeline["code"]["deps"] == ["histo_monai", "own_methods"]
    monkeypatch.chdir(tmp_path)
    run()
    deps = {dep for stage in STAGES.keys() - {"code"} for dep in pipeline[stage]["deps"]}
    assert all(dep.startswith("data/") for dep in deps)
    for dep, method, student, dataset in itertools.product(deps, PRETEXTS, METHODS, DATASETS):
        if dep.startswith("data/code"):
            path = dep.replace("${item.method}", method).replace("${item.student}", student)
            path = path.replace("${dataset}", dataset).replace("${pretraining_dataset}", dataset)
            assert (tmp_path / path).exists(), path


@pytest.mark.parametrize("stage", ["pretrain", "finetune", "consistency"])
def test_an_unfinished_training_is_known_by_the_params_of_its_stage(stage: str, pipeline: Any) -> None:
    module = importlib.import_module(f"histo_monai.pipeline.stages.{stage}")
    assert list(module.PARAM_NAMES) == pipeline[stage]["params"]


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_params_of_a_stage_exist(stage: str, pipeline: Any, root: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    for dotted in pipeline[stage].get("params", ()):
        choices = itertools.product(tree["pretraining_methods"], DATASETS)
        for method, dataset in choices:
            named = {
                "${item.method}": method,
                "${dataset}": dataset,
                "${pretraining_dataset}": tree["pretraining_dataset"],
            }
            named["${item.student}"] = tree["semisupervised_methods"][0]
            filled = dotted
            for template, value in named.items():
                filled = filled.replace(template, value)
            section = tree
            for key in filled.split("."):
                assert key in section, filled
                section = section[key]


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_alpha_mu_and_n_aug_reach_neither_index_nor_pretrain(stage: str, pipeline: Any) -> None:
    used = set(pipeline[stage].get("params", ())) & {
        "alpha",
        "mu",
        "n_aug",
        "semisupervised_methods",
        "training_seeds",
    }
    expected = {"finetune": {"alpha"}, "consistency": {"alpha", "mu", "n_aug"}, "evaluate": {"alpha"}}
    expected["check"] = {
        "alpha",
        "semisupervised_methods",
        "training_seeds",
    }  # it reads no slide but for a look
    expected["compare"] = {"alpha", "mu", "n_aug", "semisupervised_methods", "training_seeds"}
    expected["report"] = {"semisupervised_methods", "training_seeds"}
    assert used == expected.get(stage, set())


def test_whether_fold_models_are_trained_follows_from_params_of_the_stage(root: Path) -> None:
    """Which students and encoders there are may change later, and the fine-tuning does not run again."""
    tree = yaml.safe_load((root / "params.yaml").read_text())
    asked = {
        "pretraining_methods": ["rsp"],
        "semisupervised_methods": ["spatial_neighbors"],
        "num_encoders": 1,
    }
    for mapped in (True, False):
        asked["pretraining_methods"] = ["rsp"] if mapped else []
        for others in (
            {"semisupervised_methods": ["supervised"]},
            {"semisupervised_methods": ["spatial_neighbors"], "pretraining_seeds": [1, 0]},
        ):
            params = parse_params(tree | {"slide_level": asked} | others)
            assert needs_fold_models(params, "rsp") == mapped


def test_the_positive_class_is_that_of_the_params_also_where_no_slide_is_mapped(root: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    tree["slide_level"] |= {"pretraining_methods": [], "semisupervised_methods": []}
    tree["heatmap"]["own"]["positive_class"] = "malignant"
    params = parse_params(tree | {"source": "raw", "dataset": "own", "pretraining_dataset": "own"})
    assert params.positive_class == "malignant"
