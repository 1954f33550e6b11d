"""What mapping a slide costs beside the bare network, and what larger fields would save, on a simulated slide.

    python benchmarks/heatmap.py [--patch-px 256 --mpp 0.5 --batch-size 32] [--rounds 3] [--large]

1. `map_slide` from the file to the map, against the network alone on the same patches, ready in memory as the tensors
   it takes, in the same batches; against the network as it was trained (batch-norms not folded, channels first); and
   against patch by patch, one OpenSlide `read_region` and one pass of the network per patch (some patches, per patch).
2. One pass of the trunk over a whole field and mean pooling over each patch's window, against patch by patch: how far
   apart the probabilities are, and the speed. The two differ because every convolution pads a patch with zeros at its
   border, where the field goes on. What both have exactly in common is computed from the layers.
3. --large: peak resident memory while a slide of 20,000 x 20,000 px is mapped (one 2048-px world, repeated).

Ways take turns; medians, and their ratio. Times are CPU time of one core, what they take on an idle machine; with
--threads or --workers, wall time. The model learns for a minute to tell the slide's tumor from the rest, so that its
probabilities mean something.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import openslide
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from histo_monai.data.simulated.datasets.camelyon16 import SlideSpec, lesion_mask, make_world
from histo_monai.data.simulated.raster.pyramid import write_pyramid
from histo_monai.data.simulated.tissue.render import render_strips
from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_backbone import SharedBackbone
from histo_monai.models.task_model import TaskModel
from histo_monai.slides import Box, open_slide, tissue_fraction
from histo_monai.slides.tiles.blocks import CellBlocks
from histo_monai.slides.tiles.cells import tissue_cells
from histo_monai.slides.tiles.grid import Grid
from histo_monai.slides.tiles.usable import TissueRules
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from histo_monai.wsi.inference.heatmaps import map_slide
from histo_monai.wsi.inference.models import MapPlan, PatchModels, values_of

WORLD_PX, LARGE_PX = 2048, 20_000
NUM_SINGLE = 100
CPU = torch.device("cpu")
CLASSES = ["normal", "tumor"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patch-px", type=int, default=64)
    parser.add_argument(
        "--mpp", type=float, default=1.0, help="of the patches and of the slide's finest level"
    )
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="reading processes")
    parser.add_argument("--stride-um", type=float, help="half a patch; with --large, a patch")
    parser.add_argument("--steps", type=int, default=60, help="training steps of 16 patches")
    parser.add_argument("--large", action="store_true", help="memory instead of time")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    cv2.setNumThreads(arguments.threads)
    side_um = arguments.patch_px * arguments.mpp
    stride_um = arguments.stride_um or (side_um if arguments.large else side_um / 2)
    settings = MapPlan(
        arguments.patch_px, arguments.mpp, stride_um, TissueRules(8.0), 0.5, arguments.batch_size
    )
    spec = SlideSpec("benchmark", 3, "macro", False, WORLD_PX, arguments.mpp)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slide.tif"
        if arguments.large:
            write_large(path, spec)
            report_memory(path, settings, arguments.workers, arguments.threads)
            return
        world, _ = make_world(spec)
        write_pyramid(path, render_strips(world, WORLD_PX, WORLD_PX), (WORLD_PX, WORLD_PX), mpp=spec.mpp)
        grid, cells, patches = read_all(path, settings)
        model = train(spec, grid, cells, patches, arguments.steps)
        report_times(path, settings, model, patches, arguments.rounds, arguments.workers)
        report_fields(path, settings, model, grid, cells, arguments.rounds)


def read_all(path: Path, settings: MapPlan) -> tuple[Grid, NDArray[np.int64], torch.Tensor]:
    """Every patch of the slide, (n, 3, P, P), float32, 0..1, in the order of the cells."""
    with open_slide(path) as slide:
        grid = Grid(settings.stride_um, slide.mpp, slide.size_yx)
        cells, _ = tissue_cells(slide, grid, settings.tissue, settings.min_tissue_fraction)
        blocks = CellBlocks(slide, grid, cells, patch_px=settings.patch_px, mpp=settings.mpp)
        patches = torch.empty(len(cells), 3, settings.patch_px, settings.patch_px)
        for pixels, numbers in blocks:
            patches[torch.from_numpy(numbers)] = torch.from_numpy(pixels).float() / 255
    return grid, cells, patches


def train(
    spec: SlideSpec, grid: Grid, cells: NDArray[np.int64], patches: torch.Tensor, num_steps: int
) -> TaskModel:
    """A model that has learned from the slide it will map: good enough to have opinions."""
    is_tumor = tissue_fraction(lesion_mask(spec, 4), grid.centers_yx(cells) / 4, grid.downsample / 4) > 0.5
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", len(CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(num_steps):
        rows = np.concatenate([rng.choice(np.flatnonzero(is_tumor == side), 8) for side in (False, True)])
        loss = F.cross_entropy(model(patches[rows]), torch.from_numpy(is_tumor[rows].astype(np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(
        f"{is_tumor.mean():.0%} of {len(cells)} cells are tumor; training loss at the end {loss.item():.2f}"
    )
    return model.eval()


def report_times(
    path: Path, settings: MapPlan, model: TaskModel, patches: torch.Tensor, num_rounds: int, workers: int
) -> None:
    """Part 1."""
    models = patch_models(model)
    last_channels = patches.contiguous(memory_format=torch.channels_last)
    with open_slide(path) as slide:
        grid = Grid(settings.stride_um, slide.mpp, slide.size_yx)
        cells, _ = tissue_cells(slide, grid, settings.tissue, settings.min_tissue_fraction)
    some = grid.centers_yx(cells)[np.linspace(0, len(cells) - 1, NUM_SINGLE).astype(int)]
    ways: dict[str, Callable[[], Any]] = {
        "map_slide": lambda: map_slide(path, None, models, settings, device=CPU, workers=workers),
        "bare network": lambda: forward(models.network, last_channels, settings.batch_size),
        "as trained": lambda: forward(model, patches, settings.batch_size),
        "patch by patch": lambda: patch_by_patch(path, settings, model, some),
    }
    clock = time.process_time if torch.get_num_threads() == 1 and not workers else time.perf_counter
    times = take_turns(ways, num_rounds, clock)
    num = {name: len(patches) for name in ways} | {"patch by patch": len(some)}
    per_patch = {name: statistics.median(seconds) / num[name] for name, seconds in times.items()}
    print(
        f"{settings.patch_px} px at {settings.mpp:g} µm/px, stride {settings.stride_um:g} µm, {len(patches)} patches, "
        f"batches of {settings.batch_size}, {torch.get_num_threads()} threads, {workers} reading processes"
    )
    for name, seconds in per_patch.items():
        spread = " to ".join(f"{one(times[name]) / num[name] * 1e3:.2f}" for one in (min, max))
        print(f"  {name:<15} {seconds * 1e3:6.2f} ms a patch ({spread}), {1 / seconds:.0f} patches/s")
    print(
        f"  map_slide / bare network    {per_patch['map_slide'] / per_patch['bare network']:.3f} (at most 1.20)"
    )
    print(f"  as trained / bare network   {per_patch['as trained'] / per_patch['bare network']:.2f}")
    print(f"  patch by patch / map_slide  {per_patch['patch by patch'] / per_patch['map_slide']:.2f}")
    with torch.inference_mode():
        folded, trained = models.network(patches[:256])["model"].softmax(1), model(patches[:256]).softmax(1)
    print(f"  folding changes probabilities by at most {float((folded - trained).abs().max()):.1e}")


def patch_models(model: TaskModel, device: torch.device = CPU) -> PatchModels:
    """The model as `load_models` prepares it."""
    network = SharedBackbone({"model": model}).to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
    return PatchModels(("model",), network, values_of(CLASSES, ("tumor",)), ("tumor",))


def forward(network: Callable[[torch.Tensor], Any], patches: torch.Tensor, batch_size: int) -> None:
    with torch.inference_mode():
        for batch in patches.split(batch_size):
            network(batch)


def patch_by_patch(path: Path, settings: MapPlan, model: TaskModel, centers: NDArray[np.float64]) -> None:
    """The slide's finest level has the resolution of the patches: no resampling to do."""
    slide = openslide.OpenSlide(str(path))
    side = settings.patch_px
    with torch.inference_mode():
        for y, x in (centers - side / 2).astype(int).tolist():
            pixels = np.asarray(slide.read_region((x, y), 0, (side, side)).convert("RGB"))
            model(torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None].float() / 255)


