"""Where the time of pretraining goes: triples per second of each part alone, and of all together.

    python benchmarks/pretraining.py [--patch-px 256] [--batch-size 64] [--workers 8] [--device cuda]

Run in a project's root after `dvc repro index`. The parts are reading (loader alone), copying and augmenting, and the
network (forward, backward, optimizer) on one batch that stays on the device; "all" is a step of the engine on fresh
batches. "All" can at best be as fast as the slowest part; the last line says how near it comes. Medians; the parts take
turns, and on a GPU every step is waited for.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from histo_monai import artifacts
from histo_monai.engines.pretrain import placed, training_step
from histo_monai.environment import read_environment
from histo_monai.loading.loaders import ConcentricPatches, EpochBatches, patch_loader
from histo_monai.networks.start import EncoderStart
from histo_monai.params import load_params
from histo_monai.pretext.rsp.method import RSP
from histo_monai.pretext.rsp.settings import RSPSettings
from histo_monai.pretext.settings import LookaheadSettings
from histo_monai.randomness import Step
from histo_monai.tables.columns import read_centers, read_surveyed_slides


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patch-px", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=read_environment().workers)
    parser.add_argument("--device", type=torch.device, default=read_environment().device)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--prob", type=float, default=0.5, help="of each augmentation")
    arguments = parser.parse_args()
    device, batch_size = arguments.device, arguments.batch_size
    params = load_params(Path("params.yaml"))
    slides, centers = read_surveyed_slides(artifacts.SLIDES_CSV), read_centers(artifacts.CENTERS_CSV)
    dataset = ConcentricPatches(slides, centers, mpps=params.corpus_section.mpps, patch_px=arguments.patch_px)
    loader = patch_loader(
        dataset,
        EpochBatches(len(dataset), batch_size, seed=0),
        workers=arguments.workers,
        pin=device.type == "cuda",
    )
    rsp = RSP(
        start=EncoderStart(),
        patch_px=arguments.patch_px,
        mpps=params.corpus_section.mpps,
        augmentation_prob=arguments.prob,
        settings=RSPSettings(
            epochs=1,
            batch_size=batch_size,
            lr=0.01,
            momentum=0.9,
            weight_decay=1e-4,
            lookahead=LookaheadSettings(steps=5, slow_step=0.5),
        ),
    )
    network = placed(rsp.network, device)
    optimizer = rsp.optimizer(network)
    batches = endless(loader)
    patches, rows = (part.to(device) for part in next(batches))
    step = Step(0, 1, 1)
    task = rsp.training_task(patches, rows, step)
    parts: dict[str, Callable[[], Any]] = {
        "reading": lambda: next(batches),
        "augmentation": lambda: rsp.training_task(patches, rows, step),
        "network": lambda: training_step(rsp, network, optimizer, task, device),
        "all": lambda: training_step(
            rsp,
            network,
            optimizer,
            rsp.training_task(next(batches)[0].to(device, non_blocking=True), rows, step),
            device,
        ),
    }
    seconds = median_seconds(parts, arguments.steps, device)
    print(f"{arguments.patch_px} px, {batch_size} triples a step, {arguments.workers} workers, {device}")
    for name, value in seconds.items():
        print(f"  {name:<13} {1e3 * value:8.1f} ms a step {batch_size / value:9.1f} triples/s")
    together = sum(seconds[name] for name in ("augmentation", "network"))
    limit = together + (0 if arguments.workers else seconds["reading"])
    limit = max(limit, seconds["reading"])
    print(f"  all is at {limit / seconds['all']:.2f} of what its parts allow")


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def median_seconds(parts: dict[str, Callable[[], Any]], steps: int, device: torch.device) -> dict[str, float]:
    """Of each part; they take turns, so that a busy moment of the machine meets all of them."""
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(steps + 3):
        for name, part in parts.items():
            start = time.perf_counter()
            part()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[3:]) for name, values in times.items()}


if __name__ == "__main__":
    main()
