"""The public functions on simulated slides: against the commands, and as docs/api.md and the notebooks call them."""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import histo_monai as hm
from histo_monai.data.simulated import SimulatedSize, write_simulated
from histo_monai.data.simulated.datasets.camelyon16 import SIMULATED
from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from histo_monai.wsi.inference.patch_features import FeatureFile
from tests.folders import NewFolder

TRAINING = Path("data/phantom/camelyon16/training")
SLIDE = TRAINING / "tumor/tumor_001.tif"
ENCODER = Path("data/models/rsp_moco-0/encoder.safetensors")
MODEL = Path("data/models/rsp_moco-0-spatial_neighbors-0/student/model.safetensors")
SCORES = Path("scores.safetensors")
pytestmark = pytest.mark.slow  # Slides are rendered for them.


def _write_models(folder: Path) -> None:
    """An encoder and models that nothing was trained into."""
    torch.manual_seed(0)
    encoder = build_encoder()
    about = encoder.description(architecture="", head="linear", patch_px=64, mpps=[1.0, 2.0, 4.0])
    about |= {"method": "random", "source": "phantom", "corpus": "camelyon16"}
    for path in (ENCODER, MODEL, SCORES):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
    state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    save_model(folder / ENCODER, state, {"kind": "encoder", **about})
    for path, classes in ((MODEL, ["normal", "tumor"]), (SCORES, None)):
        model = TaskModel(build_encoder(), "linear", len(classes or "1"))
        described = describe_task_model(about, classes=classes, patch_px=64, mpp=1.0)
        save_model(folder / path, model.state_dict(), described)


@pytest.fixture(scope="module")
def made(module_folder: NewFolder) -> Path:
    """A folder with the files that the first cells of the notebooks name, and those of docs/api.md."""
    folder = module_folder("project")
    size = SimulatedSize(
        seed=5, num_slides=8, num_test_slides=1, num_patches=0, slide_side_px=768, slide_mpp=1.0
    )
    write_simulated(folder / TRAINING.parent, SIMULATED, size, processes=1)
    _write_models(folder)
    (folder / "slide.tif").symlink_to(folder / SLIDE)
    (folder / "slide.xml").symlink_to(folder / TRAINING / "lesion_annotations/tumor_001.xml")
    for name, path in (("encoder", ENCODER), ("model", MODEL)):
        for suffix in (".safetensors", ".json"):
            (folder / name).with_suffix(suffix).symlink_to((folder / path).with_suffix(suffix))
    return folder


