"""Steps of every pretext and semi-supervised method, from slides on disk, against the network alone."""

from __future__ import annotations

import copy
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from finetuning import ThreeBranches
from read_triples import make_slide
from turns import LIMIT, OURS, PEER, is_quick, row_of, take_turns

from histo_monai.engines.pretrain import placed, training_step
from histo_monai.engines.semisupervised import StudentStep
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import PatchReading
from histo_monai.loading.loaders import ConcentricPatches, EpochBatches, patch_loader
from histo_monai.loading.streams import SideBySide, two_streams
from histo_monai.networks.encoder import build_encoder
from histo_monai.networks.start import EncoderStart
from histo_monai.networks.task_model import TaskModel
from histo_monai.params import load_params
from histo_monai.pretext import PRETEXTS
from histo_monai.process.memory import keep_freed_memory
from histo_monai.process.threads import decode_with
from histo_monai.randomness import Step
from histo_monai.schedule import Schedule
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import Batch
from histo_monai.tables.patches import labeled_table

CPU = torch.device("cpu")
MPPS = (0.25, 0.5, 1.0)
MU = 7
NUM_KEPT = 4  # batches of unlabeled patches in the epoch of those rows that read none anew
CLASSES = ["normal", "tumor"]
UNTRAINED = ("random", "pretrained")
PARAMS = load_params(Path(__file__).parents[2] / "params.yaml")
SCHEDULE = Schedule(epochs=1, optimizer="sgd", lr=1e-3, weight_decay=1e-4, milestones=())
LIMIT_IS = "forward, backward and optimizer on a batch that is ready"


def main() -> None:
    keep_freed_memory()
    decode_with(torch.get_num_threads())
    rounds = 3 if is_quick() else 9
    with tempfile.TemporaryDirectory() as folder:
        path = make_slide(Path(folder) / "synthetic.tif", 4096)
        for name in (name for name in PRETEXTS if name not in UNTRAINED):
            pretext_row(path, name, 64, 16, rounds)
        if not is_quick():
            pretext_row(path, "rsp", 256, 8, rounds)
        for name in METHODS:
            student_row(path, name, 64, 8 if is_quick() else 16, rounds)
        if not is_quick():
            student_row(path, "paper", 64, 16, rounds, is_kept=False)
            student_row(path, "paper", 256, 4, 5)


def places(path: Path, num: int, margin: int) -> np.ndarray:
    """Centers of patches, (num, 2), level-0 pixels of a square slide of 4096 px."""
    return np.random.default_rng(0).integers(margin, 4096 - margin, (num, 2))


def endless(loader: Any) -> Iterator[Any]:
    """Batches, epoch after epoch."""
    while True:
        yield from loader


def pretext_row(path: Path, name: str, patch_px: int, batch_size: int, rounds: int) -> None:
    """Of one pretext method; no pixel is kept, so that every step reads its own."""
    slides = pd.DataFrame({"slide_id": ["a"], "path": [str(path)], "mpp": [0.25]})
    centers = places(path, 1024, 2 * patch_px)
    table = pd.DataFrame({"slide_id": "a", "y": centers[:, 0], "x": centers[:, 1]})
    pretext: Any = PRETEXTS[name](
        start=EncoderStart(),
        patch_px=patch_px,
        mpps=MPPS,
        augmentation_prob=0.5,
        settings=PARAMS.pretrain.methods[name],
    )
    dataset = ConcentricPatches(slides, table, mpps=pretext.mpps, patch_px=patch_px, max_kept_bytes=0)
    batches = endless(
        patch_loader(dataset, EpochBatches(len(dataset), batch_size, seed=0), workers=0, pin=False)
    )
    network = placed(pretext.network, CPU)
    optimizer = pretext.optimizer(network)
    network.train()
    ready = pretext.training_task(*next(batches), Step(0, 1, 1))
    numbers = itertools.count(2)

    def whole() -> None:
        task = pretext.training_task(*next(batches), Step(0, 1, next(numbers)))
        training_step(pretext, network, optimizer, task, CPU)

    ways: dict[str, Callable[[], object]] = {
        OURS: whole,
        LIMIT: lambda: training_step(pretext, network, optimizer, ready, CPU),
    }
    times = take_turns(ways, rounds, time.perf_counter)
    row_of(
        f"step of {name}, {patch_px} px, {batch_size} samples", times, clock="wall", limit_is=LIMIT_IS,
        per=batch_size, unit="sample",
    ).tell()  # fmt: skip


