"""Distances to the labeled training patches on maps, with slides of two tissues and naive distances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
from numpy.typing import NDArray

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.reference import TrainingReference
from histo_monai.models.task_model import TaskModel, describe_task_model, from_task_model
from histo_monai.reports.maps.slide_maps import MapStyle, SlidePicture, write_slide_maps
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.heatmaps.heatmap import Heatmap, read_heatmap, unlike_slides, write_heatmap
from histo_monai.wsi.heatmaps.tiff_map import read_map
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, load_models

CPU = torch.device("cpu")
PLAN = MapPlan(32, 0.5, 16.0, TissueRules(4.0), 0.5, 50)
STYLE = MapStyle(("tumor",), 0.5, 0.5, 0.5, 20.0, 0.0, has_distance=True)
SIDE, HALF = 256, 128


def _organ(
    shape: tuple[int, int], spot_px: float, color: tuple[int, int, int], seed: int
) -> NDArray[np.uint8]:
    """Tissue with waves of a size, px, in a stain."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    waves = np.sin(x * np.pi / spot_px + random.uniform(0, 6)) * np.sin(
        y * np.pi / spot_px + random.uniform(0, 6)
    )
    pixels = np.array(color) + 40 * waves[..., None] + random.normal(0, 6, (*shape, 3))
    return np.asarray(pixels.clip(0, 225), np.uint8)


def colon(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    return _organ((height, width), 8, (180, 90, 160), seed)


def liver(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    return _organ((height, width), 2.5, (120, 60, 150), seed)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One network, with and without labeled patches of six patients' colon."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    network = TaskModel(build_encoder(), "linear", 2).eval()
    patches = [colon(32, 32, 10 * patient + n) for patient in range(6) for n in range(8)]
    features = _features(network, patches)
    reference = TrainingReference.fit(features, np.arange(48) // 8)
    assert reference is not None
    encoder = network.encoder.description(architecture="", head="linear", patch_px=32, mpps=[0.5])
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    about = describe_task_model(encoder, classes=["normal", "tumor"], patch_px=32, mpp=0.5)
    for name, tensors in (("with", reference.tensors()), ("without", {})):
        save_model(folder / f"{name}.safetensors", {**network.state_dict(), **tensors}, about)
    return {name: folder / f"{name}.safetensors" for name in ("with", "without")}


def _features(network: TaskModel, patches: list[NDArray[np.uint8]]) -> NDArray[np.float32]:
    pixels = torch.from_numpy(np.stack(patches).transpose(0, 3, 1, 2)).float() / 255
    with torch.inference_mode():
        features: NDArray[np.float32] = network.encoder(pixels).numpy()
    return features


@pytest.fixture(scope="module")
def slide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Colon on the left half, another organ on the right."""
    pixels = np.concatenate([colon(SIDE, HALF, 900), liver(SIDE, HALF, 901)], axis=1)
    path = tmp_path_factory.mktemp("slide") / "slide.tif"
    tags = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(path, pixels, tile=(64, 64), photometric="rgb", **tags)
    return path


def _map(slide: Path, model: Path) -> Heatmap:
    loaded = load_models({"model": model}, ("tumor",), PLAN, CPU)
    return map_slide(slide, None, loaded, PLAN, device=CPU, workers=0)


def test_the_half_of_another_organ_is_unlike_the_training(slide: Path, models: dict[str, Path]) -> None:
    heatmap = _map(slide, models["with"])
    is_right = heatmap.cells[:, 1] >= HALF // 32
    is_unlike = heatmap.distances["model"] > 1
    assert is_unlike[is_right].all()
    assert is_unlike[~is_right].mean() < 0.25
    assert heatmap.unlike_training("model") == pytest.approx(is_unlike.mean(), abs=1e-6)


def test_a_distance_is_that_of_the_patchs_features(slide: Path, models: dict[str, Path]) -> None:
    heatmap, pixels = _map(slide, models["with"]), tifffile.imread(slide)
    network, _ = from_task_model(models["with"])
    patches = [pixels[32 * y : 32 * y + 32, 32 * x : 32 * x + 32] for y, x in heatmap.cells.tolist()]
    labeled = [colon(32, 32, 10 * patient + n) for patient in range(6) for n in range(8)]
    rows = _features(network.eval(), [*labeled, *patches]).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    same = np.arange(48)[:, None] // 8 == np.arange(48) // 8
    threshold = np.quantile(1 - np.where(same, -1, rows[:48] @ rows[:48].T).max(axis=1), 0.95)
    expected = (1 - (rows[48:] @ rows[:48].T).max(axis=1)) / threshold
    np.testing.assert_allclose(heatmap.distances["model"], expected, rtol=0.01, atol=0.01)


def test_distances_change_no_value_and_no_column_of_a_map(
    slide: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    lines, files = {}, {}
    for name, model in models.items():
        heatmap, folder = _map(slide, model), tmp_path / name
        write_heatmap(folder / "slide.csv", heatmap)
        picture = SlidePicture.read(slide, heatmap, STYLE, [])
        write_slide_maps(folder / "out", "slide", "slide", heatmap, "model", picture, STYLE)
        lines[name] = (folder / "slide.csv").read_text().splitlines()
        files[name] = {path.name: path.read_bytes() for path in (folder / "out").iterdir()}
    assert [line.rpartition(",")[0] for line in lines["with"]] == lines["without"]
    assert files["with"].keys() - files["without"].keys() == {"slide.distance.tif", "slide.distance.png"}
    assert {name: files["with"][name] for name in files["without"]} == files["without"]
    assert "distances" not in (tmp_path / "without/slide.json").read_text()


def test_csv_and_tiff_hold_the_distances(slide: Path, models: dict[str, Path], tmp_path: Path) -> None:
    heatmap = _map(slide, models["with"])
    write_heatmap(tmp_path / "slide.csv", heatmap)
    read = read_heatmap(tmp_path / "slide.csv")
    np.testing.assert_allclose(read.distances["model"], heatmap.distances["model"], rtol=1e-5)
    assert list(pd.read_csv(tmp_path / "slide.csv").columns[-2:]) == ["model", "model_distance"]
    picture = SlidePicture.read(slide, heatmap, STYLE, [])
    write_slide_maps(tmp_path, "slide", "slide", heatmap, "model", picture, STYLE)
    raster, stride_um = read_map(tmp_path / "slide.distance.tif")
    shown = raster[tuple(heatmap.cells.T)]
    assert stride_um == PLAN.stride_um
    np.testing.assert_allclose(shown, np.minimum(heatmap.distances["model"] / 2, 1), atol=1 / 508 + 1e-6)


def test_a_class_called_distance_has_its_own_file() -> None:
    style = MapStyle(("Distance", "gland"), 0.5, 0.5, 0.5, 20.0, 0.0, has_distance=True)
    names = [name.casefold() for name in style.files("slide")]
    assert len(names) == len(set(names)) == 6


def test_slides_mostly_unlike_the_training_are_named() -> None:
    fractions = {"a": 0.51, "b": 0.5, "c": float("nan"), "d": 1.0}
    (line,) = unlike_slides(fractions)
    assert "2 of 4" in line
    assert "a; d" in line
    assert unlike_slides({"b": 0.5}) == []
