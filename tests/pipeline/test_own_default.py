"""A project of `init --dataset own`: ImageNet's encoder and a head on frozen features, from every kind of labels."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
import yaml
from dvc.repo import Repo
from dvc.utils.hydra import apply_overrides
from packaging.requirements import Requirement
from safetensors.torch import load_file

from histo_monai import __version__
from histo_monai.models.checkpoint import load_model
from histo_monai.models.encoders.packaged import NAME, package_file
from histo_monai.models.encoders.published import PUBLISHED
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands import init
from histo_monai.pipeline.params import load_params
from histo_monai.utils.storage import file_sha256
from tests.folders import NewFolder
from tests.hostile.project import OWN, PARAMS, set_dotted, write_image, write_slide, write_text
from tests.pipeline.conftest import Shell

RUN = ("--method", "pretrained", "--seed", "0")
CALLS = (
    *(("index",), ("check",), ("pretrain", *RUN[:2]), ("features", *RUN[:2])),
    *((stage, *RUN) for stage in ("finetune", "consistency", "evaluate", "heatmap", "aggregate", "mil")),
    *(("compare",), ("report",)),
)
SMALL = (
    *("patch_px", "corpora.own", "heatmap.detection", "cross_validation.num_folds", "compare.num_replicates"),
    *(f"mil.{name}" for name in ("num_folds", "epochs")),
    *(f"aggregate.{name}" for name in ("C", "gamma", "num_folds", "num_permutations")),
)
CLASSES = ("tumor", "normal")
MODEL = Path("data/models/pretrained-0-0/finetuned/model.safetensors")


@pytest.fixture(scope="module")
def new_project(module_folder: NewFolder) -> Path:
    folder = module_folder("new") / "project"
    init.run(str(folder), dataset="own")
    return folder


def test_its_encoder_is_the_published_file_and_its_params_fit_a_head(new_project: Path) -> None:
    params = load_params(new_project / "params.yaml")
    weights = new_project / str(params.encoder.weights)
    assert weights.read_bytes() == package_file().read_bytes()
    assert params.encoder.sha256 == file_sha256(weights) == PUBLISHED[NAME].sha256
    assert (params.encoder.name, params.encoder.license) == (NAME, "Apache-2.0")
    assert (params.finetune.mode, params.alpha) == ("head", 1.0)
    assert params.slide_level.pretraining_methods == params.pretraining_methods == ("pretrained",)
    assert params.slide_level.semisupervised_methods == params.semisupervised_methods


def test_only_values_differ_from_the_committed_params(new_project: Path, root: Path) -> None:
    ours, theirs = ((folder / "params.yaml").read_text().splitlines() for folder in (new_project, root))
    assert len(ours) == len(theirs)
    for line, before in zip(ours, theirs, strict=True):
        assert line.split(":")[0] == before.split(":")[0]
        assert line.partition("#")[2] == before.partition("#")[2]


def test_a_clone_pulls_the_weights(new_project: Path, shell: Shell, tmp_path: Path) -> None:
    project, clone = tmp_path / "project", tmp_path / "clone"
    shutil.copytree(new_project, project)
    (pointer,) = (project / "data/weights").glob("*.dvc")
    shell(f"dvc remote add -q -d storage {tmp_path / 'remote'}", project)
    shell("dvc push -q && git commit -qam remote", project)
    shell(
        f"git clone -q {project} {clone} && cd {clone} && dvc pull -q {pointer.relative_to(project)}",
        tmp_path,
    )
    name = pointer.relative_to(project).with_suffix("")
    assert (clone / name).read_bytes() == (project / name).read_bytes()
    assert shell("git status --porcelain", clone) == ""


def test_pip_reads_its_requirements(new_project: Path, shell: Shell) -> None:
    install = "python -m pip install --dry-run --no-deps --no-index --no-build-isolation"
    shell(f"{install} -r requirements.txt", new_project)


@pytest.mark.parametrize(
    ("recorded", "line"),
    [
        (None, f"histo_monai=={__version__}"),
        (
            '{"url": "file:///a/histo_monai", "dir_info": {"editable": true}}',
            "histo_monai @ file:///a/histo_monai",
        ),
        ('{"url": "file:///a/x.whl", "archive_info": {}}', "histo_monai @ file:///a/x.whl"),
        (
            '{"url": "https://example.org/h.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "histo_monai @ git+https://example.org/h.git@abc",
        ),
    ],
)
def test_requirements_name_the_origin_of_the_package(
    recorded: str | None, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init, "distribution", lambda _: SimpleNamespace(read_text=lambda _: recorded))
    assert init.requirement() == line
    assert str(Requirement(line)).startswith("histo_monai")


def test_requirements_of_a_package_that_pip_did_not_install_name_its_source(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(init, "distribution", missing)
    assert init.requirement() == f"histo_monai @ {root.as_uri()}"


@pytest.mark.parametrize("overrides", [[], [word for word in shlex.split(init.PRETRAIN) if "=" in word]])
def test_its_artifacts_are_models_that_it_makes(
    overrides: list[str], new_project: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(new_project, project, ignore=shutil.ignore_patterns("docs"))
    apply_overrides(project / "params.yaml", list(overrides))
    with Repo(str(project)) as repo:
        made = {Path(out.fs_path).relative_to(project).as_posix() for out in repo.index.outs}
        (artifacts,) = repo.artifacts.read().values()
    method = "rsp_moco" if overrides else "pretrained"
    assert {name: one.path for name, one in artifacts.items()} == {
        "encoder": f"data/models/{method}-0",
        "finetuned": f"data/models/{method}-0-0/finetuned",
        "student": f"data/models/{method}-0-supervised-0/student",
    }
    for name, one in artifacts.items():
        assert f"{one.path}/{'encoder' if name == 'encoder' else 'model'}.safetensors" in made


def _images() -> None:
    rows = ["path,label,patient_id,split"]
    for i in range(24):
        write_image(OWN / f"{i}.png", i)
        split = "test" if i // 2 % 6 > 3 else "train"
        rows.append(f"{i}.png,{CLASSES[i % 2]},P{i // 2 % 6},{split}")
    write_text(OWN / "patches.csv", "\n".join(rows) + "\n")


def _slide_labels() -> None:
    rows = ["slide_id,path,label,patient_id"]
    for i in range(8):
        write_slide(OWN / f"s{i}.tif", seed=i)
        rows.append(f"s{i},s{i}.tif,{CLASSES[i % 2]},P{i}")
    write_text(OWN / "slides.csv", "\n".join(rows) + "\n")


PRETRAINED = ("--method", "rsp_moco")


@pytest.mark.slow
@pytest.mark.usefixtures("small_forests")
@pytest.mark.parametrize("write", [_images, _slide_labels])
def test_labels_of_images_and_of_slides_run_to_the_report(
    write: Callable[[], None], new_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outlines of slides: test_own_example.py."""
    project = tmp_path / "project"
    shutil.copytree(new_project, project, ignore=shutil.ignore_patterns(".git", "docs"))
    monkeypatch.chdir(project)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0"), ("RANKS", "1")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    write()
    tree = yaml.safe_load(Path("params.yaml").read_text())
    changes = {name: PARAMS[name] for name in SMALL} | {"encoder.side": 32, "heatmap.own.stride_um": 64.0}
    if write is _images:
        changes["features.field"] = 1  # as `check` asks for
    for name, value in changes.items():
        set_dotted(tree, name, value)
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    for call in CALLS:
        assert main(call) == 0, call
    page = Path("data/report/index.html").read_text()
    if write is _slide_labels:
        assert len(pd.read_csv("data/mil/pretrained-0-0/slides.csv")) == 8
        _pretrain()
        return
    description = load_model(MODEL)[1]
    assert description["encoder"]["weights"]["license"] == "Apache-2.0"
    assert {part["head"] for part in description["selection"]["parts"]} <= {
        *("class_means", "logistic", "neighbors", "discriminant")
    }
    assert "Apache-2.0" in page
    assert pd.read_csv("data/heatmaps/pretrained-0-supervised-0/slides.csv").empty
    _train_networks()


