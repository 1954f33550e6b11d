"""The command `map` with and without labeled training patches in the model's file."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.reference import TrainingReference
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main

pytestmark = pytest.mark.slow

LIGHT, DARK = (200, 150, 190), (90, 40, 130)


def _patch(color: tuple[int, int, int], side: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, 12, (side, side, 1))
    return (np.array(color) + noise).clip(0, 225).astype(np.uint8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A light and a dark slide; a model with labels of four light patients, and the model without them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    for name, color in (("light", LIGHT), ("dark", DARK)):
        tags = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}
        tifffile.imwrite(f"{name}.tif", _patch(color, 128, 99), tile=(64, 64), photometric="rgb", **tags)
    torch.manual_seed(0)
    network = TaskModel(build_encoder(), "linear", 2).eval()
    patches = np.stack([_patch(LIGHT, 32, n) for n in range(40)]).transpose(0, 3, 1, 2)
    with torch.inference_mode():
        features = network.encoder(torch.from_numpy(patches).float() / 255).numpy()
    reference = TrainingReference.fit(features, np.arange(40) // 10)
    assert reference is not None
    encoder = network.encoder.description(architecture="", head="linear", patch_px=32, mpps=[0.5])
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    about = describe_task_model(encoder, classes=["normal", "tumor"], patch_px=32, mpp=0.5)
    save_model(Path("new.safetensors"), {**network.state_dict(), **reference.tensors()}, about)
    save_model(Path("earlier.safetensors"), network.state_dict(), about)
    return tmp_path


def _map(model: str, *slides: str) -> None:
    assert main(["map", *slides, "--model", f"{model}.safetensors", "--output", model]) == 0


def test_a_slide_unlike_the_labeled_patches_is_named_and_mapped(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _map("new", "light.tif", "dark.tif")
    fractions = {}
    for name in ("light", "dark"):
        files = {path.name for path in (folder / "new").glob(f"{name}.*")}
        suffixes = ("csv", "json", "tif", "geojson", "png", "distance.tif", "distance.png")
        assert files == {f"{name}.map.{suffix}" for suffix in suffixes}
        record = json.loads((folder / f"new/{name}.map.json").read_text())
        assert {f"{name}.map.distance.tif", f"{name}.map.distance.png"} <= set(record["files"])
        fractions[name] = record["unlike_training"]
        table = pd.read_csv(folder / f"new/{name}.map.csv")
        is_unlike = table["model_distance"] > 1
        assert fractions[name] == pytest.approx(np.average(is_unlike, weights=table["tissue"]), abs=1e-3)
    assert fractions["dark"] == 1
    assert fractions["light"] < 0.5
    (warning,) = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert "dark" in warning
    assert "light" not in warning


def test_a_mapped_slide_is_skipped_and_a_lost_picture_drawn_again(folder: Path) -> None:
    _map("new", "light.tif")
    before = {path.name: path.read_bytes() for path in (folder / "new").iterdir()}
    stamp = (folder / "new/light.map.csv").stat().st_mtime_ns
    _map("new", "light.tif")
    assert (folder / "new/light.map.csv").stat().st_mtime_ns == stamp
    (folder / "new/light.map.distance.tif").unlink()
    _map("new", "light.tif")
    after = {path.name: path.read_bytes() for path in (folder / "new").iterdir()}
    assert after.keys() == before.keys()
    assert all(after[name] == before[name] for name in before if not name.endswith(".json"))


def test_a_model_without_labeled_patches_maps_as_before_and_is_reported_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _map("earlier", "light.tif", "dark.tif")
    assert sum("no labeled patches" in record.message for record in caplog.records) == 1
    assert not list((folder / "earlier").glob("*distance*"))
    record = json.loads((folder / "earlier/light.map.json").read_text())
    assert "unlike_training" not in record
    assert "has_distance" not in record["drawn_as"]
    _map("new", "light.tif")
    earlier, new = (pd.read_csv(folder / f"{name}/light.map.csv", dtype=str) for name in ("earlier", "new"))
    pd.testing.assert_frame_equal(new.drop(columns="model_distance"), earlier)
    for suffix in ("tif", "geojson", "png"):
        paths = [folder / f"{name}/light.map.{suffix}" for name in ("earlier", "new")]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_model_without_labeled_patches_leaves_no_distance_of_an_earlier_one(folder: Path) -> None:
    _map("new", "light.tif")
    other = folder / "new/dark.map.distance.tif"
    other.write_bytes(b"of another program")
    assert main(["map", "light.tif", "--model", "earlier.safetensors", "--output", "new"]) == 0
    assert list((folder / "new").glob("*distance*")) == [other]
    assert all((folder / "new" / name).is_file() for name in json.loads(_record(folder))["files"])


def test_a_changed_file_of_an_earlier_map_stays(folder: Path) -> None:
    _map("new", "light.tif")
    changed = folder / "new/light.map.distance.png"
    changed.write_bytes(b"with arrows")
    assert main(["map", "light.tif", "--model", "earlier.safetensors", "--output", "new"]) == 0
    assert list((folder / "new").glob("*distance*")) == [changed]


def _record(folder: Path) -> str:
    return (folder / "new/light.map.json").read_text()
