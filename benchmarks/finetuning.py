"""Fine-tuning and consistency training against the literal reading of the paper's figures.

    python benchmarks/finetuning.py [--patch-px 256] [--batch-size 16] [--mu 7] [--device cuda]

1. A training step of the RSP network on one pass of the trunk, against the literal network that runs its trunk three
   times on the same image: same outputs and gradients (a test in float64), a third of the convolutions.
2. A consistency step with one trunk for teacher and student and no gradient in it, against two separate networks of
   which the student's trunk is frozen by `requires_grad` alone, the way it is usually written.

Medians of steps that take turns, and their ratio; on a GPU every step is waited for.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from histo_monai.models.encoder import build_encoder
from histo_monai.models.heads.task import PairHead
from histo_monai.models.task_model import TaskModel
from histo_monai.models.teacher_student import TeacherStudent
from histo_monai.pipeline.environment import read_environment
from histo_monai.training.device import in_memory_order, precision, to_device


class ThreeBranches(nn.Module):
    """The literal network: the trunk once per branch, the MLP once per pair."""

    def __init__(self, model: TaskModel) -> None:
        super().__init__()
        assert isinstance(model.head, PairHead)
        self.encoder, self.pair_mlp, self.linear = model.encoder, model.head.pair_mlp, model.head.linear

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        first, second, third = (self.encoder(patches) for _ in range(3))
        pairs = [self.pair_mlp(*pair) for pair in ((first, second), (first, third), (second, third))]
        return self.linear(torch.cat(pairs, dim=-1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patch-px", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--mu", type=int, default=7)
    parser.add_argument("--classes", type=int, default=9)
    parser.add_argument("--device", type=torch.device, default=read_environment().device)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    device = arguments.device
    print(f"{arguments.patch_px} px, {arguments.batch_size} labeled images a step, {device}")
    compare("fine-tuning, images/s", supervised_steps(arguments), arguments.batch_size, arguments)
    per_step = arguments.batch_size * (1 + 2 * arguments.mu)
    compare("consistency, views/s", consistency_steps(arguments), per_step, arguments)


def supervised_steps(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    device = arguments.device
    patches, targets = batch(arguments, arguments.batch_size)

    def step_of(network: nn.Module) -> Callable[[], None]:
        to_device(network, device)
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
        return lambda: train(network, optimizer, patches, targets, device)

    model = TaskModel(build_encoder(), "pair", arguments.classes)
    return {"one pass": step_of(model), "three branches": step_of(ThreeBranches(copy.deepcopy(model)))}


def train(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    patches: torch.Tensor,
    targets: torch.Tensor,
    device: torch.device,
) -> None:
    with precision(device):
        loss = F.cross_entropy(network(patches).float(), targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()


def consistency_steps(arguments: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    device, num = arguments.device, arguments.batch_size
    labeled, targets = batch(arguments, num)
    weak, _ = batch(arguments, num * arguments.mu)
    strong = weak.flip(-1)
    model = TaskModel(build_encoder(), "pair", arguments.classes)
    teacher, student = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    student.encoder.requires_grad_(False)
    pair = TeacherStudent(model)
    for network in (teacher, student, pair):
        to_device(network, device)
    heads = [torch.optim.SGD(head.parameters(), lr=1e-3) for head in (pair.student, student.head)]

    def update(optimizer: torch.optim.Optimizer, outputs: torch.Tensor, taught: torch.Tensor) -> None:
        loss = F.cross_entropy(outputs[:num].float(), targets)
        loss = loss + F.cross_entropy(outputs[num:].float(), taught.argmax(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def one_trunk() -> None:
        with precision(device):
            features = pair.features(torch.cat([labeled, weak, strong]))
            of_labeled, of_weak, of_strong = features.split([num, len(weak), len(strong)])
            with torch.no_grad():
                taught = pair.teacher(of_weak)
            outputs = pair.student(torch.cat([of_labeled, of_strong]))
        update(heads[0], outputs, taught)

    def separate() -> None:
        with precision(device):
            with torch.no_grad():
                taught = teacher(weak)
            outputs = torch.cat([student(labeled), student(strong)])
        update(heads[1], outputs, taught)

    return {"one trunk": one_trunk, "two networks": separate}


def batch(arguments: argparse.Namespace, num: int) -> tuple[torch.Tensor, torch.Tensor]:
    patches = torch.rand(num, 3, arguments.patch_px, arguments.patch_px, device=arguments.device)
    targets = torch.randint(arguments.classes, (num,), device=arguments.device)
    return in_memory_order(patches, arguments.device), targets


def compare(
    name: str, steps: dict[str, Callable[[], Any]], images: int, arguments: argparse.Namespace
) -> None:
    seconds: dict[str, list[float]] = {key: [] for key in steps}
    for turn in range(arguments.rounds + 2):
        for key, step in steps.items():
            start = time.perf_counter()
            step()
            if arguments.device.type == "cuda":
                torch.cuda.synchronize()
            if turn >= 2:  # the first turns warm up
                seconds[key].append(time.perf_counter() - start)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    ours, literal = medians
    print(f"{name}: " + ", ".join(f"{key} {images / value:.0f}" for key, value in medians.items()), end="; ")
    ratios = [b / a for a, b in zip(seconds[ours], seconds[literal], strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
