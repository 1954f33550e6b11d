"""The command `map --dicom`: a map beside the others that an archive files under the slide's patient."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pydicom
import pytest
import tifffile
import torch

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel, describe_task_model
from histo_monai.pipeline.cli import main
from histo_monai.utils.storage import file_sha256
from histo_monai.wsi.heatmaps.heatmap import read_heatmap
from tests.slides.drawn_dicom import write_dicom_slide

pytestmark = pytest.mark.slow

CLASSES = ["gland", "stroma", "tumor"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A slide in DICOM, a TIFF and a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    noise = np.random.default_rng(0).normal(0, 20, (256, 256, 1))
    pixels = (np.linspace((215, 160, 200), (60, 20, 110), 256)[None] + noise).clip(0, 225).astype(np.uint8)
    write_dicom_slide(tmp_path / "s", pixels, 0.5)
    tags = {"resolution": (2e4, 2e4), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite("plain.tif", pixels, tile=(64, 64), photometric="rgb", **tags)
    torch.manual_seed(0)
    network = TaskModel(build_encoder(), "linear", len(CLASSES)).eval()
    torch.nn.init.normal_(network.head.linear.weight, std=0.5)
    encoder = network.encoder.description(architecture="", head="linear", patch_px=32, mpps=[0.5])
    encoder |= {"method": "random", "source": "raw", "corpus": "own"}
    about = describe_task_model(encoder, classes=CLASSES, patch_px=32, mpp=0.5)
    save_model(Path("model.safetensors"), network.state_dict(), about)
    return tmp_path


def _map(*arguments: str) -> int:
    return main(["map", *arguments, "--model", "model.safetensors", "--output", "maps"])


def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path("maps").iterdir()}


def test_a_dicom_map_holds_the_scores_of_all_classes_and_comes_and_goes_with_the_option() -> None:
    assert _map("s/0.dcm") == 0
    bare = _files()
    assert _map("s/0.dcm", "--dicom") == 0
    files = _files()
    assert set(files) - set(bare) == {"0.map.dcm"}
    assert files["0.map.csv"] == bare["0.map.csv"]
    assert json.loads(files["0.map.json"])["files"]["0.map.dcm"] == file_sha256(Path("maps/0.map.dcm"))
    written = pydicom.dcmread("maps/0.map.dcm")
    assert [segment.SegmentLabel for segment in written.SegmentSequence] == CLASSES
    (algorithm,) = written.SegmentSequence[0].SegmentationAlgorithmIdentificationSequence
    digest = file_sha256(Path("model.safetensors"))
    assert (algorithm.AlgorithmName, algorithm.AlgorithmVersion) == ("model.safetensors", digest)
    heatmap = read_heatmap("maps/0.map.csv")
    for number, label in enumerate(CLASSES):  # 32 x 32 pixels of 8, cells of 4 x 4 of them
        expected = np.nan_to_num(heatmap.raster(f"model:{label}")).repeat(4, 0).repeat(4, 1)
        frame = written.pixel_array[number, :32, :32]
        np.testing.assert_allclose(
            frame, np.where(expected > 0, np.maximum(255 * expected, 1), 0), atol=0.501
        )
    assert _map("s/0.dcm", "--dicom") == 0
    assert _files() == files
    assert _map("s/0.dcm") == 0
    assert _files() == bare


def test_a_slide_that_is_not_in_dicom_is_named_and_stops_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert _map("plain.tif", "s/0.dcm", "--dicom") == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert "1 of 2 failed, the others are mapped: slide plain.tif: no DICOM slide" in line
    assert "Fix: leave out --dicom" in line
    assert set(_files()) >= {"0.map.dcm", "0.map.csv"}
    assert not [name for name in _files() if name.startswith("plain")]


def test_a_file_in_the_place_of_the_map_stays(capsys: pytest.CaptureFixture[str]) -> None:
    Path("maps").mkdir()
    Path("maps/0.map.dcm").write_text("mine")
    assert _map("s/0.dcm", "--dicom") == 1
    assert "0.map.dcm: exists, and this command did not write it" in capsys.readouterr().err
    assert _files() == {"0.map.dcm": b"mine"}
