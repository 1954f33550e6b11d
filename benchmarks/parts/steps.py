"""Steps of every pretext and semi-supervised method, from slides on disk, against the network alone.

With `--paper` the sizes are the paper's: 256 px, 64 samples; 8 labeled patches and mu 7 for `paper`, 16 for the others.
"""

from __future__ import annotations

import copy
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from finetuning import ThreeBranches
from read_triples import make_slide
from stepping import (
    CLASSES,
    MU,
    PARAMS,
    SLIDE_PX,
    UNTRAINED,
    Size,
    Stepping,
    pretext_stepping,
    student_stepping,
)
from turns import LIMIT, OURS, PEER, DeviceClock, asked, is_time_up, row_of, take_turns

from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.params import load_params
from histo_monai.pretraining import PRETEXTS
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import Batch, SemiSupervised
from histo_monai.utils.process.memory import keep_freed_memory
from histo_monai.utils.process.threads import decode_with

LIMIT_IS = "forward, backward and optimizer on a batch that is ready"
PAPER = load_params(Path(__file__).parents[2] / "params" / "paper.yaml")
FEW_ROUNDS = 9
"""Of steps that take seconds."""
FEW_STEPS = 8
"""Of a turn of a student whose patches were read before."""
OF_PAPER = "paper"
"""The student with the batches of `consistency.paper`; the others have the recipe's batches."""


def main() -> None:
    keep_freed_memory()
    decode_with(torch.get_num_threads())
    options = asked()
    device, rounds = torch.device(options.device), 3 if options.quick else 21
    with tempfile.TemporaryDirectory() as folder:
        path = make_slide(Path(folder) / "synthetic.tif", SLIDE_PX)
        if options.paper:
            of_the_paper(path, device, options.workers, options.quick)
            return
        for name in trained():
            pretext_row(path, name, Size(64, 16, device, 0), rounds)
        if not options.quick:
            pretext_row(path, "rsp", Size(256, 8, device, 0), FEW_ROUNDS)
        for name in taught():
            num = 8 if options.quick or name != OF_PAPER else 16
            student_row(path, name, Size(64, num, device, 0), rounds)
        if not options.quick:
            student_row(path, OF_PAPER, Size(64, 16, device, 0), rounds, is_cached=False)
            student_row(path, OF_PAPER, Size(256, 4, device, 0), FEW_ROUNDS)


def taught() -> list[str]:
    """Semi-supervised methods that train networks in steps; methods of heads have none."""
    networks = [name for name in METHODS if "all" in METHODS.settings(name).finetune_modes]
    return [name for name in networks if PARAMS.student_section(name, "two_classes").epochs]


def trained() -> list[str]:
    """Pretexts that learn something, RSP first: what is left out, where time is short, are the last."""
    return sorted((name for name in PRETEXTS if name not in UNTRAINED), key=lambda name: name != "rsp")


def of_the_paper(path: Path, device: torch.device, workers: int, quick: bool) -> None:
    """A row for each method; `quick`: 32 px and few samples, to see that it runs."""
    if device.type == "cuda":
        torch.set_num_threads(1)  # as `Environment.use_cpus`
    patch_px, rounds = (32, 1) if quick else (256, 3)
    for name in trained():
        if not is_time_up(f"step of {name}"):
            pretext_row(path, name, Size(patch_px, 4 if quick else 64, device, workers), rounds)
            gc.collect()  # its reading processes end
    for name in taught():
        if not is_time_up(f"step of {name}"):
            num = 2 if quick else 8 if name == OF_PAPER else 16
            student_row(path, name, Size(patch_px, num, device, workers), rounds)
            gc.collect()


