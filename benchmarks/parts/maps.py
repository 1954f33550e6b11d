"""Maps of a simulated slide, from the file to the map: on one core; with `--paper` of a gigapixel slide on a device."""

from __future__ import annotations

import tempfile
from pathlib import Path

import cv2
import numpy as np
import torch
from heatmap import CLASSES, CPU, forward, patch_by_patch, patch_models, read_all
from read_triples import write_jpeg
from turns import LIMIT, OURS, PEER, DeviceClock, asked, is_quick, row_of, take_turns

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, make_world
from histo_monai.data.simulated.raster.pyramid import write_pyramid
from histo_monai.data.simulated.tissue.render import render_strips
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.training.device import precision
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan

NUM_SINGLE = 100
WORLD_PX = 2048


def main() -> None:
    keep_freed_memory()
    if asked().paper:
        gigapixel_row()
        return
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    rounds = 1 if is_quick() else 5
    for patch_px, mpp, batch_size, side_px in ((64, 1.0, 256, 2048), (256, 0.5, 32, 2048)):
        if is_quick() and patch_px == 256:
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "slide.tif"
            world, _ = make_world(SlideSpec("benchmark", 3, "macro", False, side_px, mpp))
            write_pyramid(path, render_strips(world, side_px, side_px), (side_px, side_px), mpp=mpp)
            map_row(
                path, MapPlan(patch_px, mpp, patch_px * mpp / 2, TissueRules(8.0), 0.5, batch_size), rounds
            )


def map_row(path: Path, plan: MapPlan, rounds: int) -> None:
    """Of one slide, with a network that has learned nothing: it takes as long."""
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", len(CLASSES)).eval()
    models = patch_models(model)
    grid, cells, patches = read_all(path, plan)
    ready = patches.contiguous(memory_format=torch.channels_last)
    some = grid.centers_yx(cells)[np.linspace(0, len(cells) - 1, NUM_SINGLE).astype(int)]
    times = take_turns(
        {
            OURS: lambda: map_slide(path, None, models, plan, device=CPU, workers=0),
            PEER: lambda: patch_by_patch(path, plan, model, some),
            LIMIT: lambda: forward(models.network, ready, plan.batch_size),
        },
        rounds,
    )
    times[PEER] = [seconds * len(cells) / NUM_SINGLE for seconds in times[PEER]]
    row_of(
        f"map of a slide, {plan.patch_px} px, half overlap", times,
        peer_is="one read_region of OpenSlide and one pass a patch", limit_is="the folded network on ready patches",
        per=len(cells), unit="patch",
    ).write()  # fmt: skip


def gigapixel_row() -> None:
    """Of a slide of 32,768² px, 256 px at 0.25 µm/px side by side as params/paper.yaml has it; `--quick`: smaller.

    The limit is the network on a batch that is on the device, as often as the map has batches.
    """
    options, device = asked(), torch.device(asked().device)
    times_px, patch_px, mpp, batch_size = (2, 64, 1.0, 64) if options.quick else (16, 256, 0.25, 256)
    with tempfile.TemporaryDirectory() as folder:
        world, _ = make_world(SlideSpec("benchmark", 3, "macro", False, WORLD_PX, 0.25))
        image = np.concatenate(list(render_strips(world, WORLD_PX, WORLD_PX)))
        path = write_jpeg(Path(folder) / "slide.tif", image, times_px)
        plan = MapPlan(patch_px, mpp, patch_px * mpp, TissueRules(), 0.5, batch_size)
        torch.manual_seed(0)
        models = patch_models(TaskModel(build_encoder(), "linear", len(CLASSES)).eval(), device)
        num = len(map_slide(path, None, models, plan, device=device, workers=options.workers).cells)
        ready = torch.rand(batch_size, 3, patch_px, patch_px, device=device)
        ready = ready.contiguous(memory_format=torch.channels_last)

        def alone() -> None:
            with precision(device):
                for _ in range(-(-num // batch_size)):
                    forward(models.network, ready, batch_size)

        ways = {
            OURS: lambda: map_slide(path, None, models, plan, device=device, workers=options.workers),
            LIMIT: alone,
        }
        clock = DeviceClock(device)
        times = take_turns(ways, 1 if options.quick else 3, clock)
        row_of(
            f"map of a slide of {WORLD_PX * times_px}² px, {num} patches of {patch_px} px", times,
            clock=clock.name,
            limit_is="the folded network on a batch that is ready", per=num, unit="patch",
            counts={"file_bytes": float(path.stat().st_size), "patches": float(num)},
        ).write()  # fmt: skip


if __name__ == "__main__":
    main()