def _pretrain() -> None:
    """The command that `init` prints, with one epoch of eight patches in place of all."""
    apply_overrides(Path("params.yaml"), shlex.split(init.PRETRAIN)[4::2])
    tree = yaml.safe_load(Path("params.yaml").read_text())
    tree["pretrain"]["rsp_moco"] |= {"epochs": 1, "batch_size": 8, "queue_size": 16}
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    params = load_params(Path("params.yaml"))
    assert (params.pretraining_methods, params.slide_level.pretraining_methods) == (
        ("pretrained", "rsp_moco"),
        ("rsp_moco",),
    )
    for stage in (
        ("check",),
        ("pretrain", *PRETRAINED),
        ("features", *PRETRAINED),
        ("mil", *PRETRAINED, "--seed", "0"),
    ):
        assert main(stage) == 0, stage
    before, after = (
        load_file(f"data/models/{name}-0/encoder.safetensors") for name in params.pretraining_methods
    )
    name = "encoder.trunk.conv_stem.weight"
    assert not torch.equal(after[name], before[name])
    assert all(torch.equal(after[name], before[name]) for name in after if "running_" in name)  # of the file
    assert len(pd.read_csv("data/mil/rsp_moco-0-0/slides.csv")) == 8


def _train_networks() -> None:
    """The command that `init` prints, with two steps in place of all."""
    apply_overrides(Path("params.yaml"), shlex.split(init.TRAIN)[4::2])
    tree = yaml.safe_load(Path("params.yaml").read_text())
    tree["finetune"]["recipe"] |= {"epochs": 1, "steps_per_epoch": 2}
    assert tree["finetune"]["recipe"]["batchnorm_patches"] is tree["features"]["batchnorm_patches"] is None
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    params = load_params(Path("params.yaml"))
    assert params.slide_level.semisupervised_methods == params.semisupervised_methods
    before = load_file(MODEL)
    assert "batchnorm" not in json.loads(Path("data/features/pretrained-0/metrics.json").read_text())
    for stage in ("finetune", "consistency"):
        assert main((stage, *RUN)) == 0
    after = load_file(MODEL)
    statistics = [name for name in after if "running_" in name]
    assert statistics
    assert all(torch.equal(after[name], before[name]) for name in statistics)  # of the file of weights
    assert load_model(MODEL)[1]["head"] == "linear"
    assert not torch.equal(after["encoder.trunk.conv_stem.weight"], before["encoder.trunk.conv_stem.weight"])
