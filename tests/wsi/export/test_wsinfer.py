"""What WSInfer itself gives with the exported folder is what this project gives on the same tiles."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from wsinfer.modellib.models import LocalModelTorchScript
from wsinfer.modellib.run_inference import run_inference
from wsinfer.patchlib import segment_and_patch_directory_of_slides
from wsinfer_zoo.client import ModelConfiguration

from histo_monai.models.losses import Classification, Regression
from histo_monai.models.task_model import from_task_model
from histo_monai.slides import Box, open_slide
from histo_monai.utils.errors import InputError
from histo_monai.wsi.export.wsinfer import CONFIG, GRAPH, check_wsinfer, write_wsinfer
from tests.folders import NewFolder
from tests.wsi.export.task_models import SIDE, TASKS, save_task_model

SLIDE_MPP = 0.499
KINDS = {name: (classes, "resnet18") for name, classes in TASKS.items()} | {
    "transformer": (["normal", "tumor"], "vit_tiny_patch16_224")
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, module_folder: NewFolder) -> Path:
    classes, name = KINDS[request.param]
    path = module_folder(f"{request.param} $x") / "model.safetensors"
    return save_task_model(path, classes, name=name, mpp=SLIDE_MPP)


@pytest.mark.slow
def test_wsinfer_gives_the_predictions_of_this_project_on_a_real_slide(
    model: Path, real_slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slide, folder = tmp_path / "slides/skin.svs", tmp_path / "tumor model"
    slide.parent.mkdir()
    shutil.copyfile(real_slides / "cmu-1-small-region.svs", slide)
    write_wsinfer(model, folder)
    # What `wsinfer run` does: it reads the list of public models first, from the network.
    monkeypatch.setenv("WSINFER_FORCE_CPU", "1")
    config = ModelConfiguration.from_dict(json.loads((folder / CONFIG).read_text()))  # checks the schema
    sizes = {"patch_size_px": config.patch_size_pixels, "patch_spacing_um_px": config.spacing_um_px}
    segment_and_patch_directory_of_slides(slide.parent, tmp_path / "out", **sizes)
    graph = LocalModelTorchScript(config=config, model_path=str(folder / GRAPH))
    assert run_inference(slide.parent, tmp_path / "out", graph) == ([], [])
    theirs = pd.read_csv(tmp_path / "out/model-outputs-csv/skin.csv")
    assert len(theirs) > 100
    assert (theirs[["width", "height"]] == SIDE).all(axis=None)

    network, about = from_task_model(model)
    places = theirs[["miny", "minx"]].to_numpy() + SIDE / 2
    with open_slide(slide) as opened:
        patches = opened.read_many([Box(tuple(place), SIDE, opened.mpp) for place in places])
    objective = Classification(about["classes"]) if about["classes"] else Regression()
    with torch.inference_mode():
        outputs = network.eval()(torch.from_numpy(patches).float() / 255)
        ours = objective.predictions(outputs).numpy()
    names = [f"prob_{name}" for name in about["classes"] or ["score"]]
    np.testing.assert_allclose(theirs[names], ours, atol=1e-4)
    assert np.ptp(ours[:, 0]) > 0.01


def test_a_graph_of_another_model_is_refused(tmp_path: Path) -> None:
    for seed in (3, 4):
        model = save_task_model(tmp_path / "model.safetensors", ["a", "b"], seed=seed)
        write_wsinfer(model, tmp_path / f"export {seed}")
    check_wsinfer(tmp_path / "export 3")
    shutil.copyfile(tmp_path / "export 4" / GRAPH, tmp_path / "export 3" / GRAPH)
    with pytest.raises(InputError, match=r"differ by up to 0\.\d"):
        check_wsinfer(tmp_path / "export 3")
