"""Features of a slide against patches that are read one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_backbone import folded
from histo_monai.models.task_model import load_encoder
from histo_monai.slides import Box, open_slide
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.inference.features import FeatureWork, sight_of, slide_features
from histo_monai.wsi.inference.jobs import SlideJob
from histo_monai.wsi.inference.models import MapPlan
from histo_monai.wsi.inference.patch_features import FeatureFile
from histo_monai.wsi.inference.slides import over_slides
from histo_monai.wsi.inference.statistics import write_adapted
from histo_monai.wsi.inference.stream import SlidePatches
from tests.hostile.project import slide_pixels, write_slide
from tests.ranks import fork_ranks

CPU = torch.device("cpu")
PLAN = MapPlan(
    patch_px=32, mpp=1.0, stride_um=32.0, tissue=TissueRules(8.0), min_tissue_fraction=0.5, batch_size=50
)


@pytest.fixture
def encoder_file(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    encoder = build_encoder(img_px=32)
    about = encoder.description(architecture="", head="linear", patch_px=32, mpps=[1.0, 2.0])
    path = tmp_path / "encoder.safetensors"
    state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    save_model(path, state, {"kind": "encoder", "method": "", "source": "", "corpus": "", **about})
    return path


def test_they_are_what_the_encoder_gives_of_each_patch_alone(tmp_path: Path, encoder_file: Path) -> None:
    write_slide(tmp_path / "a.tif", 0, 0.5)
    encoder, description = load_encoder(encoder_file)
    encoder.eval()
    found = slide_features(tmp_path / "a.tif", None, folded(encoder), PLAN, device=CPU, workers=0)
    assert len(found.cells) > 20
    assert sight_of(description) == (32, 1.0)
    with open_slide(tmp_path / "a.tif", None) as slide, torch.inference_mode():
        for cell, features, (x, y) in zip(found.cells, found.features, found.corners_xy, strict=True):
            center = (cell + 0.5) * 64  # 32 µm in pixels of 0.5 µm
            patch = slide.read(Box((float(center[0]), float(center[1])), 32, 1.0))
            alone = encoder(torch.from_numpy(np.ascontiguousarray(patch))[None].float() / 255)[0]
            np.testing.assert_allclose(features, alone.numpy(), rtol=2e-4, atol=2e-4)
            assert (x, y) == tuple(center[::-1] - 32)


def test_an_encoder_takes_the_statistics_of_the_tissue_that_it_is_shown(
    tmp_path: Path, encoder_file: Path
) -> None:
    """By hand: all patches of two slides in one batch, and a forward pass whose statistics replace the old."""
    jobs = []
    for number in range(2):
        write_slide(tmp_path / f"{number}.tif", number, 0.5)
        jobs.append(SlideJob(str(number), tmp_path / f"{number}.tif", None, {}))
    patches = [
        torch.cat([pixels for pixels, _ in found.batches(CPU, 0)])
        for job in jobs
        for found in [SlidePatches.find(job.path, None, PLAN)]
    ]
    together = torch.cat(patches)
    expected, description = load_encoder(encoder_file)
    for module in expected.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    expected.train()
    with torch.no_grad():
        expected(together)
    target = tmp_path / "adapted" / "encoder.safetensors"
    plan = replace(PLAN, batch_size=len(together))
    write_adapted(CPU, encoder_file, target, jobs, plan, 10_000, 0)
    adapted, about = load_encoder(target)
    assert about["batchnorm"] == {"num_patches": len(together), "num_slides": 2, "mpp": 1.0}
    assert about["mpps"] == description["mpps"]
    for name, tensor in expected.state_dict().items():
        if "num_batches" not in name:
            torch.testing.assert_close(adapted.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)
    few = tmp_path / "few" / "encoder.safetensors"
    write_adapted(CPU, encoder_file, few, jobs, PLAN, 20, 0)
    assert load_encoder(few)[1]["batchnorm"]["num_patches"] == 20
    first = few.read_bytes()
    write_adapted(CPU, encoder_file, few, jobs, PLAN, 20, 0)
    assert few.read_bytes() == first


def test_without_tissue_the_statistics_stay(
    tmp_path: Path, encoder_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "adapted" / "encoder.safetensors"
    write_adapted(CPU, encoder_file, target, [], PLAN, 20, 0)
    assert target.read_bytes() == encoder_file.read_bytes()
    assert load_encoder(target)[1]["batchnorm"]["num_patches"] == 0
    assert "batch-norm statistics unchanged" in caplog.text


def test_one_process_or_two_leave_the_same_files_and_look_once(
    tmp_path: Path, encoder_file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_ranks(monkeypatch)
    for number in range(3):
        write_slide(tmp_path / f"{number}.tif", number)
    jobs = [SlideJob(str(i), tmp_path / f"{i}.tif", None, {"encoder": encoder_file}) for i in range(3)]
    for ranks in (1, 2):
        over_slides(jobs, FeatureWork(PLAN), tmp_path / f"by {ranks}", device=CPU, workers=0, ranks=ranks)
    for number in range(3):
        one, two = (tmp_path / f"by {ranks}/{number}.h5" for ranks in (1, 2))
        with FeatureFile(one) as first, FeatureFile(two) as second:
            np.testing.assert_allclose(first.features(), second.features(), atol=1e-5)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "by 1").iterdir()}
    pixels = slide_pixels(2)
    pixels[40:200, 40:200] = 120
    write_slide(tmp_path / "2.tif", pixels=pixels)
    with caplog.at_level("INFO"):
        over_slides(jobs, FeatureWork(PLAN), tmp_path / "by 1", device=CPU, workers=0, ranks=1)
    changed = {path.name for path, time in before.items() if path.stat().st_mtime_ns != time}
    assert changed == {"2.h5"}
    assert "2.tif processed again: the slide's content differs" in caplog.text
    work = FeatureWork(replace(PLAN, stride_um=16.0))
    with caplog.at_level("INFO"):
        over_slides(jobs[:1], work, tmp_path / "by 1", device=CPU, workers=0, ranks=1)
    assert "stride_um was 32.0, now 16.0" in caplog.text
