"""The recipes of docs/cluster.md, by Slurm itself."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.folders import NewFolder
from tests.pipeline.conftest import copy_tracked
from tests.pipeline.slurm import ask, free_port, two_nodes, wait_until_idle

Shell = Callable[..., str]

pytestmark = pytest.mark.slow
STAGE = "pretrain@rsp-0"
ENOUGH_S = 100


@pytest.fixture(scope="module")
def recipes(root: Path) -> list[str]:
    """Code of the page's blocks, in its order: workers, a training, all stages, a sweep."""
    page = (root / "docs/cluster.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:python|slurm)\n(.*?)```", page, flags=re.DOTALL)
    assert len(blocks) == 4
    return blocks


@pytest.fixture(scope="module")
def conf(module_folder: NewFolder) -> Iterator[Path]:
    with two_nodes(module_folder("slurm")) as path:
        yield path


@pytest.fixture(scope="module")
def project(root: Path, shell: Shell, module_folder: NewFolder) -> Path:
    """A tiny project whose slides exist."""
    folder = module_folder("project")
    copy_tracked(root, folder, shell)
    params = yaml.safe_load((folder / "params.yaml").read_text())
    params |= {"patch_px": 32, "alpha": 1.0, "pretraining_methods": ["rsp"]}
    params["encoder"]["name"] = "test_resnet"
    params["slide_level"]["pretraining_methods"] = []
    params["phantom"] |= {"num_slides": 12, "num_test_slides": 4, "num_patches": 90, "slide_side_px": 768}
    params["corpora"]["camelyon16"] |= {
        "num_train": 160,
        "num_validation": 24,
        "num_normal": 2,
        "num_tumor": 2,
    }
    counts = {key: {"num_tumor": 16, "num_normal": 16} for key in ("train", "separate_validation", "test")}
    params["labels"]["camelyon16"] |= counts | {"unlabeled": 0}
    params["pretrain"]["rsp"] |= {"epochs": 4, "batch_size": 8}
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    shell("git init -q && git add -A && git commit -qm start && dvc repro phantom code", folder)
    return folder


@pytest.fixture(scope="module")
def indexed(project: Path, conf: Path, recipes: list[str], shell: Shell) -> Path:
    """The project, indexed by workers that Slurm started."""
    script = _changed(
        recipes[0],
        {
            "cores=16, processes=16": "cores=1, processes=1",
            "64GB": "1GB",
            "jobs=4": "jobs=2",
            "workers(16)": "workers(2)",
        },
    )
    (project / "workers.py").write_text(script)
    shell(f"SLURM_CONF={conf} python workers.py", project)
    return project


def _changed(recipe: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        assert old in recipe, f"the page no longer says {old}"
        recipe = recipe.replace(old, new)
    return recipe


def _in_copy(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to, symlinks=True)
    return to


def test_workers_of_slurm_index_to_the_bytes_of_one_machine(
    indexed: Path, shell: Shell, tmp_path: Path
) -> None:
    assert len(list(indexed.glob("slurm-*.out"))) == 2
    here = _in_copy(indexed, tmp_path / "here")
    shutil.rmtree(here / "data/index")
    shell("python -m histo_monai index", here)
    files = sorted(path.name for path in (indexed / "data/index").iterdir())
    assert files == sorted(path.name for path in (here / "data/index").iterdir())
    for name in files:
        assert (here / "data/index" / name).read_bytes() == (indexed / "data/index" / name).read_bytes()


def test_a_training_on_two_nodes_goes_on_after_one_has_failed(
    indexed: Path, conf: Path, recipes: list[str], shell: Shell, tmp_path: Path
) -> None:
    shell("dvc repro check", indexed)
    here = _in_copy(indexed, tmp_path / "here")
    smaller = {
        "--gpus-per-node=4 --cpus-per-task=32": "--cpus-per-task=2",
        "--nproc-per-node 4": "--nproc-per-node 1",
    }
    script = _changed(recipes[1], smaller | {"rsp_moco": "rsp", "29500": str(free_port())})
    (indexed / "training.slurm").write_text(script)
    job = re.findall(r"\d+", shell(f"SLURM_CONF={conf} sbatch -o training.txt training.slurm", indexed))[-1]
    log = indexed / "training.txt"
    _until(lambda: log.exists() and "epoch 1/4: train" in log.read_text(), log)
    ask(conf, "scontrol", "update", "nodename=n2", "state=down", "reason=test")
    _until(lambda: "PENDING" in ask(conf, "squeue", "-h", "-j", job, "-o", "%T"), log)
    ask(conf, "scontrol", "update", "nodename=n2", "state=resume")
    wait_until_idle(conf)
    ask(conf, "scontrol", "update", f"jobid={job}", "StartTime=now")  # Slurm waits two minutes
    _until(lambda: re.search("COMPLETED|FAILED", ask(conf, "scontrol", "show", "job", job)) is not None, log)
    assert "COMPLETED" in ask(conf, "scontrol", "show", "job", job), log.read_text()
    assert "resuming after epoch" in log.read_text()
    assert STAGE not in shell(f"dvc status {STAGE}", indexed)  # committed
    shell("HISTO_MONAI_RANKS=2 python -m histo_monai pretrain --method rsp --pretraining-seed 0", here)
    encoder = "data/models/rsp-0/encoder.safetensors"
    assert (indexed / encoder).read_bytes() == (here / encoder).read_bytes()


def test_a_sweep_is_one_job_that_ends_with_its_last_experiment(
    project: Path, conf: Path, recipes: list[str], shell: Shell
) -> None:
    script = _changed(recipes[3], {"--gpus-per-node=1 --cpus-per-task=8": "--cpus-per-task=1"})
    (project / "sweep.slurm").write_text(script)
    shell("dvc exp run --queue -S phantom.num_patches=80,81 phantom", project)
    shell(f"SLURM_CONF={conf} sbatch --wait -o sweep.txt sweep.slurm", project)
    assert shell("dvc queue status", project).count("Success") == 2


def _until(happened: Callable[[], bool], log: Path) -> None:
    end = time.monotonic() + ENOUGH_S
    while not happened():
        if time.monotonic() > end:
            pytest.fail(f"nothing more comes: {log.read_text() if log.exists() else 'no log'}")
        time.sleep(0.2)
