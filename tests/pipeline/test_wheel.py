"""The wheel, installed where no source lies: `init` makes a project of it that `dvc repro` runs to the report."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from histo_monai import __version__
from histo_monai.pipeline.arguments import STAGES
from histo_monai.pipeline.commands import init
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.project.files import FILES
from histo_monai.pipeline.stages import code
from histo_monai.utils.errors import InputError
from tests.folders import NewFolder
from tests.hostile import project
from tests.pipeline.conftest import Shell, copy_tracked
from tests.pipeline.warm import TRAININGS, warm

pytestmark = pytest.mark.slow
VENDORED = "histo_monai/reports/site/vendored"


@pytest.fixture(scope="module")
def wheel(root: Path, shell: Shell, module_folder: NewFolder) -> Path:
    """Built from the files that git tracks."""
    folder = module_folder("source")
    copy_tracked(root, folder, shell)
    if (root / VENDORED).is_dir():  # else they are fetched
        shutil.copytree(root / VENDORED, folder / VENDORED)
    shell("python -m build --wheel --no-isolation --outdir dist", folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


class Installed:
    """An environment that has the wheel, and beside it the packages that it needs of the one that runs the tests."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.bin = folder / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = folder.glob("lib/python*/site-packages")
        # A path alone: the working copy, which is installed there by a .pth of its own, is not followed.
        (site / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python"]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
        self.package = site / "histo_monai"
        self.stages = folder / "warm"
        self.stages.mkdir()
        who = {f"GIT_{role}_NAME": "test" for role in ("AUTHOR", "COMMITTER")}
        where = {f"GIT_{role}_EMAIL": "test@example.org" for role in ("AUTHOR", "COMMITTER")}
        path = os.pathsep.join(
            map(str, (self.stages, self.bin, Path(sys.executable).parent, os.environ["PATH"]))
        )
        self.environment = os.environ | who | where | {"PATH": path, "HISTO_MONAI_DEVICE": "cpu"}
        self.environment.pop("PYTHONPATH", None)

    def __call__(self, command: str, cwd: Path) -> str:
        done = subprocess.run(
            command, shell=True, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, module_folder: NewFolder) -> Iterator[Installed]:
    """Its stages are forks of a process that has imported the package from the wheel."""
    environment = Installed(module_folder("environment"), wheel)
    modules = [*(f"histo_monai.pipeline.stages.{name}" for name in STAGES), *TRAININGS]
    python = environment.bin / "python"
    with warm(
        "python", "histo_monai", modules, environment.stages, ["-m", "histo_monai"], python=python, path=None
    ):
        yield environment


@pytest.fixture(scope="module")
def finished_project(installed: Installed, module_folder: NewFolder) -> tuple[Path, str]:
    """Of own slides, as small as in other tests; and what its first `dvc repro` printed."""
    folder = module_folder("work")
    installed("histo-monai init project --dataset own", folder)
    folder /= "project"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        project.write_own_project()
    return folder, installed("dvc repro", folder)


def test_a_wheel_carries_what_a_project_needs(wheel: Path, root: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in FILES:
            files = [root / name] if (root / name).is_file() else [*(root / name).rglob("*")]
            for path in (path for path in files if path.is_file()):
                inside = f"histo_monai/pipeline/project/{path.relative_to(root)}"
                assert archive.read(inside) == path.read_bytes()
    assert {f"{VENDORED}/vega.js", f"{VENDORED}/openseadragon.js", "histo_monai/py.typed"} <= names
    assert not any(name.startswith(("tests/", "benchmarks/", "data/")) for name in names)


def test_a_project_of_the_wheel_runs_to_the_report_without_the_source(
    finished_project: tuple[Path, str], installed: Installed
) -> None:
    folder, _ = finished_project
    where = installed("python -c 'import histo_monai; print(histo_monai.__file__)'", folder)
    assert Path(where.strip()) == installed.package / "__init__.py"
    assert "<html" in (folder / "data/report/index.html").read_text()
    record = json.loads((folder / "data/comparison/metrics.json").read_text())["provenance"]
    assert record["packages"]["histo_monai"] == __version__
    assert record["git_commit"] == installed("git log -1 --format=%H -- params.yaml dvc.yaml", folder).strip()
    assert record["git_dirty"] is True  # the params of the test
    installed("histo-monai verify data/", folder)
    installed("histo-monai doctor", folder)


def test_digests_of_code_are_those_of_a_clone(
    finished_project: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code.run()
    there, here = finished_project[0] / "data/code", tmp_path / "data/code"
    names = {path.relative_to(here) for path in here.rglob("*.json")}
    assert names == {path.relative_to(there) for path in there.rglob("*.json")}
    for name in names:
        assert (here / name).read_bytes() == (there / name).read_bytes()


def test_nothing_runs_again_but_what_another_version_of_the_package_reaches(
    finished_project: tuple[Path, str], installed: Installed
) -> None:
    folder, first = finished_project
    again = installed("dvc repro", folder)
    assert _ran(again) == {"code"}
    assert {"pretrain@random-0", "report"} < _ran(first)
    changed = installed.package / "reports/site/training.py"
    changed.write_bytes(changed.read_bytes() + b"\n# a line\n")
    assert _ran(installed("dvc repro", folder)) == {"code", "report"}


def _ran(output: str) -> set[str]:
    return {line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage '")}


def test_where_cucim_is_not_to_be_had_slides_are_read_all_the_same(
    finished_project: tuple[Path, str], installed: Installed
) -> None:
    script = (
        "import sys; sys.modules['cucim'] = None; from histo_monai.slides import open_slide; "
        "slide = open_slide('data/raw/own/s0.tif'); print(slide.backend, slide.thumbnail(8.0).shape)"
    )
    assert "openslide (64, 64, 3)" in installed(f'python -c "{script}"', finished_project[0])


@pytest.mark.parametrize("dataset", [None, "own", "camelyon16", "kather", "breastpathq"])
def test_params_of_a_new_project_can_be_read(dataset: str | None, root: Path, tmp_path: Path) -> None:
    init.run(str(tmp_path / "new"), dataset=dataset)
    params = load_params(tmp_path / "new/params.yaml")
    published = load_params(root / "params.yaml")
    if dataset is None:
        assert params == published
    else:
        corpus = "camelyon16" if dataset == "kather" else dataset
        assert (params.source, params.dataset, params.pretraining_dataset) == ("raw", dataset, corpus)
        assert params.alpha == (1.0 if dataset == "own" else published.alpha)
        assert (tmp_path / "new/data/raw" / dataset).is_dir()
    ours, theirs = (
        yaml.safe_load((folder / "dvc.yaml").read_text())["stages"] for folder in (root, tmp_path / "new")
    )
    assert theirs.pop("code")["always_changed"] is True
    assert ours.pop("code")["deps"] == ["histo_monai", "own_methods"]
    assert ours == theirs


def test_init_writes_into_no_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"not empty\. Fix: name a new folder"):
        init.run(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_init_takes_an_empty_folder_and_goes_over_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".histo_monai.draft/params").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    init.run(".")
    assert not (tmp_path / ".histo_monai.draft").exists()
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, check=True, text=True)
    assert status.stdout == ""


def test_init_inside_a_repository_leaves_commits_to_its_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    init.run(str(tmp_path / "inside"))
    assert not (tmp_path / "inside/.git").exists()
    assert "git add --all . && git commit" in capsys.readouterr().out


def test_where_git_refuses_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.hooksPath")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(tmp_path / "hooks"))
    (tmp_path / "hooks").mkdir()
    hook = tmp_path / "hooks/pre-commit"
    hook.write_text("#!/bin/sh\necho no commits today >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(InputError, match=r"git commit: no commits today\. Fix: repair it"):
        init.run(str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