def timed(
    step: Stepping,
    size: Size,
    rounds: int,
    peer: Callable[[], object] | None = None,
    *,
    is_cached: bool = False,
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of a step, `OURS`, `LIMIT` and `PEER` where there is one; and of its augmentation and reading alone.

    Where processes read, a turn is many steps, after what they had ready is taken: they go on reading while others have
    their turn. Cached patches need less reading, and few steps suffice.
    """
    num = max(1, min(2 * size.workers, FEW_STEPS) if is_cached else 2 * size.workers)

    def many(call: Callable[[], object]) -> Callable[[], object]:
        return lambda: [call() for _ in range(num)]

    ways = {OURS: many(step.whole), LIMIT: many(step.alone)}
    ways |= {"augmentation": many(step.augment), "reading": many(step.read)}
    if peer is not None:
        ways[PEER] = many(peer)
    times = take_turns(ways, rounds, DeviceClock(size.device), {OURS: step.drain, "reading": step.drain})
    per_step = {name: [seconds / num for seconds in values] for name, values in times.items()}
    return per_step, {name: per_step.pop(name) for name in ("augmentation", "reading")}


def pretext_row(path: Path, name: str, size: Size, rounds: int) -> None:
    """Of one pretext method."""
    step = pretext_stepping(path, name, size)
    times, parts = timed(step, size, rounds)
    steps = PAPER.corpus_section.num_train // 64
    settings: Any = PAPER.pretrain.methods.get(name)
    row_of(
        f"step of {name}, {size.patch_px} px, {size.batch_size} samples", times, clock=DeviceClock(size.device).name,
        limit_is=LIMIT_IS, per=size.batch_size, unit="sample", parts=parts,
        counts={**step.counts(), "steps_of_epoch": steps, "steps_of_run": steps * (settings.epochs if settings else 0)},
    ).write()  # fmt: skip


def student_row(path: Path, name: str, size: Size, rounds: int, *, is_cached: bool = True) -> None:
    """Of one semi-supervised method, mu 7, patches read by an epoch before; of `paper` also the literal one."""
    step = student_stepping(path, name, size, is_cached=is_cached, num_read=2 * (rounds + 2))
    peer_is, peer = "", None
    if name == OF_PAPER and is_cached and size.patch_px == 64 and size.device.type == "cpu":
        peer_is = "three passes, gradients through the frozen trunk, teacher apart"
        peer = literal_way(step)
    times, parts = timed(step, size, rounds, peer, is_cached=is_cached)
    read = "" if is_cached else ", read anew"
    steps, epochs = of_run(name)
    row_of(
        f"step of {name}, {size.patch_px} px, {size.batch_size} labeled, mu {MU}{read}", times,
        clock=DeviceClock(size.device).name, limit_is=LIMIT_IS, peer_is=peer_is, parts=parts,
        counts={**step.counts(), "steps_of_epoch": steps, "steps_of_run": steps * epochs},
    ).write()  # fmt: skip


def of_run(name: str) -> tuple[int, int]:
    """Steps of an epoch and epochs of a student of Camelyon16 by params/paper.yaml."""
    if name != OF_PAPER:
        recipe = PAPER.consistency.recipe.of("two_classes")
        return recipe.steps_per_epoch, recipe.epochs
    train, section = PAPER.labels_section.train, PAPER.consistency.paper.of("camelyon16")
    return -(-(train.num_tumor + train.num_normal) // (MU * section.batch_size)), section.epochs


def literal_way(step: Stepping) -> Callable[[], object]:
    """Views and a literal step of the model that `step` had before its first one; its loss is looked at."""
    assert step.batch is not None
    batch = step.batch
    torch.manual_seed(0)
    literal = literal_step(TaskModel(build_encoder(), "pair", len(CLASSES)))
    check_same_loss(step.method, literal, step.views, batch)
    return lambda: (step.method.views(batch), literal(step.views, batch.targets, train=True))


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
    method: SemiSupervised,
    literal: Callable[..., torch.Tensor],
    views: tuple[torch.Tensor, ...],
    batch: Batch,
) -> None:
    """Raises SystemExit where the two losses of the first step are not the same to 1e-5."""
    with torch.no_grad():
        ours = float(method.measure(method.outputs(views), batch)["loss"].mean())
        theirs = float(literal(views, batch.targets, train=False))
    if abs(ours - theirs) > 1e-5 * abs(theirs):
        raise SystemExit(f"losses differ: {ours:.8g} and, to the letter, {theirs:.8g}")


if __name__ == "__main__":
    main()