def take_turns(
    ways: dict[str, Callable[[], Any]], num_rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Seconds of each way, one number a round; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(num_rounds + 1):
        for name, way in ways.items():
            start = clock()
            way()
            if number:
                times[name].append(clock() - start)
    return times


def report_fields(
    path: Path, settings: MapPlan, model: TaskModel, grid: Grid, cells: NDArray[np.int64], num_rounds: int
) -> None:
    """Part 2, on the square of cells around the middle of the tissue; strides are multiples of the trunk's 32 px."""
    models = patch_models(model)
    stride_px, side_px = round(settings.stride_um / settings.mpp), settings.patch_px
    num = 1536 // stride_px
    first = np.maximum(0, np.median(cells, axis=0).astype(int) - num // 2)
    center = (first + num / 2) * grid.downsample
    field_px = (num - 1) * stride_px + side_px
    with open_slide(path) as slide:
        box = Box((float(center[0]), float(center[1])), field_px, settings.mpp)
        field = torch.from_numpy(slide.read(box))[None].float() / 255
    windows = field[0].unfold(1, side_px, stride_px).unfold(2, side_px, stride_px)
    patches = windows.permute(1, 2, 0, 3, 4).flatten(0, 1).contiguous(memory_format=torch.channels_last)
    network = models.network
    assert isinstance(network, SharedBackbone)
    field = field.contiguous(memory_format=torch.channels_last)

    def whole() -> torch.Tensor:
        with torch.inference_mode():
            return in_one_pass(network, field, side_px // 32, stride_px // 32)

    def single() -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([network(batch)["model"] for batch in patches.split(settings.batch_size)])

    with torch.inference_mode():  # A field of one patch is that patch.
        torch.testing.assert_close(in_one_pass(network, patches[:1], side_px // 32, 1), single()[:1])
    times = take_turns({"field": whole, "patches": single}, num_rounds, time.process_time)
    ratio = statistics.median(times["patches"]) / statistics.median(times["field"])
    difference = (models.values(whole()) - models.values(single())).abs()
    print(
        f"one pass over {field_px} x {field_px} px against its {len(patches)} patches: {ratio:.1f} x as fast;"
    )
    print(
        f"  probabilities differ by {float(difference.mean()):.3f} on average, {float(difference.max()):.3f} at most"
    )
    changed = ((models.values(whole()) > 0.5) != (models.values(single()) > 0.5)).float().mean()
    print(f"  {float(changed):.1%} of the cells change sides of 0.5")
    common, saved = exactly_common(side_px, stride_px)
    print(
        f"  exactly alike are {common:.0%} of a patch's multiplications; sharing those alone saves {saved:.0%}"
    )


def in_one_pass(network: SharedBackbone, field: torch.Tensor, window: int, step: int) -> torch.Tensor:
    """Outputs (n, K) of all windows of a field (1, 3, H, W), row after row; window and step in the trunk's 32 px."""
    encoder: Any = network.backbones[0]
    whole, encoder.trunk.avgpool = encoder.trunk.avgpool, nn.AvgPool2d(window, step)
    features = encoder(field).unflatten(1, (encoder.num_features, -1))[0].T
    encoder.trunk.avgpool = whole
    return network.heads[0](features)


def exactly_common(side_px: int, stride_px: int) -> tuple[float, float]:
    """Parts of a patch's multiplications that do not see the padding, and that sharing them with neighbors saves.

    Means over each layer's kernel of a patch of ones fall below 1 where the zeros at the border reach, and only there.
    All else is computed once for all patches that hold it, (P / stride)^2 of them away from the edge of the tissue.
    """
    trunk: Any = TaskModel(build_encoder(), "linear", 2).encoder.trunk
    shared = total = 0.0

    def count(convolution: nn.Module, inside: torch.Tensor) -> torch.Tensor:
        nonlocal shared, total
        assert isinstance(convolution, nn.Conv2d)
        size, step = convolution.kernel_size[0], convolution.stride[0]
        clean = (F.avg_pool2d(inside, size, step, size // 2) > 1 - 1e-6).float()
        work = convolution.weight.numel()
        total += work * clean.numel()
        shared += work * float(clean.sum())
        return clean

    inside = count(trunk.conv1, torch.ones(1, 1, side_px, side_px))
    inside = (F.avg_pool2d(inside, 3, 2, 1) > 1 - 1e-6).float()
    for block in itertools.chain(trunk.layer1, trunk.layer2, trunk.layer3, trunk.layer4):
        beside = count(block.downsample[0], inside) if block.downsample is not None else inside
        inside = count(block.conv2, count(block.conv1, inside)) * beside
    part = shared / total
    return part, part * (1 - (stride_px / side_px) ** 2)


def write_large(path: Path, spec: SlideSpec) -> None:
    """A slide of 20,000 x 20,000 px: the pixels of one world, repeated; written strip by strip."""
    world, _ = make_world(spec)
    strips = list(render_strips(world, WORLD_PX, WORLD_PX))
    times = -(-LARGE_PX // WORLD_PX)

    def repeated() -> Iterator[NDArray[np.uint8]]:
        left = LARGE_PX
        for strip in itertools.cycle(strips):
            yield np.tile(strip, (1, times, 1))[:left, :LARGE_PX]
            left -= len(strip)
            if left <= 0:
                return

    write_pyramid(path, repeated(), (LARGE_PX, LARGE_PX), mpp=spec.mpp)


def report_memory(path: Path, settings: MapPlan, workers: int, threads: int) -> None:
    """Part 3, in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        weighed = pool.submit(map_and_weigh, path, settings, workers, threads).result()
    num, seconds, before, own, largest_worker = weighed
    print(
        f"{LARGE_PX} x {LARGE_PX} px, {num} patches of {settings.patch_px} px, {seconds:.0f} s, {workers} workers:"
    )
    print(f"  peak of resident memory {own:.2f} GiB ({before:.2f} before the slide was opened)")
    if workers:
        print(
            f"  largest reading process {largest_worker:.2f} GiB, of which part is memory of the parent process"
        )


def map_and_weigh(
    path: Path, settings: MapPlan, workers: int, threads: int
) -> tuple[int, float, float, float, float]:
    torch.set_num_threads(threads)
    models = patch_models(TaskModel(build_encoder(), "linear", len(CLASSES)))
    before, start = peak_gib(), time.perf_counter()
    heatmap: Heatmap = map_slide(path, None, models, settings, device=CPU, workers=workers)
    seconds = time.perf_counter() - start
    largest_worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return len(heatmap.cells), seconds, before, peak_gib(), largest_worker


def peak_gib() -> float:
    """Peak of resident memory of this process, as Linux tells it (`ru_maxrss` would begin with the parent's)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (kib,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(kib) / 2**20


if __name__ == "__main__":
    main()
