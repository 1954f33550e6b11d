"""A bundle whose every text means something to MONAI, a shell or a disk: it maps as the model does and runs nothing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel, from_task_model
from histo_monai.pipeline.commands.export import bundle_settings
from histo_monai.pipeline.commands.map import Look
from histo_monai.utils.errors import InputError
from histo_monai.wsi.export.back import take_back
from histo_monai.wsi.export.bundle import run_command, write_bundle
from histo_monai.wsi.export.trunk import write_trunk
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, load_models, mapped_classes
from tests.hostile.project import write_slide
from tests.hostile.texts import TEXTS, UNPRINTABLE

SIDE, MPP = 32, 1.0
LOOK = bundle_settings(Look())
RUNS = TEXTS["an expression of MONAI that writes a file"]
SLIDE = "s #1 $5 @x %y (a) 'b' é.tif"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every class is a hostile text, and so is all else that users write into a model."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network = TaskModel(build_encoder("resnet18", SIDE), "linear", len(TEXTS))
    network.encoder.weights = {"sha256": RUNS, "license": "\n".join((RUNS, *TEXTS.values()))}
    about = {
        **network.encoder.description(architecture=RUNS, head="linear", patch_px=SIDE, mpps=[1.0, 2.0, 4.0]),
        **{"kind": "task model", "method": RUNS, "source": RUNS, "corpus": "%x", "dataset": "@network"},
        **{"classes": list(TEXTS.values()), "mpp": MPP, "stage": RUNS, "alpha": 1.0},
        "metrics": {"validation_loss": 0.5, "validation_x": RUNS, "num_labeled": 9},
    }
    save_model(Path("m/model.safetensors"), network.state_dict(), about)
    write_slide(Path(SLIDE), seed=3)
    return Path("m/model.safetensors")


def test_the_bundle_of_a_run_whose_every_text_is_hostile_runs_maps_and_comes_back(model: Path) -> None:
    name = "a $5 @b %c (d) 'e'"
    write_bundle(model, Path(name), LOOK, RUNS)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    command = f"{run_command(name)} --slide {shlex.quote(f'./{SLIDE}')}"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not Path("owned").exists()
    theirs = read_heatmap(Path(name) / f"eval/{Path(SLIDE).stem}.csv")
    classes = mapped_classes(from_task_model(model)[1]["classes"], None)
    plan = MapPlan(SIDE, MPP, SIDE * MPP, Look().tissue, Look().min_tissue_fraction, Look().batch_size)
    ours = map_slide(
        Path(SLIDE), None, load_models({"model": model}, classes, plan, torch.device("cpu")), plan,
        device=torch.device("cpu"), workers=0,
    )  # fmt: skip
    assert len(ours.cells) > 50
    assert list(theirs.values) == [f"model:{label}" for label in TEXTS.values()]
    for column, values in ours.values.items():
        np.testing.assert_allclose(theirs.values[column], values, atol=1e-4)
    maps = list((Path(name) / "eval").glob("*.tif"))
    assert len(maps) == len(TEXTS)
    assert {path.name for path in Path().iterdir()} == {"m", name, SLIDE}
    back = take_back(Path(name), Path("back"), None)
    assert back.read_bytes() == model.read_bytes()
    assert load_model(back)[1] == load_model(model)[1]


def test_a_config_holds_no_text_of_a_user(model: Path) -> None:
    write_bundle(model, Path("b"), LOOK, RUNS)
    config = json.loads(Path("b/configs/inference.json").read_text())
    expressions = sorted(text for text in _texts(config) if text.startswith(("$", "@", "%")))
    ours = [
        *("$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')", "$import torch"),
        *("$@bundle_root + '/eval'", "$@bundle_root + '/models/model.json'", "$@bundle_root + '/models/model.pt'"),
        *("$@evaluator.run()", "$@network_def.to(@device)", "@description", "@description", "@device", "@device"),
        *("@device", "@handlers", "@inferer", "@loader", "@loader", "@mpp", "@network", "@network", "@output_dir"),
        *("@postprocessing", "@slide", "@stride_um", "@workers"),
    ]  # fmt: skip
    assert expressions == sorted(ours)
    assert set(_texts(config)) & set(TEXTS.values()) == {"@network"}  # which is the config's own
    about = json.loads(Path("b/configs/metadata.json").read_text())
    assert not [text for text in _texts(about) if text.startswith(("$", "@", "%"))]
    assert "[export]" in Path("b/docs/README.md").read_text()


def _texts(tree: object) -> list[str]:
    if isinstance(tree, dict):
        return [text for value in tree.values() for text in _texts(value)]
    if isinstance(tree, list):
        return [text for value in tree for text in _texts(value)]
    return [tree] if isinstance(tree, str) else []


def test_authors_of_letters_stand_as_they_are(model: Path) -> None:
    write_bundle(model, Path("b"), LOOK, "A. Pathologist <a.p@example.org>, Ärzte & Söhne")
    about = json.loads(Path("b/configs/metadata.json").read_text())
    assert about["authors"] == "A. Pathologist <a.p@example.org>, Ärzte & Söhne"


@pytest.mark.parametrize("name", ["a#b", "a\nb"])
def test_a_name_that_monai_cannot_open_is_refused(name: str, model: Path) -> None:
    with pytest.raises(InputError, match="MONAI opens no bundle"):
        write_bundle(model, Path(name), LOOK, "a")
    assert not Path(name).exists()


@pytest.mark.parametrize("text", UNPRINTABLE.values(), ids=UNPRINTABLE.keys())
def test_a_class_of_two_lines_is_no_class(text: str, model: Path) -> None:
    state, about = load_model(model)
    save_model(model, state, {**about, "classes": [text, *about["classes"][1:]]})
    with pytest.raises(InputError, match="classes"):
        write_bundle(model, Path("b"), LOOK, "a")


def test_the_lines_that_load_a_trunk_run_nothing_of_its_path(model: Path) -> None:
    path = Path('x"); open("owned", "w"); ("y.safetensors')
    lines = write_trunk(model, path).splitlines()
    loaded: list[str] = []
    network = type("Network", (), {"load_state_dict": lambda self, state: loaded.append(state)})()
    library = type("Library", (), {"load_file": staticmethod(lambda path: path)})
    names = {"network": network, "safetensors": type("S", (), {"torch": library})}
    exec(lines[1], names)
    assert loaded == [str(path)]
    assert not Path("owned").exists()


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new"),
    [('"mpp": 1.0', '"mpp": 0.5'), ('"chinese"', '"other"'), ('"stage"', '"Stage"'), ('"alpha": 1.0', '"alpha": 0.1')],
)  # fmt: skip
def test_a_bundle_whose_description_was_changed_is_not_taken(old: str, new: str, model: Path) -> None:
    state, about = load_model(model)
    save_model(model, state, {**about, "classes": ["chinese", *about["classes"][1:]]})
    write_bundle(model, Path("b"), LOOK, "a")
    _edit(Path("b/models/model.json"), old, new)
    with pytest.raises(InputError, match=r"b/models/model\.json: changed after saving"):
        take_back(Path("b"), Path("back"), None)
    assert not Path("back").exists()


def test_a_description_without_a_seal_is_reported(model: Path) -> None:
    write_bundle(model, Path("b"), LOOK, "a")
    beside = Path("b/models/model.json")
    about = json.loads(beside.read_text())
    del about["description_sha256"]
    beside.write_text(json.dumps(about))
    with pytest.raises(InputError, match="no seal"):
        take_back(Path("b"), Path("back"), None)
    model.with_suffix(".json").write_text(json.dumps(about))
    with pytest.raises(InputError, match="no seal"):
        load_model(model)


def test_a_bundle_whose_config_runs_code_comes_back_without_it(model: Path) -> None:
    write_bundle(model, Path("b"), LOOK, "a")
    for name in ("inference", "metadata"):
        path = Path(f"b/configs/{name}.json")
        path.write_text(json.dumps({**json.loads(path.read_text()), "imports": [RUNS], "x": RUNS}))
    assert take_back(Path("b"), Path("back"), None).read_bytes() == model.read_bytes()
    assert not Path("owned").exists()
