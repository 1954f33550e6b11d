"""Which waits for which: patches that are read, or the network that learns from them?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from histo_monai.checkup import samples
from histo_monai.checkup.finding import Finding
from histo_monai.engines.device import in_memory_order, precision, to_device
from histo_monai.environment import Environment, read_environment
from histo_monai.networks.encoder import build_encoder
from histo_monai.networks.task_model import TaskModel
from histo_monai.params import Params
from histo_monai.settings.recipe import LABEL_KINDS
from histo_monai.slides import Box, open_slide

SECONDS = 1.0
_MAX_BATCH = {"cpu": 4, "cuda": 64}  # on a CPU an image costs the same in a small batch


def loader_against_model(params: Params | None) -> Iterator[Finding]:
    """Patches a second of one reading process, and images a second of a training step, each for a second."""
    if params is None:
        return
    environment = read_environment()
    environment.use_cpus()
    reading = patches_per_second(params.patch_px)
    learning = images_per_second(params, environment)
    processes = max(1, environment.workers)
    message = (
        f"{reading:.0f} patches/s are read by a process, {processes} of them; the network learns from {learning:.0f} "
        f"images/s of {params.patch_px} px on {environment.device}"
    )
    if reading * processes < learning:
        yield Finding(
            "WARN",
            "loader",
            f"{message}: reading is the bottleneck",
            "more HISTO_MONAI_WORKERS, a faster disk",
        )
    else:
        yield Finding("PASS", "loader", f"{message}: the network is the bottleneck")


def patches_per_second(patch_px: int) -> float:
    """Of patches at the resolution of the slide, JPEG, decoded anew each time."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "slide.tif")
        samples.write_sample(path, samples.CODECS["JPEG"])
        places = np.random.default_rng(0).integers(0, samples.SIDE_PX, (64, 2))
        boxes = [Box((int(y), int(x)), patch_px, samples.MPP) for y, x in places]
        with open_slide(path) as slide:
            slide.read(boxes[0])
            return _rate(lambda: slide.read_many(boxes[:8]), 8)


def images_per_second(params: Params, environment: Environment) -> float:
    """Of steps of a fine-tuning: forward, backward, update."""
    most = max(params.finetune_section(kind).batch_size for kind in LABEL_KINDS)
    batch = min(_MAX_BATCH[environment.device.type], most)
    encoder = build_encoder(params.encoder.name, params.patch_px)
    model = TaskModel(encoder, "linear", 2).train()
    to_device(model, environment.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    shape = (batch, 3, params.patch_px, params.patch_px)
    images = in_memory_order(torch.rand(*shape, device=environment.device), environment.device)

    def step() -> None:
        optimizer.zero_grad()
        with precision(environment.device):
            outputs = model(images)
        outputs.square().mean().backward()
        optimizer.step()
        if environment.device.type == "cuda":
            torch.cuda.synchronize()

    step()
    return _rate(step, batch)


def _rate(work: Callable[[], object], num: int) -> float:
    start, done = time.perf_counter(), 0
    while (seconds := time.perf_counter() - start) < SECONDS:
        work()
        done += num
    return done / seconds
