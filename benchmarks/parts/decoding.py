"""Slides decoded by the GPU and by the CPU: tiles, maps and pretraining, with all cores and with four.

Each number of cores is a process of its own, since the libraries' threads count the cores when they start. On a CPU the
GPU's decoder is absent, and both ways are the CPU's: a rehearsal.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from heatmap import CLASSES, forward, patch_models
from maps import WORLD_PX
from read_triples import make_slide, write_jpeg
from stepping import SLIDE_PX, Size, Stepping, pretext_stepping
from steps import LIMIT_IS
from turns import LIMIT, OURS, PEER, DeviceClock, asked, is_time_up, row_of, take_turns

from histo_monai.data.decoding.choice import VARIABLE, tile_store
from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, make_world
from histo_monai.data.simulated.tissue.render import render_strips
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.slides import open_slide
from histo_monai.slides.reader import level_tiles
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.device import precision
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.utils.process.threads import decode_with
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan

FEW_CORES = 4
CORES, FOLDER = "HISTO_MONAI_BENCHMARK_CORES", "HISTO_MONAI_BENCHMARK_FOLDER"
MOST_TILES = 4096


def main() -> None:
    keep_freed_memory()
    options = asked()
    if CORES in os.environ:
        options.workers = max(int(os.environ[CORES]) - 2, 0)
        decode_with(int(os.environ[CORES]))
        rows(Path(os.environ[FOLDER]), torch.device(options.device), options, int(os.environ[CORES]))
        return
    with tempfile.TemporaryDirectory() as folder:
        world, _ = make_world(SlideSpec("benchmark", 3, "macro", False, WORLD_PX, 0.25))
        image = np.concatenate(list(render_strips(world, WORLD_PX, WORLD_PX)))
        write_jpeg(Path(folder) / "map.tif", image, 2 if options.quick else 16)
        make_slide(Path(folder) / "triples.tif", SLIDE_PX)
        cores = sorted(os.sched_getaffinity(0))
        for some in (cores, cores[:FEW_CORES])[: 2 if len(cores) > FEW_CORES else 1]:
            command = ["taskset", "-c", ",".join(map(str, some)), sys.executable, *sys.argv]
            environment = os.environ | {CORES: str(len(some)), FOLDER: folder}
            subprocess.run(command, env=environment, check=True)


def rows(folder: Path, device: torch.device, options: argparse.Namespace, cores: int) -> None:
    """All rows with a number of cores."""
    tile_row(folder / "map.tif", device, options, cores)
    map_row(folder / "map.tif", device, options, cores)
    for name in ("rsp", "moco"):
        if not is_time_up(f"step of {name}, {cores} cores"):
            step_row(folder / "triples.tif", name, device, options, cores)


def decoders_on(device: torch.device) -> dict[str, str]:
    """Values of `HISTO_MONAI_DECODER` for the two ways."""
    return {OURS: "gpu" if device.type == "cuda" else "cpu", PEER: "cpu"}


def tile_row(path: Path, device: torch.device, options: argparse.Namespace, cores: int) -> None:
    """Tiles of a slide, decoded and left on the device, against the CPU's threads; each tile once."""
    store = tile_store(device)
    with open_slide(path) as slide:
        tiles = level_tiles(slide, 0)
        if tiles is None:
            raise AssertionError("a TIFF has tiles")
        places = [divmod(number, tiles.page.grid_yx[1]) for number in range(len(tiles.page.counts))]
        places = places[:MOST_TILES]

        def by_device() -> None:
            if store is None:
                by_cpu()
                return
            for first in range(0, len(places), 512):
                some = places[first : first + 512]
                store.codec.decode(tiles.page, tiles.backend.encoded(0, some))
            torch.cuda.synchronize(device)

        def by_cpu() -> None:
            list(tiles.backend._decode_tiles(0, places))

        times = take_turns({OURS: by_device, PEER: by_cpu}, 1 if options.quick else 3, time.perf_counter)
    row_of(
        f"tiles of 256 px decoded, {cores} cores", times, clock="wall", peer_is="cuCIM in a thread a core",
        per=len(places), unit="tile",
    ).write()  # fmt: skip


def map_row(path: Path, device: torch.device, options: argparse.Namespace, cores: int) -> None:
    """A map of a slide of 32,768² px at its finest level, 256 px side by side; `--quick`: smaller."""
    times_px, patch_px, mpp, batch_size = (2, 64, 1.0, 64) if options.quick else (16, 256, 0.25, 256)
    plan = MapPlan(patch_px, mpp, patch_px * mpp, TissueRules(), 0.5, batch_size)
    torch.manual_seed(0)
    models = patch_models(TaskModel(build_encoder(), "linear", len(CLASSES)).eval(), device)
    ready = torch.rand(batch_size, 3, patch_px, patch_px, device=device)
    ready = ready.contiguous(memory_format=torch.channels_last)
    decoders = decoders_on(device)
    maps = {}

    def mapped(way: str) -> None:
        os.environ[VARIABLE] = decoders[way]
        maps[way] = map_slide(path, None, models, plan, device=device, workers=options.workers)

    mapped(PEER)
    num = len(maps[PEER].cells)

    def alone() -> None:
        with precision(device):
            for _ in range(-(-num // batch_size)):
                forward(models.network, ready, batch_size)

    clock = DeviceClock(device)
    ways = {OURS: lambda: mapped(OURS), PEER: lambda: mapped(PEER), LIMIT: alone}
    times = take_turns(ways, 1 if options.quick else 3, clock)
    off = max(
        float(np.abs(maps[OURS].values[name] - maps[PEER].values[name]).max()) for name in maps[PEER].values
    )
    row_of(
        f"map of {WORLD_PX * times_px}² px, {num} patches of {patch_px} px, {cores} cores; off by {off:.1e}",
        times, clock=clock.name, peer_is="the CPU decodes", limit_is="the network alone on a batch that is ready",
        per=num, unit="patch", counts={"largest_difference": off},
    ).write()  # fmt: skip


def timed_steps(
    step: Stepping, way: str, num: int, rounds: int, clock: DeviceClock
) -> dict[str, list[float]]:
    """Seconds of a step by this way and of a step on a batch that is ready; a turn is `num` steps."""
    ways = {
        way: lambda: [step.whole() for _ in range(num)],
        LIMIT: lambda: [step.alone() for _ in range(num)],
    }
    found = take_turns(ways, rounds, clock, {way: step.drain})
    return {key: [seconds / num for seconds in values] for key, values in found.items()}


def step_row(path: Path, name: str, device: torch.device, options: argparse.Namespace, cores: int) -> None:
    """A step of a pretext from slides, with both decoders, against the step on a batch that is ready."""
    patch_px, num, rounds = (32, 4, 1) if options.quick else (256, 64, 3)
    times: dict[str, list[float]] = {}
    for way, decoder in decoders_on(device).items():
        os.environ[VARIABLE] = decoder
        step = pretext_stepping(path, name, Size(patch_px, num, device, options.workers))
        found = timed_steps(step, way, max(1, 2 * options.workers), rounds, DeviceClock(device))
        times |= found
    row_of(
        f"step of {name}, {patch_px} px, {num} samples, {cores} cores", times, clock=DeviceClock(device).name,
        peer_is=f"{options.workers} processes decode", limit_is=LIMIT_IS, per=num, unit="sample",
    ).write()  # fmt: skip


if __name__ == "__main__":
    main()
