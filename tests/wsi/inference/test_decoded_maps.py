"""Maps and features of a slide that the device decodes are those of the CPU's decoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_backbone import SharedBackbone
from histo_monai.models.task_model import TaskModel
from histo_monai.wsi.inference import stream
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, PatchModels, values_of
from tests.data.decoding.codecs import store_on
from tests.devices import ComputeIn

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
    plan = MapPlan(32, mpp, 32 * mpp, 16.0, 0.5, 10)
    path, models, store = real_slides / "oesophagus-eosinophilic.tif", _models(device), store_on(device)
    maps = []
    for found in (None, store):
        monkeypatch.setattr(stream, "tile_store", lambda device, found=found: found)
        maps.append(map_slide(path, None, models, plan, device=device, workers=0))
    by_cpu, by_device = maps
    assert len(by_cpu.cells) > plan.batch_size
    np.testing.assert_array_equal(by_device.cells, by_cpu.cells)
    np.testing.assert_allclose(by_device.values["model"], by_cpu.values["model"], atol=1e-3)
    assert store.most_tiles((256, 256)) > 0
