"""No step waits for a GPU: the work of the next is asked for while that of the last is still done.

On a GPU torch itself refuses to wait. On the CPU a step runs on torch's device `meta`, which has no values: who asks
for one is refused, and copies from the CPU that would be waited for are found as they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from ignite.engine import Engine, State
from torch.utils._python_dispatch import TorchDispatchMode

from histo_monai.data.loaders.labeled import HiddenLabels
from histo_monai.pretraining.trainer import placed, training_step
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.teaching.trainer import StudentStep
from histo_monai.training.means import SampleMean
from histo_monai.training.schedule import Schedule
from histo_monai.utils.randomness import Step
from tests.training.test_steps_on_devices import SIDE, TRAINED, build_pretext, build_student


class _Copies(TorchDispatchMode):
    """Refuses copies from the CPU to another device that are waited for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        is_copy = func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        source = args[1] if func is torch.ops.aten.copy_.default else args[0] if args else None
        if is_copy and source.device.type == "cpu" and made.device.type != "cpu":
            is_awaited = not kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
            # A number that Python made is an argument of the kernel, not a copy.
            assert not is_awaited or source.ndim == 0, f"a copy of {tuple(source.shape)} is waited for"
        return made


@contextmanager
def _not_waiting(device: torch.device) -> Iterator[None]:
    """What waits for the device is an error."""
    if device.type == "meta":
        with _Copies():
            yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@pytest.fixture
def place(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """`meta` for the CPU; it has no autocast."""
    if device.type != "cpu":
        return device
    autocast = torch.autocast

    def where_there_is_one(kind: str, *arguments: Any, **options: Any) -> AbstractContextManager[Any]:
        return nullcontext() if kind == "meta" else autocast(kind, *arguments, **options)

    monkeypatch.setattr(torch, "autocast", where_there_is_one)
    return torch.device("meta")


def _pixels(num: int, scales: int, device: torch.device) -> torch.Tensor:
    return torch.randint(0, 256, (num, scales, 3, SIDE, SIDE), dtype=torch.uint8).to(device)


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_of_a_pretext_waits_for_nothing(name: str, place: torch.device, device: torch.device) -> None:
    pretext = build_pretext(name)
    network = placed(pretext.network, place)
    optimizer = pretext.optimizer(network)
    network.train()
    patches, rows = _pixels(8, len(pretext.mpps), place), torch.arange(8, device=place)
    mean = SampleMean()

    def step(number: int) -> None:
        task = pretext.training_task(patches, rows, Step(0, 1, number))
        mean.update(training_step(pretext, network, optimizer, task, place)["loss"])

    step(1)  # cuDNN may wait as it chooses
    with _not_waiting(place):
        for number in range(2, 7):  # Lookahead looks at every fifth
            step(number)


@pytest.mark.parametrize("name", [name for name in METHODS if "all" in METHODS.settings(name).finetune_modes])
def test_a_step_of_a_student_waits_for_nothing(name: str, place: torch.device, device: torch.device) -> None:
    task, method = build_student(name, place)
    method.network.to(place)
    targets = torch.rand(8) if name == "rankup" else torch.arange(8) % 3
    of_all = torch.rand(24) if name == "rankup" else torch.arange(24) % 3
    hidden = HiddenLabels(of_all, torch.arange(24) > 3)
    pseudo_labels = torch.full((24, task.num_outputs), 1 / task.num_outputs)
    optimizer = method.optimizer(Schedule(1, "adamw", 1e-3, 0.0, ()))
    step = StudentStep(method, task, targets, optimizer, 0, hidden, pseudo_labels=pseudo_labels)
    pair = [(_pixels(8, 1, place), torch.arange(8, device=place))]
    pair.append((_pixels(24, 1, place), torch.arange(24, device=place)))
    means = {measure: SampleMean() for measure in step.measures}
    engine = Engine(lambda *_: None)

    def whole(number: int) -> None:
        engine.state = State(epoch=1, iteration=number)
        for measure, values in step(engine, pair).items():
            means[measure].update(values)

    whole(1)  # cuDNN may wait as it chooses
    with _not_waiting(place):
        whole(2)


def test_what_waits_is_found(place: torch.device, device: torch.device) -> None:
    numbers = torch.ones(3, device=place)
    for waits in (
        lambda: int(numbers.sum()),
        lambda: numbers[numbers > 0],
        lambda: torch.arange(3).to(place),
        lambda: numbers.cpu(),
    ):
        with pytest.raises((RuntimeError, AssertionError)), _not_waiting(place):
            waits()
