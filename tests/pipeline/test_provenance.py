"""Records name what a result was made from, and nothing that differs between two runs of one commit."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from histo_monai.data.tables.patches import labeled_table
from histo_monai.pipeline import environment, paths
from histo_monai.pipeline.environment import code_version
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.provenance import made_from, without_ids, write_metrics


@pytest.fixture
def params(root: Path) -> Params:
    return load_params(root / "params.yaml")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    return tmp_path


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_inputs_are_recorded_by_path_and_sha256_and_slides_by_id(project: Path, params: Params) -> None:
    table = project / "data/slides.csv"
    table.write_text("slide_id,path\na,a.svs\n")
    (project / "a.svs").write_bytes(b"pixels")
    slides = pd.DataFrame({"slide_id": ["a"], "path": [str(project / "a.svs")]})
    record = made_from(params, [table], [slides])
    assert record["inputs"] == {"data/slides.csv": _sha256(table)}
    assert set(record["slides"]) == {"a"}
    (project / "a.svs").write_bytes(b"pixelz")
    again = made_from(params, [table], [slides])
    assert again["slides"] != record["slides"]
    assert again | {"slides": record["slides"]} == record


def test_a_model_carries_no_id_of_a_slide_but_what_they_were_is_fixed(project: Path, params: Params) -> None:
    (project / "a.svs").write_bytes(b"pixels")
    records = []
    for name in ("20-1234-Doe", "20-1235-Doe"):
        slides = pd.DataFrame({"slide_id": [name], "path": ["a.svs"]})
        outlines, table = Path(f"data/{name}.xml"), Path("data/index/slides.csv")
        table.parent.mkdir(exist_ok=True)
        table.write_text("a\n")
        outlines.write_text("<a/>")
        records.append(without_ids(made_from(params, [outlines, table], [slides])))
    assert "Doe" not in json.dumps(records)
    assert [record["slides"]["num_files"] for record in records] == [2, 2]
    assert [list(record["inputs"]) for record in records] == [["data/index/slides.csv"]] * 2
    assert records[0]["slides"]["sha256"] != records[1]["slides"]["sha256"]


def test_no_record_holds_a_path_outside_the_project_a_time_or_a_name_of_the_machine(
    project: Path, params: Params, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("archive") / "outlines.xml"
    outside.write_text("<a/>")
    slides = pd.DataFrame({"slide_id": ["s"], "path": [str(outside)]})
    record = made_from(params, [outside], [slides])
    assert list(record["inputs"]) == ["outlines.xml"]
    text = json.dumps(record)
    for private in (str(outside.parent), str(project), str(Path.home())):
        assert private not in text
    assert set(record) == {
        *("git_commit", "git_dirty", "code_sha256", "params_sha256", "inputs", "slides", "packages"),
    }


def test_params_are_known_by_their_values_and_not_by_their_comments(root: Path, project: Path) -> None:
    tree = yaml.safe_load((root / "params.yaml").read_text())
    (project / "params.yaml").write_text("# mine\n" + yaml.safe_dump(tree, sort_keys=True))
    (project / "other.yaml").write_text(yaml.safe_dump(tree | {"alpha": 0.2}))
    digests = [
        made_from(load_params(path))["params_sha256"]
        for path in (root / "params.yaml", project / "params.yaml", project / "other.yaml")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_packages_that_compute_have_versions(params: Params) -> None:
    packages = made_from(params)["packages"]
    assert packages["numpy"] == np.__version__
    assert set(packages) >= {"python", "torch", "monai", "pytorch-ignite", "cucim", "pandas", "scikit-learn"}
    assert packages["histo_monai"]


def test_patches_that_are_images_are_one_digest_and_squares_are_their_slides(
    project: Path, params: Params
) -> None:
    for name in ("a.png", "b.png", "s.svs"):
        (project / name).write_bytes(name.encode())
    rows: list[dict[str, Any]] = [
        {"patch_id": "1", "path": "a.png", "side_px": 8},
        {"patch_id": "2", "path": "b.png", "side_px": 8},
        {"patch_id": "3", "path": "s.svs", "slide_id": "s", "y": 4.0, "x": 4.0, "side_px": 8},
    ]
    patches = labeled_table(rows)
    record = made_from(params, (), [patches], patches)
    assert set(record["slides"]) == {"s"}
    assert record["images"]["num_files"] == 2
    (project / "b.png").write_bytes(b"other")
    assert made_from(params, (), [patches], patches)["images"] != record["images"]


def test_an_input_that_is_gone_is_one_line_with_its_name(project: Path, params: Params) -> None:
    with pytest.raises(ValueError, match=r"data/none\.csv: not found. Fix: run its stage"):
        made_from(params, [Path("data/none.csv")])


def test_metrics_list_every_other_file_of_the_folder_and_are_sealed(project: Path, params: Params) -> None:
    folder = project / "data/out"
    (folder / "plots").mkdir(parents=True)
    (folder / "plots/a.png").write_bytes(b"picture")
    (folder / "table.csv").write_text("a\n1\n")
    write_metrics(folder, {"accuracy": 0.5}, made_from(params), summary={"accuracy": 0.5})
    record = json.loads((folder / "metrics.json").read_text())
    assert json.loads((folder / "summary.json").read_text()) == {"accuracy": 0.5}
    assert record["files"] == {
        name: _sha256(folder / name) for name in ("plots/a.png", "summary.json", "table.csv")
    }
    seal = record.pop("record_sha256")
    assert seal == hashlib.sha256(json.dumps(record).encode()).hexdigest()


def _git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def test_the_commit_is_the_last_that_changed_code_or_params_and_results_do_not_make_it_dirty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "histo_monai"
    package.mkdir()
    (package / "a.py").write_text("a = 1\n")
    monkeypatch.setattr(environment, "__file__", str(package / "pipeline/environment.py"))
    monkeypatch.chdir(tmp_path)
    assert code_version()[:2] == (None, None)
    (tmp_path / "params.yaml").write_text("alpha: 1\n")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-qm", "code")
    first = code_version()
    assert first.commit is not None
    assert first.is_dirty is False
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\n")
    assert code_version() == first
    _git(tmp_path, "add", "-A")
    _git(tmp_path, "commit", "-qm", "results")
    assert code_version() == first
    (tmp_path / "params.yaml").write_text("alpha: 2\n")
    assert code_version() == (first.commit, True, first.sha256)
    _git(tmp_path, "commit", "-qam", "params")
    assert code_version().commit not in (None, first.commit)
    (package / "b.py").write_text("b = 1\n")
    assert code_version().is_dirty is True
    assert code_version().sha256 != first.sha256


def test_of_an_installed_package_the_commit_is_that_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, project = tmp_path / "site-packages/histo_monai", tmp_path / "project"
    package.mkdir(parents=True)
    (package / "a.py").write_text("a = 1\n")
    monkeypatch.setattr(environment, "__file__", str(package / "pipeline/environment.py"))
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "params.yaml").write_text("alpha: 1\n")
    _git(project, "init", "-q")
    _git(project, "add", "-A")
    _git(project, "commit", "-qm", "project")
    first = code_version()
    assert first.commit is not None
    assert first.is_dirty is False
    (project / "params.yaml").write_text("alpha: 2\n")
    assert code_version() == (first.commit, True, first.sha256)


def test_a_path_through_a_linked_folder_stays_that_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study/own").mkdir(parents=True)
    (tmp_path / "study/a.tif").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/own").symlink_to(tmp_path / "study/own")
    assert paths.plain_path(Path("data/own/../a.tif")) == Path(os.path.realpath("study/a.tif"))
    assert paths.plain_path(Path("study/own/../a.tif")) == Path("study/a.tif")
    assert paths.plain_path(Path("./data/own/x.tif")) == Path("data/own/x.tif")
