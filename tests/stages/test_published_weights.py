"""The stage `pretrain` from a file of weights, as a user runs it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tifffile
import timm
import torch
import yaml

from histo_monai.pipeline.cli import main
from tests.papers_way import in_the_papers_way

WEIGHTS = "data/weights/vit.pth"
Run = Callable[..., int]


@pytest.fixture
def run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a stage with changed keys of `encoder`, in a project with three small slides and a file of weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    for folder in ("data/raw/own", "data/weights"):
        Path(folder).mkdir(parents=True)
    tags = {"resolution": (10_000, 10_000), "resolutionunit": "CENTIMETER", "photometric": "rgb"}
    for number in range(3):
        grains = np.random.default_rng(number).integers(-40, 40, (96, 96, 1)).repeat(8, 0).repeat(8, 1)
        pixels = np.full((1024, 1024, 3), 245, np.uint8)
        pixels[128:896, 128:896] = np.clip(np.array([200, 110, 170]) + grains, 0, 255)
        tifffile.imwrite(f"data/raw/own/{number}.tif", pixels, tile=(256, 256), **tags)
    Path("data/raw/own/slides.csv").write_text(
        "slide_id,path\n" + "".join(f"s{n},{n}.tif\n" for n in range(3))
    )
    torch.manual_seed(3)
    vit = timm.create_model("test_vit", pretrained=False, num_classes=4, img_size=32)
    torch.save({"state_dict": {f"module.{name}": x for name, x in vit.state_dict().items()}}, WEIGHTS)
    tree: dict[str, Any] = in_the_papers_way(yaml.safe_load((root / "params.yaml").read_text()))
    tree |= {"source": "raw", "dataset": "own", "pretraining_dataset": "own", "patch_px": 32}
    tree["pretraining_methods"] = ["random", "pretrained", "rsp", "dino"]
    tree["corpora"]["own"] |= {"num_train": 8, "num_validation": 4}
    tree["pretrain"]["rsp"] |= {"epochs": 1, "batch_size": 4}
    tree["pretrain"]["dino"] |= {"epochs": 1, "batch_size": 4, "num_prototypes": 8, "adjacent": True}
    digest = hashlib.sha256(Path(WEIGHTS).read_bytes()).hexdigest()
    tree["encoder"] |= {"name": "test_vit", "weights": WEIGHTS, "sha256": digest, "license": "CC BY-NC 4.0"}

    def stage(*argv: str, **encoder: Any) -> int:
        tree["encoder"] |= encoder
        Path("params.yaml").write_text(yaml.safe_dump(tree))
        return main(argv)

    return stage


def test_the_file_stands_in_the_record_of_every_model_that_starts_from_it(run: Run) -> None:
    assert run("index") == 0
    digest = hashlib.sha256(Path(WEIGHTS).read_bytes()).hexdigest()
    given = torch.load(WEIGHTS)["state_dict"]["module.patch_embed.proj.weight"]
    for method, is_used in (("random", False), ("pretrained", True), ("rsp", True), ("dino", True)):
        assert run("pretrain", "--method", method) == 0
        folder = Path("data/models", f"{method}-0")
        about = json.loads((folder / "encoder.json").read_text())["encoder"]
        assert about["weights"] == ({"sha256": digest, "license": "CC BY-NC 4.0"} if is_used else None)
        assert (about["name"], about["img_px"], about["num_features"]) == ("test_vit", 32, 64)
        inputs = json.loads((folder / "metrics.json").read_text())["provenance"]["inputs"]
        assert inputs.get(WEIGHTS) == (digest if is_used else None)
        result = safetensors.torch.load_file(folder / "encoder.safetensors")[
            "encoder.trunk.patch_embed.proj.weight"
        ]
        assert torch.equal(result, given) == (method == "pretrained")


@pytest.mark.parametrize(
    ("encoder", "line"),
    [
        ({"sha256": "0" * 64}, f"{WEIGHTS}: SHA-256 is"),
        ({"sha256": None}, "encoder.sha256 is not set"),
        ({"weights": "data/weights/gone.pt"}, "data/weights/gone.pt: cannot be read"),
        ({"name": "test_vit2"}, "does not fit the encoder"),
        ({"name": "nothing_like_it"}, "no ResNet of torchvision and no name of timm"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_nothing_is_written(
    encoder: dict[str, Any], line: str, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run("pretrain", "--method", "pretrained", **encoder) == 1
    errors = [text for text in capfd.readouterr().err.splitlines() if "error" in text or "Traceback" in text]
    assert len(errors) == 1
    assert line in errors[0]
    assert not Path("data/models").exists()