def labels(path: Path, num: int, patch_px: int, scores: bool) -> pd.DataFrame:
    """Labeled squares of the slide."""
    rng, centers = np.random.default_rng(1), places(path, num, patch_px)
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


def student_row(
    path: Path, name: str, patch_px: int, batch_size: int, rounds: int, *, is_kept: bool = True
) -> None:
    """Of one semi-supervised method, mu 7, patches read by an epoch before; of `paper` also the literal one."""
    scores = name == "rankup"
    num = (NUM_KEPT if is_kept else 2 * (rounds + 2)) * batch_size * MU
    table = labels(path, num, patch_px, scores)
    reading = PatchReading(patch_px, None if scores else CLASSES, workers=0, pin=False)
    task = Task(reading.classes, patch_px=patch_px, device=CPU)
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "pair", task.num_outputs)
    literal = literal_step(copy.deepcopy(model)) if name == "paper" and is_kept and patch_px == 64 else None
    method: Any = METHODS[name](
        model=model,
        objective=task.objective,
        patch_px=patch_px,
        n_aug=7,
        recipe=PARAMS.student_recipe,
        settings=PARAMS.consistency.methods[name],
    )
    labeled, unlabeled = two_streams(
        reading, table.head(NUM_KEPT * batch_size).reset_index(drop=True), table, batch_size, mu=MU, seed=0
    )
    pairs = endless(SideBySide(labeled.loader, unlabeled.loader))
    for _ in range(NUM_KEPT if is_kept else 0):
        next(pairs)
    optimizer = method.optimizer(SCHEDULE)
    step = StudentStep(method, task, labeled.targets, optimizer, 0)
    numbers = itertools.count(1)
    (patches, rows), (others, _) = next(pairs)
    batch = Batch(patches, labeled.targets[rows], others, Step(0, 1, 1))
    method.network.train()
    views = method.views(batch)

    def whole() -> None:
        state = SimpleNamespace(state=SimpleNamespace(epoch=1, iteration=next(numbers)))
        step(state, next(pairs))  # all that it looks at

    def alone() -> None:
        loss = method.measure(method.outputs(views), batch)["loss"].mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        method.after_step()

    ways: dict[str, Callable[[], object]] = {OURS: whole, LIMIT: alone}
    if literal is not None:
        check_same_loss(method, literal, views, batch)
        ways[PEER] = lambda: (method.views(batch), literal(views, batch.targets, train=True))
    times = take_turns(ways, rounds, time.perf_counter)
    read = "" if is_kept else ", read anew"
    row_of(
        f"step of {name}, {patch_px} px, {batch_size} labeled, mu {MU}{read}", times, clock="wall", limit_is=LIMIT_IS,
        peer_is="three passes, gradients through the frozen trunk, teacher apart" if literal else "",
    ).tell()  # fmt: skip


def literal_step(model: TaskModel) -> Callable[..., torch.Tensor]:
    """The paper's figures to the letter: three branches, a teacher of its own, autograd through the frozen trunk."""
    teacher, student = ThreeBranches(copy.deepcopy(model)).eval(), ThreeBranches(model).eval()
    heads = [*student.pair_mlp.parameters(), *student.linear.parameters()]
    optimizer = torch.optim.SGD(heads, lr=1e-3, momentum=0.9, nesterov=True)
    weight = PARAMS.consistency.methods["paper"].weight

    def step(views: tuple[torch.Tensor, ...], targets: torch.Tensor, *, train: bool) -> torch.Tensor:
        labeled, weak, strong = views
        with torch.no_grad():
            taught = teacher(weak)
        of_labeled, of_strong = student(labeled), student(strong)
        unsure = taught.softmax(1).amax(1) < PARAMS.consistency.methods["paper"].threshold
        unlabeled = F.cross_entropy(of_strong, taught.argmax(1), reduction="none").masked_fill(unsure, 0.0)
        loss = F.cross_entropy(of_labeled, targets) + weight * unlabeled.mean()
        if train:
            student.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
        return loss

    return step


def check_same_loss(
    method: Any, literal: Callable[..., torch.Tensor], views: tuple[torch.Tensor, ...], batch: Batch
) -> None:
    """Raises SystemExit where the two losses of the first step are not the same to 1e-5."""
    with torch.no_grad():
        ours = float(method.measure(method.outputs(views), batch)["loss"].mean())
        theirs = float(literal(views, batch.targets, train=False))
    if abs(ours - theirs) > 1e-5 * abs(theirs):
        raise SystemExit(f"losses differ: {ours:.8g} and, to the letter, {theirs:.8g}")


if __name__ == "__main__":
    main()
