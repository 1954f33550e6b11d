"""Maps and features of a slide that the device decodes are those of the CPU's decoder."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_backbone import SharedBackbone
from histo_monai.models.task_model import TaskModel
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.inference import stream
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, PatchModels, values_of
from tests.data.decoding.codecs import store_on
from tests.devices import ComputeIn
from tests.slides.drawn_tiff import JPEG, DrawnPage, write_tiff

CPU = torch.device("cpu")
CLASSES = ("normal", "tumor")


def _models(device: torch.device) -> PatchModels:
    torch.manual_seed(0)
    network = SharedBackbone({"model": TaskModel(build_encoder(), "linear", 2).eval()}).to(device)
    return PatchModels(("model",), network, values_of(CLASSES, ("tumor",)), ("tumor",))


@pytest.mark.parametrize("mpp", [2.0, 3.1])
def test_a_map_is_that_of_the_other_decoder(
    real_slides: Path,
    mpp: float,
    device: torch.device,
    compute_in: ComputeIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compute_in(torch.float32)
    plan = MapPlan(32, mpp, 32 * mpp, TissueRules(), 0.5, 10)
    path, models, store = real_slides / "oesophagus-eosinophilic.tif", _models(device), store_on(device)
    maps = []
    for found in (None, store):
        monkeypatch.setattr(stream, "tile_store", lambda device, found=found: found)
        maps.append(map_slide(path, None, models, plan, device=device, workers=0))
    by_cpu, by_device = maps
    assert len(by_cpu.cells) > plan.batch_size
    np.testing.assert_array_equal(by_device.cells, by_cpu.cells)
    np.testing.assert_allclose(by_device.values["model"], by_cpu.values["model"], atol=1e-3)
    pixels = store.pixels((256, 256))
    assert len(store) > 0
    assert pixels.device == device


def test_a_slide_without_tissue_has_no_batch(tmp_path: Path, device: torch.device) -> None:
    path = write_tiff(
        tmp_path / "glass.tif", [DrawnPage(np.full((600, 600, 3), 245, np.uint8), compression=JPEG)]
    )
    patches = stream.SlidePatches.find(path, 0.5, MapPlan(32, 0.5, 16.0, TissueRules(8.0), 0.5, 10))
    assert len(patches.cells) == 0
    assert list(patches._decoded(store_on(device))) == []


def test_the_threads_end_before_the_slide_is_closed(
    real_slides: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = MapPlan(32, 2.0, 64.0, TissueRules(), 0.5, 4)
    patches = stream.SlidePatches.find(real_slides / "oesophagus-eosinophilic.tif", None, plan)
    monkeypatch.setattr(stream, "tile_store", lambda device: store_on(device))
    running = []
    close = type(patches.blocks).close

    def closed(blocks: object) -> None:
        running.append(sum(thread.name.startswith("decoding") for thread in threading.enumerate()))
        close(patches.blocks)

    monkeypatch.setattr(type(patches.blocks), "close", closed)
    batches = patches.batches(device, 0)
    next(batches)
    batches.close()
    assert running == [0]
