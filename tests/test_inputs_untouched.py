"""Every stage and every command, one after the other, on one folder of a user: nothing that lies there is changed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import yaml

from histo_monai.pipeline.arguments import COMMANDS, STAGES
from histo_monai.pipeline.cli import main
from histo_monai.pipeline.commands import curves
from histo_monai.pipeline.experiments import Experiments
from histo_monai.pipeline.stages import heatmap
from histo_monai.slides.annotations import Region, write_annotations
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from tests.folders import NewFolder
from tests.papers_way import in_the_papers_way

OWN = Path("data/raw/own")
SPLITS = {"a": "train", "b": "validation", "c": "test"}
METHOD = ("--method", "random")
RUN = (*METHOD, "--seed", "0")
STUDENT = "data/models/random-0-paper-0/student/model.safetensors"


@pytest.fixture(scope="module")
def project(root: Path, module_folder: NewFolder) -> Iterator[Path]:
    """Slides, labels, outlines and notes in one folder, no file of it writable."""
    folder = module_folder("project")
    params = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
    params |= {"source": "raw", "dataset": "own", "pretraining_dataset": "own", "patch_px": 32, "alpha": 1.0}
    params |= {"pretraining_methods": ["random"], "semisupervised_methods": ["paper"], "training_seeds": [0]}
    params["slide_level"] |= {key: params[key] for key in ("pretraining_methods", "semisupervised_methods")}
    params["corpora"]["own"] |= {"mpps": [1.0, 2.0, 4.0], "num_train": 4, "num_validation": 2}
    params["labels"]["own"]["regions"] |= {"mpp": 1.0}
    params["heatmap"]["own"] |= {"stride_um": 64.0}
    params["compare"]["num_replicates"] = 100
    for stage in ("finetune", "consistency"):
        params[stage]["paper"] |= {"epochs": 1, "batch_size": 4}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("HISTO_MONAI_DEVICE", "cpu")
        patch.setenv("HISTO_MONAI_CPUS", "1")
        Path("params.yaml").write_text(yaml.safe_dump(params))
        _write_inputs()
        for path in (Path("params.yaml"), *OWN.rglob("*")):
            if path.is_file():
                path.chmod(0o444)
        yield folder


def _write_inputs() -> None:
    (OWN / "annotations").mkdir(parents=True)
    slides, patches = ["slide_id,path,patient_id,split"], ["slide_id,y,x,mpp,label,split"]
    for seed, (name, split) in enumerate(SPLITS.items()):
        _write_slide(OWN / f"{name}.tif", seed)
        slides.append(f"{name},{name}.tif,of {name},{split}")
        labels = ("tumor", "normal") * 3
        patches += [f"{name},{60 + 70 * i},90,1,{label},{split}" for i, label in enumerate(labels)]
    (OWN / "slides.csv").write_text("\n".join(slides) + "\n")
    (OWN / "patches.csv").write_text("\n".join(patches) + "\n")
    square = np.array([(200, 200), (200, 264), (264, 264), (264, 200)], float)
    write_annotations(OWN / "annotations/a.geojson", [Region(square, label="tumor")])
    write_annotations(OWN / "a.xml", [Region(square, label="tumor")])
    for suffix in ("csv", "geojson", "json", "png"):  # What `map` used to replace.
        (OWN / f"a.{suffix}").write_text("a pathologist's")


def _write_slide(path: Path, seed: int) -> None:
    """Grainy tissue on glass, 1 µm/px."""
    grain = np.random.default_rng(seed).integers(-40, 40, (56, 56, 1)).repeat(8, 0).repeat(8, 1)
    pixels = np.full((512, 512, 3), 245, np.uint8)
    pixels[32:480, 32:480] = np.clip(np.array([200, 110, 170]) + grain, 0, 255)
    tags = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, tile=(256, 256), photometric="rgb", **tags)


def _state() -> dict[str, tuple[Any, ...]]:
    """Content, time, mode and inode of every input."""
    state = {}
    for path in (Path("params.yaml"), *sorted(OWN.rglob("*"))):
        if path.is_file():
            about = path.lstat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            state[str(path)] = (digest, about.st_mtime_ns, about.st_mode, about.st_ino)
    return state


@dataclass(frozen=True)
class OfThisFolder:
    """The run in this folder, as an experiment."""

    params: dict[str, Any]
    name: str = "this"
    rev: str = "r"

    @property
    def metrics(self) -> dict[str, Any]:
        path = "data/models/random-0-0/finetuned/summary.json"
        return {path: json.loads(Path(path).read_text())}

    def fetch(self, path: Path, target: Path) -> None:
        shutil.copy(path, target)


@pytest.mark.slow
@pytest.mark.usefixtures("small_forests")
def test_no_stage_and_no_command_changes_an_input(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _state()
    experiment = OfThisFolder(yaml.safe_load(Path("params.yaml").read_text()))
    monkeypatch.setattr(curves, "read_experiments", lambda **_: Experiments([experiment], []))  # type: ignore[list-item]
    over_slides = heatmap.over_slides

    def with_a_draft(jobs: Any, work: Any, folder: Path, **options: Any) -> None:
        over_slides(jobs, work, folder, **options)
        (folder / ".a.draft.csv").write_text("what a killed run leaves")

    monkeypatch.setattr(heatmap, "over_slides", with_a_draft)
    slides = [str(OWN / f"{name}.tif") for name in SPLITS]
    calls = [
        ["code"],
        ["phantom"],
        ["index"],
        ["check"],
        ["pretrain", *METHOD],
        *([stage, *RUN] for stage in ("finetune", "consistency", "evaluate", "heatmap", "aggregate")),
        ["features", *METHOD],
        ["mil", *RUN],
        ["compare"],
        ["report"],
        ["curves"],
        ["features", *slides, "--model", "data/models/random-0/encoder.safetensors", "--output", str(OWN)],
        ["map", *slides, "--model", STUDENT, "--output", str(OWN)],
        ["export", STUDENT, "--bundle", "bundle", "--trunk", "trunk.safetensors"],
        ["import", "bundle", "--output", "back"],
        ["init", "new", "--dataset", "own"],
        ["suggest", *RUN, "--num", "2", "--output", "suggested"],
        ["label", "suggested"],
        ["convert", str(OWN / "a.xml"), str(OWN / "converted.geojson")],
        ["verify"],
        ["encoders", "uni2-h"],
        ["doctor"],
    ]
    assert {call[0] for call in calls} | {"dvc", "next"} == {*STAGES, *COMMANDS}  # these run the others
    for call in calls:
        assert main(call) == 0 or call == ["doctor"], call  # which knows of no DVC here
        after = _state()
        assert {name: after[name] for name in before} == before, call
    new = {Path(name).name for name in set(after) - set(before)}
    maps = {f"{name}.map.{suffix}" for name in SPLITS for suffix in ("csv", "geojson", "json", "png", "tif")}
    features = {f"{name}.{suffix}" for name in SPLITS for suffix in ("h5", "features.json")}
    assert new == maps | features | {"converted.geojson"}
    for name in SPLITS:
        assert len(read_heatmap(OWN / f"{name}.map.csv").cells)
    scores = {path.name for path in Path("data/heatmaps/random-0-paper-0/scores").iterdir()}
    assert scores == {f"{name}.{suffix}" for name in SPLITS for suffix in ("csv", "json")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        ["suggest", *RUN, "--output", str(OWN)],
        ["suggest", *RUN, "--output", str(OWN / "annotations")],
        ["convert", str(OWN / "a.xml"), str(OWN / "a.geojson")],
        ["convert", str(OWN / "a.xml"), str(OWN / "a.xml")],
        ["convert", str(OWN / "a.xml"), "linked.xml"],
        ["export", STUDENT, "--bundle", str(OWN)],
        ["export", STUDENT, "--trunk", STUDENT],
        ["import", STUDENT, "--like", STUDENT, "--output", str(OWN)],
    ],
    ids=[
        *("suggest", "suggest into annotations", "convert", "convert into itself", "convert into a link"),
        *("bundle", "trunk", "import"),
    ],
)
def test_a_command_that_would_write_to_an_input_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str], call: list[str]
) -> None:
    if not Path("linked.xml").exists():
        os.link(OWN / "a.xml", "linked.xml")
    before = _state()
    assert main(call) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error: " in line]
    assert "is the input" in line or "the input data/" in line or "did not write it" in line
    assert _state() == before


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["phantom", "index"])
def test_a_stage_whose_folder_really_is_raw_data_is_one_line(
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    stage: str,
) -> None:
    shutil.copy("params.yaml", tmp_path)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    place = Path("data") / stage / "own"
    place.mkdir(parents=True)
    (place / "slides.csv").write_text("mine")
    OWN.parent.mkdir()
    OWN.symlink_to(Path("..") / stage / "own")
    assert main([stage]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert f"data/{stage}: an output folder, but it is, contains or lies in the input data/raw/own" in line
    assert (place / "slides.csv").read_text() == "mine"
