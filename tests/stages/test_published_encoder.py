"""A transformer of UNI2-h's arguments, from a file in the published layout, through the stages and commands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import tifffile
import timm
import torch
import yaml

from histo_monai.models.reference import load_reference
from histo_monai.models.task_model import from_task_model
from histo_monai.pipeline.cli import main
from tests.hostile.project import params_with, write_own_project

WEIGHTS = Path("data/weights/pytorch_model.bin")
SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3}
SIDE = 56
RUN = ("--method", "pretrained", "--seed", "0")
MODEL = Path("data/models/pretrained-0-0/finetuned/model.safetensors")


def _published_file() -> None:
    """UNI2-h as its publisher's code builds it, two blocks deep, and saved as a plain state dict."""
    torch.manual_seed(5)
    network = timm.create_model(
        "vit_giant_patch14_224",
        **{
            "img_size": SIDE,
            "patch_size": 14,
            "init_values": 1e-5,
            "mlp_ratio": 2.66667 * 2,
            "num_classes": 0,
        },
        **{"no_embed_class": True, "mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU},
        **{"reg_tokens": 8, "dynamic_img_size": True, **SMALL},
    )
    for block in network.blocks:
        torch.nn.init.ones_(block.ls1.gamma)
        torch.nn.init.ones_(block.ls2.gamma)
    WEIGHTS.parent.mkdir(parents=True)
    torch.save(network.state_dict(), WEIGHTS)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEVICE", "cpu"), ("CPUS", "1"), ("WORKERS", "0"), ("RANKS", "1")):
        monkeypatch.setenv(f"HISTO_MONAI_{name}", value)
    write_own_project()
    _published_file()
    tree: Any = yaml.safe_load(Path("params.yaml").read_text())
    tree["pretrain"]["rsp"] |= {"epochs": 1, "batch_size": 4}
    digest = hashlib.sha256(WEIGHTS.read_bytes()).hexdigest()
    tree["encoder"] |= {"name": "uni2-h", "weights": str(WEIGHTS), "sha256": digest}
    tree["encoder"] |= {"side": SIDE, "arguments": SMALL}
    Path("params.yaml").write_text(yaml.safe_dump(tree))
    return lambda *call: main(call)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "student"), [("all", "paper"), ("adapters", "paper"), ("head", "self_training")]
)
def test_a_published_encoder_goes_from_its_file_to_a_map(
    project: Callable[..., int], mode: str, student: str
) -> None:
    whole = mode == "all"
    methods = ["pretrained", "rsp"] if whole else ["pretrained"]
    params_with(
        pretraining_methods=methods,
        slide_level__pretraining_methods=methods,
        finetune__mode=mode,
        semisupervised_methods=[student],
        slide_level__semisupervised_methods=[student],
    )()
    assert project("index") == 0
    for method in methods:
        assert project("pretrain", "--method", method) == 0
        about = json.loads(Path(f"data/models/{method}-0/encoder.json").read_text())["encoder"]
        assert (about["name"], about["side"], about["arguments"]) == ("uni2-h", SIDE, SMALL)
        assert about["weights"]["license"] == "CC BY-NC-ND 4.0"
        assert about["mean"] == [0.485, 0.456, 0.406]
    given = torch.load(WEIGHTS)
    loaded = safetensors.torch.load_file("data/models/pretrained-0/encoder.safetensors")
    assert all(torch.equal(loaded[f"encoder.trunk.{name}"], tensor) for name, tensor in given.items())
    params_with(pretraining_methods=["pretrained"], slide_level__pretraining_methods=["pretrained"])()
    assert project("features", "--method", "pretrained") == 0
    arguments = {"compare": (), "report": (), "check": ()}
    assert project("check") == 0
    later = ("aggregate", "mil", "compare", "report") if whole else ()
    for stage in ("finetune", "consistency", "evaluate", "heatmap", *later):
        assert project(stage, *arguments.get(stage, RUN)) == 0
    model, about = from_task_model(MODEL)
    assert about["encoder"]["weights"]["license"] == "CC BY-NC-ND 4.0"
    assert model.encoder.num_features == 48
    assert project("map", "data/raw/own/s6.tif", "--model", str(MODEL), "--output", "maps") == 0
    cells = pd.read_csv("maps/s6.map.csv").iloc[::20]
    pixels = torch.from_numpy(tifffile.imread("data/raw/own/s6.tif")).permute(2, 0, 1) / 255
    corners = ((cells[["y", "x"]].to_numpy() - 16).astype(int)).tolist()  # 1 µm/px, patches of 32 px
    patches = torch.stack([pixels[:, y : y + 32, x : x + 32] for y, x in corners])
    with torch.no_grad():
        scores = model.eval()(patches).softmax(dim=1)[:, about["classes"].index("tumor")]
    np.testing.assert_allclose(cells["model"], scores, atol=2e-6)
    assert cells["model"].std() > 1e-3
    reference = load_reference(MODEL)
    assert reference is not None
    with torch.no_grad():
        np.testing.assert_allclose(cells["model_distance"], reference(model.encoder(patches)), atol=1e-3)
    for option, output in (("--trunk", "trunk.safetensors"), ("--bundle", "bundle"), ("--onnx", "m.onnx")):
        assert project("export", str(MODEL), option, output) == 0
        assert Path(output).exists()
    assert "no commercial use" in Path("bundle/docs/README.md").read_text()
    assert "no commercial use" in Path("bundle/docs/license.txt").read_text()
    assert project("features", "data/raw/own/s6.tif", "--model", str(MODEL), "--output", "features") == 0
