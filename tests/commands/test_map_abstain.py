"""The command `map --abstain`: cells whose set of classes is not one class have no class."""

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
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main

pytestmark = pytest.mark.slow

CLASSES = {"two": ["normal", "tumor"], "three": ["gland", "stroma", "tumor"]}
CELL_MM2 = 0.016**2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A slide of 64 cells from light to dark."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    noise = np.random.default_rng(0).normal(0, 20, (256, 256, 1))
    pixels = np.linspace((215, 160, 200), (60, 20, 110), 256)[None] + noise
    tags = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite("s.tif", pixels.clip(0, 225).astype(np.uint8), tile=(64, 64), photometric="rgb", **tags)
    return tmp_path


def _save(name: str, **more: object) -> None:
    torch.manual_seed(0)
    network = TaskModel(build_encoder(), "linear", len(CLASSES[name])).eval()
    torch.nn.init.normal_(network.head.linear.weight, std=0.5)
    encoder = network.encoder.description(architecture="", head="linear", patch_px=32, mpps=[0.5])
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    about = describe_task_model(encoder, classes=CLASSES[name], patch_px=32, mpp=0.5)
    save_model(Path(f"{name}.safetensors"), network.state_dict(), {**about, **more})


def _map_first(name: str) -> dict[str, bytes]:
    """Files of the map by a model without thresholds."""
    _save(name)
    assert _map(name) == 0
    return _files(name)


def _map(name: str, *options: str) -> int:
    return main(["map", "s.tif", "--model", f"{name}.safetensors", "--output", name, *options])


def _calibrate(name: str) -> dict[float, float]:
    """Give a model thresholds by which about half and a quarter of the cells have no class."""
    highest = _probabilities(name).max(axis=1)
    limits = {0.1: 1 - float(np.median(highest)), 0.2: 1 - float(np.quantile(highest, 0.25))}
    _save_with(name, limits)
    return limits


def _save_with(name: str, limits: dict[float, float]) -> None:
    rates = [
        {"rate": rate, "threshold": limit, "coverage": 0.9, "answered": 0.5, "accuracy": 0.8}
        for rate, limit in limits.items()
    ]
    _save(name, conformal={"num_labels": 40, "num_patients": 4, "accuracy": 0.7, "rates": rates})


def _probabilities(name: str) -> np.ndarray:
    table = _table(name)
    if name == "two":
        tumor = table["model"].astype(float)
        return np.stack([1 - tumor, tumor], axis=1)
    return table[[f"model:{label}" for label in CLASSES[name]]].astype(float).to_numpy()


def _table(name: str) -> pd.DataFrame:
    return pd.read_csv(f"{name}/s.map.csv", dtype=str, keep_default_na=False)


def _files(name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(name).iterdir()}


def _record(name: str) -> dict:
    return json.loads(Path(name, "s.map.json").read_text())


@pytest.mark.parametrize("name", CLASSES)
def test_a_cell_has_a_class_if_its_set_holds_one_alone(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before, probabilities = _map_first(name), _probabilities(name)
    limits = _calibrate(name)
    for rate, limit in limits.items():
        assert _map(name, "--abstain", str(rate)) == 0
        table, record = _table(name), _record(name)
        expected = []
        for row in probabilities:
            inside = [label for label, p in zip(CLASSES[name], row, strict=True) if 1 - p <= limit + 1e-9]
            expected.append(inside[0] if len(inside) == 1 else "")
        assert table["answer"].tolist() == expected
        has_none = np.array(expected) == ""
        assert 0 < has_none.sum() < len(has_none)
        fraction = np.average(has_none, weights=table["tissue"].astype(float))
        assert record["abstains"] == pytest.approx(fraction, abs=1e-4)
        stated = {"error_rate": rate, "threshold": limit, "coverage": 0.9, "accuracy": 0.8}
        stated |= {"num_labels": 40, "num_patients": 4, "classes": CLASSES[name]}
        assert record["drawn_as"]["abstention"] == stated
        assert f"abstains={100 * fraction:.0f} %" in caplog.text
        after = _files(name)
        assert after.keys() == before.keys()
        for file in before:
            is_equal = after[file] == before[file]
            assert is_equal == file.endswith(".tif"), file
        assert main(["verify", name]) == 0
    assert "mapped again" not in caplog.text


def test_outlines_and_points_lie_in_cells_with_a_class() -> None:
    _map_first("two")
    _calibrate("two")
    assert _map("two", "--abstain", "0.1") == 0
    table = _table("two")
    features = json.loads(Path("two/s.map.geojson").read_text())["features"]
    areas = [
        feature["properties"]["measurements"]["area mm^2"]
        for feature in features
        if feature["geometry"]["type"] == "Polygon"
    ]
    is_tumor = (table["answer"] != "") & (table["model"].astype(float) >= 0.5)
    assert sum(areas) == pytest.approx(is_tumor.sum() * CELL_MM2)
    places = table[table["answer"] != ""][["x", "y"]].astype(float).to_numpy().tolist()
    points = [f["geometry"]["coordinates"] for f in features if f["geometry"]["type"] == "Point"]
    assert all(point in places for point in points)


def test_without_the_option_the_map_is_as_before() -> None:
    before = _map_first("three")
    _calibrate("three")
    assert _map("three", "--abstain", "0.1") == 0
    drawn = _files("three")
    assert _map("three", "--abstain", "0.1") == 0
    assert _files("three") == drawn
    assert _map("three") == 0
    after = _files("three")
    record = _record("three")
    assert "abstains" not in record
    assert "abstention" not in record["drawn_as"]
    assert all(after[name] == before[name] for name in before if name != "s.map.json")


def test_a_model_without_thresholds_and_one_class_of_three_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _save("two")
    assert _map("two", "--abstain", "0.1") != 0
    _save_with("three", {0.1: 0.5, 0.2: 0.4})
    assert _map("three", "--abstain", "0.1", "--positive-class", "tumor") != 0
    assert _map("three", "--abstain", "0.3") != 0
    lines = capsys.readouterr().err
    for words in ("no cross-validated labels", "--positive-class", "0.1, 0.2"):
        assert words in lines
