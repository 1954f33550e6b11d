"""Training steps of every pretext and semi-supervised method, taken apart: the whole, its parts, what it moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.loaders.loaders import ConcentricPatches
from histo_monai.data.loaders.resident import read_batches
from histo_monai.data.loaders.streams import SideBySide, two_streams
from histo_monai.data.tables.patches import labeled_table
from histo_monai.models.encoder import build_encoder
from histo_monai.models.start import EncoderStart
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.params import load_params
from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.trainer import placed, training_step
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.teaching.trainer import StudentStep
from histo_monai.slides.tile_cache import TileCache
from histo_monai.training.device import in_memory_order, precision, to_device
from histo_monai.training.graphs import EncoderGraphs
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.utils.randomness import Step

SLIDE_PX = 4096
MPPS = (0.25, 0.5, 1.0)
MU = 7
NUM_CACHED = 4
"""Batches of unlabeled patches in the epoch of those steps that read none anew."""
CLASSES = ["normal", "tumor"]
UNTRAINED = ("random", "pretrained")
PARAMS = load_params(Path(__file__).parents[1] / "params.yaml")
SCHEDULE = Schedule(epochs=1, optimizer="sgd", lr=1e-3, weight_decay=1e-4, milestones=())


@dataclass(frozen=True)
class Size:
    """Of a step.

    Attributes:
        patch_px: side of the patches.
        batch_size: samples of a pretext, labeled patches of a student, which sees `MU` times as many unlabeled ones.
        device: where the network runs.
        workers: reading processes.
    """

    patch_px: int
    batch_size: int
    device: torch.device
    workers: int


@dataclass(frozen=True)
class Stepping:
    """A step, and what it is made of; each to be called, as often as one likes.

    Attributes:
        whole: from the slide to the new weights.
        alone: forward, backward and optimizer on views that are on the device.
        augment: the views of a batch that is on the device.
        read: the pixels of a batch, as loaders give them.
        drain: takes what the reading processes have ready.
        network: that is trained; `alone` takes a context in which its encoders run, in place of CUDA graphs.
        counts: of a step: bytes decoded and transferred, and operations of `alone`, which is called once.
        method: of a student, for who compares it; with `views` and `batch`.
    """

    whole: Callable[[], object]
    alone: Callable[..., object]
    augment: Callable[[], object]
    read: Callable[[], object]
    drain: Callable[[], object]
    counts: Callable[[], dict[str, float]]
    network: torch.nn.Module
    method: Any = None
    views: tuple[torch.Tensor, ...] = ()
    batch: Batch | None = None


def pretext_stepping(path: Path, name: str, size: Size) -> Stepping:
    """Of a pretext; no pixel is cached, so that every step reads its own."""
    device = size.device
    slides = pd.DataFrame({"slide_id": ["a"], "path": [str(path)], "mpp": [MPPS[0]]})
    centers = _places(max(1024, 2 * size.batch_size), 2 * size.patch_px)
    table = pd.DataFrame({"slide_id": "a", "y": centers[:, 0], "x": centers[:, 1]})
    torch.manual_seed(0)
    pretext: Any = PRETEXTS[name](
        start=EncoderStart(),
        patch_px=size.patch_px,
        mpps=MPPS,
        augmentation_prob=0.5,
        settings=PARAMS.pretrain.methods[name],
    )
    dataset = ConcentricPatches(slides, table, mpps=pretext.mpps, patch_px=size.patch_px, max_cache_bytes=0)

    def loader(workers: int) -> Iterator[Any]:
        order = EpochBatches(len(dataset), size.batch_size, seed=0)
        return _endless(read_batches(dataset, order, workers=workers, device=device))

    with decoded() as tiles:
        first = next(loader(0))
    batches = loader(size.workers)
    network = placed(pretext.network, device)
    graphs = EncoderGraphs(network, device)
    optimizer = pretext.optimizer(network)
    network.train()
    patches, rows = (part.to(device) for part in first)
    ready = pretext.training_task(patches, rows, Step(0, 1, 1))
    numbers = itertools.count(2)

    def whole() -> None:
        fresh = (part.to(device, non_blocking=True) for part in next(batches))
        task = pretext.training_task(*fresh, Step(0, 1, next(numbers)))
        training_step(pretext, network, optimizer, task, device, graphs)

    def alone(asked_for: Any = graphs) -> None:
        training_step(pretext, network, optimizer, ready, device, asked_for)

    return Stepping(
        whole=whole,
        alone=alone,
        augment=lambda: pretext.training_task(patches, rows, Step(0, 1, 1)),
        read=lambda: next(batches),
        drain=lambda: [next(batches) for _ in range(2 * size.workers)],
        counts=lambda: _counts(tiles, first, lambda: alone(None)),
        network=network,
    )


def student_stepping(path: Path, name: str, size: Size, *, is_cached: bool, num_read: int) -> Stepping:
    """Of a semi-supervised method; its patches were read by an epoch before, or `num_read` batches are read anew."""
    scores, device = name == "rankup", size.device
    num = (NUM_CACHED if is_cached else num_read) * size.batch_size * MU
    table = _labels(path, num, size.patch_px, scores)
    reading = PatchReading(size.patch_px, None if scores else CLASSES, workers=size.workers, device=device)
    task = Task(reading.classes, patch_px=size.patch_px, device=device)
    torch.manual_seed(0)
    method: Any = METHODS[name](
        model=TaskModel(build_encoder(), "pair", task.num_outputs),
        objective=task.objective,
        patch_px=size.patch_px,
        mpp=None,
        n_aug=7,
        recipe=PARAMS.student_recipe(name, task.kind),
        settings=PARAMS.consistency.methods[name],
    )
    rows_of_labels = table.head(NUM_CACHED * size.batch_size).reset_index(drop=True)
    labeled, unlabeled = two_streams(reading, rows_of_labels, table, size.batch_size, mu=MU, seed=0)
    pairs = _endless(SideBySide(labeled.loader, unlabeled.loader))
    with decoded() as tiles:  # here: reading processes count for themselves
        reading.dataset(rows_of_labels).__getitems__(list(range(size.batch_size)))
        reading.dataset(table).__getitems__(list(range(size.batch_size * MU)))
    (patches, rows), (others, other_rows) = next(pairs)
    for _ in range(NUM_CACHED if is_cached else 0):
        next(pairs)
    to_device(method.network, device)
    optimizer = method.optimizer(SCHEDULE)
    pseudo_labels = torch.full((len(table), task.num_outputs), 1 / len(CLASSES))
    step = StudentStep(method, task, labeled.targets, optimizer, 0, pseudo_labels=pseudo_labels)
    numbers = itertools.count(1)
    targets = labeled.targets[rows.cpu()]
    given = pseudo_labels[other_rows.cpu()].to(device)
    batch = Batch(patches.to(device), targets.to(device), others.to(device), Step(0, 1, 1), given)
    method.network.train()
    views = tuple(in_memory_order(view, device) for view in method.views(batch))

    def whole() -> None:
        state = SimpleNamespace(state=SimpleNamespace(epoch=1, iteration=next(numbers)))
        step(state, next(pairs))  # all that it looks at

    graphs = EncoderGraphs(method.network, device)

    def alone(asked_for: Any = graphs) -> None:
        with precision(device), asked_for or nullcontext():
            outputs = method.outputs(views)
        loss = method.measure(outputs, batch)["loss"].mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        method.after_step()

    return Stepping(
        whole=whole,
        alone=alone,
        augment=lambda: method.views(batch),
        read=lambda: next(pairs),
        drain=lambda: [next(pairs) for _ in range(2 * size.workers)],
        counts=lambda: _counts(tiles, (patches, targets, others, other_rows), lambda: alone(None)),
        network=method.network,
        method=method,
        views=views,
        batch=batch,
    )


@contextmanager
def decoded() -> Iterator[list[int]]:
    """Bytes of each tile that this process decodes meanwhile."""
    sizes: list[int] = []
    put = TileCache.put

    def counted(self: TileCache, key: Any, tile: np.ndarray) -> None:
        sizes.append(tile.nbytes)
        put(self, key, tile)

    TileCache.put = counted  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        TileCache.put = put  # type: ignore[method-assign]


def _counts(
    tiles: list[int], sent: tuple[torch.Tensor, ...], alone: Callable[[], object]
) -> dict[str, float]:
    """Of a step: bytes of the tiles it decodes and of the tensors it sends, and operations as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        alone()
    return {
        "decoded_bytes": float(sum(tiles)),
        "transferred_bytes": float(sum(part.nbytes for part in sent)),
        "flops": float(counter.get_total_flops()),
    }


def _places(num: int, margin: int) -> np.ndarray:
    """Centers of patches, (num, 2), level-0 pixels of a square slide of `SLIDE_PX`."""
    return np.random.default_rng(0).integers(margin, SLIDE_PX - margin, (num, 2))


def _endless(loader: Any) -> Iterator[Any]:
    """Batches, epoch after epoch."""
    while True:
        yield from loader


def _labels(path: Path, num: int, patch_px: int, scores: bool) -> pd.DataFrame:
    """Labeled squares of the slide."""
    rng, centers = np.random.default_rng(1), _places(num, patch_px)
    given = {
        "patch_id": [f"p{number}" for number in range(num)],
        "path": str(path),
        "slide_id": "a",
        "y": centers[:, 0],
        "x": centers[:, 1],
        "mpp": 0.5,
        "side_px": patch_px,
        "slide_mpp": 0.25,
        "split": "train",
    }
    what = {"score": rng.random(num)} if scores else {"label": rng.choice(CLASSES, num)}
    return labeled_table(pd.DataFrame({**given, **what}))