@pytest.fixture
def project(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(made)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    return made


def test_tiles_and_features_are_those_of_the_command_features(project: Path, tmp_path: Path) -> None:
    assert main(["features", str(SLIDE), "--model", str(ENCODER), "--output", str(tmp_path)]) == 0
    with FeatureFile(tmp_path / "tumor_001.h5") as file:
        expected = file.read()
    encoder = hm.load_encoder(ENCODER, device="cpu")
    assert (encoder.num_features, encoder.patch_px, encoder.mpp) == (512, 64, 1.0)
    with hm.open_slide(SLIDE) as slide:
        boxes = hm.tile(slide, encoder.patch_px, 1.0)
        features = hm.encode(encoder, slide, boxes, batch_size=7)
        images = slide.read_many(boxes)
    corners = (
        np.array([box.center_yx for box in boxes])[:, ::-1] - 32
    )  # x, y; 64 px of 1 µm on a slide of 1 µm/px
    assert len(boxes) > 20
    assert np.array_equal(corners, expected.corners_xy)
    np.testing.assert_allclose(features, expected.features, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(hm.encode(encoder, images), features, rtol=1e-5, atol=1e-5)
    assert hm.encode(encoder, images[:0]).shape == (0, 512)


def test_a_map_is_that_of_the_command_map(project: Path, tmp_path: Path) -> None:
    assert (
        main(["map", str(SLIDE), "--model", str(MODEL), "--output", str(tmp_path), "--stride-um", "32"]) == 0
    )
    expected = read_heatmap(tmp_path / "tumor_001.map.csv")
    model = hm.load_model(MODEL, device="cpu")
    with hm.open_slide(SLIDE) as slide:
        found = hm.heatmap(slide, model, stride_um=32)
        both = hm.heatmap(slide, model, positive="normal")
    assert list(found.values) == ["tumor"]
    assert list(both.values) == ["normal"]
    assert np.array_equal(found.cells, expected.cells)
    np.testing.assert_allclose(found.values["tumor"], expected.values["model"], rtol=1e-5)


def test_predictions_of_boxes_are_those_of_the_map_around_the_same_places(project: Path) -> None:
    model, scores = hm.load_model(MODEL, device="cpu"), hm.load_model(SCORES, device="cpu")
    assert (model.classes, scores.classes) == (("normal", "tumor"), None)
    with hm.open_slide(SLIDE) as slide:
        boxes = hm.tile(slide, 64, 1.0)
        probabilities = hm.predict(model, slide, boxes)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
        mapped = hm.heatmap(slide, model).values["tumor"]
        np.testing.assert_allclose(probabilities[:, 1], mapped, rtol=1e-3, atol=1e-5)
        mapped = hm.heatmap(slide, scores).values["score"]
        np.testing.assert_allclose(hm.predict(scores, slide, boxes), mapped, rtol=1e-3, atol=1e-5)


def test_what_a_function_cannot_use_is_refused_with_the_fix(project: Path) -> None:
    model, encoder = hm.load_model(MODEL, device="cpu"), hm.load_encoder(ENCODER, device="cpu")
    images = np.zeros((2, 3, 64, 64), np.uint8)
    with hm.open_slide(SLIDE) as slide:
        box = hm.Box((300.0, 300.0), 64, 2.0)
        cases: list[tuple[str, Any, tuple[Any, ...]]] = [
            ("boxes: 2 µm/px, the model takes 1 µm/px", model, (slide, [box])),
            ("no boxes. Fix: give the boxes", encoder, (slide,)),
            ("boxes: given without a slide", encoder, (images, [box])),
            (r"images: float32 \(2, 3, 64, 64\), expected uint8", encoder, (images.astype(np.float32),)),
            (r"images: uint8 \(2, 64, 64, 3\), expected uint8", model, (images.transpose(0, 2, 3, 1),)),
            (r"sides of \[32\] px, expected 64 px", model, (images[..., :32, :32],)),
            (r"sides of \[32, 64\] px, expected one side", encoder, (images[..., :32],)),
        ]
        for message, network, arguments in cases:
            function: Any = hm.predict if network is model else hm.encode
            with pytest.raises(hm.InputError, match=message):
                function(network, *arguments)
        with pytest.raises(hm.SlideError, match=r"0\.25 µm/px requested, finer than the slide's own"):
            hm.tile(slide, 64, 0.25)
    with pytest.raises(hm.InputError, match="an encoder, not a fine-tuned model"):
        hm.load_model(ENCODER)


def test_the_page_runs_as_it_stands(root: Path, project: Path) -> None:
    page = (root / "docs/api.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(code, names)
    assert names["images"].shape == (8, 3, 64, 64)
    assert names["mask"].shape == (48, 48)
    np.testing.assert_allclose(names["of_images"], names["features"][:8], rtol=1e-4, atol=1e-5)
    assert len(names["areas"]) == len(names["regions"]) > 0
    assert np.nanmax(names["raster"]) == names["tumor"].max()
    assert names["centers"].shape == (len(names["tumor"]), 2)
    names["slide"].close()


def _run_notebook(path: Path) -> tuple[dict[str, Any], str]:
    """Names and printed text of a notebook after all its code."""
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        mpl.use("Agg")
        for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    plt.close("all")
    return names, printed.getvalue()


def test_the_notebook_of_features_ends_in_a_linear_model(root: Path, project: Path) -> None:
    names, printed = _run_notebook(root / "docs/notebooks/features.ipynb")
    assert names["features"].shape == (len(names["labels"]), 512)
    assert len(set(names["slides"])) == 4
    assert 0.05 < names["labels"].mean() < 0.95
    assert f"AUC {names['auc'].value:.3f}" in printed
    assert names["auc"].n == 4


def test_the_notebook_of_maps_shows_the_highest_patches(root: Path, project: Path) -> None:
    names, printed = _run_notebook(root / "docs/notebooks/heatmap.ipynb")
    tumor = names["found"].values["tumor"]
    assert names["images"].shape == (8, 3, 64, 64)
    assert sorted(tumor[names["highest"]]) == sorted(np.sort(tumor)[-8:])
    assert "('normal', 'tumor'), patches of 64 px at 1 µm/px" in printed


@pytest.mark.parametrize("name", ["features", "heatmap"])
def test_notebooks_hold_code_and_text_and_nothing_of_a_run(name: str, root: Path) -> None:
    notebook = json.loads((root / f"docs/notebooks/{name}.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
