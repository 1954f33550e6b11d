"""The command `map` as a stranger calls it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
import torch

from histo_monai.__main__ import main
from histo_monai.networks import Encoder, TaskModel, describe_task_model, save_model
from histo_monai.slides.annotations import read_geojson
from histo_monai.wholeslide.heatmap import read_heatmap

PATCH_PX, MPP = 32, 0.5


def _write_slide(path: Path, mpp: float | None = MPP) -> None:
    """Textured tissue, its right quarter empty."""
    random = np.random.default_rng(len(path.name))
    pixels = (190, 110, 170) + 25 * random.normal(0, 1, (256, 384, 1)) * np.ones(3)
    pixels[:, 288:] = 245
    told = {"resolution": (1e4 / mpp, 1e4 / mpp), "resolutionunit": "CENTIMETER"} if mpp else {}
    tifffile.imwrite(path, pixels.clip(0, 255).astype(np.uint8), tile=(128, 128), photometric="rgb", **told)


def _write_model(path: Path, classes: list[str] | None, mpp: float | None = MPP, seed: int = 0) -> None:
    torch.manual_seed(seed)
    encoder = Encoder().description(architecture="", head="linear", patch_px=PATCH_PX, mpps=[0.5, 1.0, 2.0])
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    model = TaskModel("linear", len(classes or "1"))
    about = describe_task_model(encoder, classes=classes, patch_px=PATCH_PX, mpp=mpp)
    save_model(path, model.state_dict(), about)


@pytest.fixture
def folder(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: params.yaml, a model, two slides."""
    shutil.copy(root / "params.yaml", tmp_path)
    for name in ("a.tif", "bb.tif"):
        _write_slide(tmp_path / name)
    _write_model(tmp_path / "model.safetensors", ["normal", "tumor"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    return tmp_path


def _map(*arguments: str) -> int:
    return main(["map", "--model", "model.safetensors", "--folder", "maps", *arguments])


def test_every_slide_gets_scores_a_map_an_overlay_and_detections(folder: Path) -> None:
    assert _map("a.tif", "bb.tif") == 0
    for name in ("a", "bb"):
        heatmap = read_heatmap(folder / f"maps/{name}.csv")
        assert heatmap.grid.stride_um == PATCH_PX * MPP
        assert heatmap.grid.shape == (8, 12)
        assert heatmap.cells[:, 1].max() <= 9  # Nothing is looked at where there is glass.
        assert 0 < heatmap.values["model"].min() < heatmap.values["model"].max() < 1
        read_geojson(folder / f"maps/{name}.geojson")
        assert (folder / f"maps/{name}.png").read_bytes().startswith(b"\x89PNG")
        with openslide.OpenSlide(folder / f"maps/{name}.tif") as opened:
            assert opened.dimensions == (12, 8)
            assert float(opened.properties["openslide.mpp-x"]) == PATCH_PX * MPP


def test_slides_that_are_mapped_already_are_not_mapped_again(folder: Path) -> None:
    assert _map("a.tif") == 0
    csv = folder / "maps/a.csv"
    before = csv.stat().st_mtime_ns, csv.read_bytes()
    assert _map("a.tif", "bb.tif") == 0
    assert (csv.stat().st_mtime_ns, csv.read_bytes()) == before
    assert (folder / "maps/bb.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.tif", "missing.tif"], "missing.tif: no such file"),
        (["a.tif", "bare.tif"], "bare.tif: states no resolution"),
        (["bare.tif"], "--mpp tells it for all slides of a call"),
        (["a.tif", "other/a.tif"], "a.tif and a.tif have one name"),
        (
            ["a.tif", "--positive", "cyst"],
            "asked for the class 'cyst', but it gives the classes ['normal', 'tumor']",
        ),
        (["a.tif", "--stride-um", "10.3"], "stride"),
        (["a.tif", "--model", "none.safetensors"], "none.safetensors: no such model"),
        (["a.tif", "--model", "silent.safetensors"], "does not say at what µm/px it sees patches"),
        (["a.tif", "--model", "tissues.safetensors"], "say with --positive which one to map"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_mapped(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    _write_slide(folder / "bare.tif", mpp=None)
    (folder / "other").mkdir()
    shutil.copy("a.tif", "other/a.tif")
    _write_model(folder / "silent.safetensors", ["normal", "tumor"], mpp=None)
    _write_model(folder / "tissues.safetensors", ["fat", "muscle"])
    assert _map(*arguments) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert says in line.replace("other/", "")
    assert not list(folder.glob("maps/*.csv"))


def test_a_call_that_failed_stands_in_the_way_of_none(folder: Path) -> None:
    assert _map("a.tif", "--stride-um", "10.3") == 1
    assert _map("a.tif") == 0


def test_maps_of_another_model_or_stride_do_not_mix(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _map("a.tif") == 0
    assert _map("bb.tif", "--stride-um", "8") == 1
    assert "holds maps with stride_um 16.0, now 8.0; name another folder" in capsys.readouterr().err
    _write_model(folder / "model.safetensors", ["normal", "tumor"], seed=1)
    assert _map("bb.tif") == 1
    assert "holds maps with model_sha256" in capsys.readouterr().err


def test_a_score_is_mapped_as_it_is(folder: Path) -> None:
    _write_model(folder / "model.safetensors", None)
    assert _map("a.tif", "--stride-um", "8") == 0
    assert read_heatmap(folder / "maps/a.csv").grid.shape == (16, 24)
