"""One step of everything that trains: on a device what it is in float64 on the CPU, the same views given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ignite.distributed as idist
import numpy as np
import pytest
import torch
from ignite.engine import Engine, State

from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_rows import rows_of_rank
from histo_monai.models.start import EncoderStart
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.params import load_params
from histo_monai.pretraining import PRETEXTS
from histo_monai.pretraining.protocol import Task as PretextTask
from histo_monai.pretraining.trainer import placed, training_step
from histo_monai.semisupervised import METHODS
from histo_monai.semisupervised.protocol import Batch
from histo_monai.semisupervised.students.mixing import Mixing
from histo_monai.semisupervised.teaching.trainer import StudentStep
from histo_monai.training.device import to_device
from histo_monai.training.schedule import Schedule
from histo_monai.training.task import Task
from histo_monai.utils.randomness import Step
from tests.conftest import ROOT
from tests.devices import ComputeIn

pytestmark = pytest.mark.slow

SIDE, CPU = 32, torch.device("cpu")
STUDENT_SIDE = 40  # a ResNet's last stage has 2 x 2 px: with one pixel, bfloat16 is further off
PARAMS = load_params(ROOT / "params.yaml")
TRAINED = [name for name in PRETEXTS if name not in ("random", "pretrained")]
STUDENTS = [name for name in METHODS if "all" in METHODS.settings(name).finetune_modes]
LOSSES = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
"""How far a loss may be from that in float64, in parts of it. bfloat16 keeps 8 bits: a CPU's is up to 2e-2 off."""
GRADIENTS = {torch.float32: 2e-2, torch.bfloat16: 0.6}
"""The same of all gradients as one vector; a CPU's are up to 0.003 and 0.4 off: a ReLU near 0 is on or off."""
StepOf = Callable[[str, torch.device, torch.dtype], tuple[float, torch.Tensor]]
"""Name, device, what it computes in -> loss and gradients of a step."""


def _tissue(*shape: int, side: int = SIDE) -> torch.Tensor:
    """Smooth color on grain, (*shape, 3, side, side), uint8."""
    random = torch.Generator().manual_seed(0)
    num = int(np.prod(shape))
    coarse = torch.rand(num, 3, 8, 8, generator=random)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")
    grain = 6 * torch.randn(num, 3, side, side, generator=random)
    return (40 + 180 * smooth + grain).clamp(0, 255).to(torch.uint8).unflatten(0, shape)


def _as(x: torch.Tensor, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """On a device; floats as `dtype`."""
    return x.to(device, dtype) if x.is_floating_point() else x.to(device)


class _Gradients:
    """All of a network as one vector, float64, on the CPU, from before each step: Nesterov's adds to them on a GPU."""

    def __init__(self, network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._network = network
        self.last = torch.zeros(0)
        inner = getattr(optimizer, "inner", optimizer)  # Lookahead's takes the steps
        inner.register_step_pre_hook(self._keep)

    def _keep(self, *_: Any) -> None:
        found = [p.grad.flatten() for p in self._network.parameters() if p.grad is not None]
        self.last = torch.cat(found).double().cpu()


def build_pretext(name: str) -> Any:
    """A pretext by its name, with the settings of params.yaml."""
    return PRETEXTS[name](
        start=EncoderStart(),
        patch_px=SIDE,
        mpps=(1.0, 2.0, 4.0),
        augmentation_prob=0.5,
        settings=PARAMS.pretrain.methods[name],
    )


def build_student(name: str, device: torch.device, encoder: str = "resnet18") -> tuple[Task, Any]:
    """The task, and a semi-supervised method with the settings of params.yaml, its network on the CPU."""
    task = Task(None if name == "rankup" else ["a", "b", "c"], patch_px=STUDENT_SIDE, device=device)
    method = METHODS[name](
        model=TaskModel(
            build_encoder(encoder, STUDENT_SIDE), "linear" if name != "paper" else "pair", task.num_outputs
        ),
        objective=task.objective,
        patch_px=STUDENT_SIDE,
        mpp=None,
        n_aug=7,
        recipe=PARAMS.student_recipe(name, "two_classes"),
        settings=PARAMS.consistency.methods[name],
    )
    return task, method


def _pretext_step(name: str, device: torch.device, dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    """Loss and gradients of the second of two steps of the engine; views are those that the CPU makes."""
    torch.manual_seed(0)
    pretext = build_pretext(name)
    pretext.network.to(dtype)
    network = placed(pretext.network, device)
    optimizer = pretext.optimizer(network)
    gradients = _Gradients(network, optimizer)
    network.train()
    patches = _tissue(8, len(pretext.mpps))
    for number in (1, 2):
        task = pretext.training_task(patches, 8 * number + torch.arange(8), Step(0, 1, number))
        here = PretextTask(
            tuple(_as(x, device, dtype) for x in task.inputs), _as(task.targets, device, dtype)
        )
        if number == 1:  # What a method keeps of a step (a queue of keys) is there in the next.
            with torch.no_grad():
                pretext.after_step(network(*here.inputs), here)
    measured = training_step(pretext, network, optimizer, here, device)
    return float(measured["loss"].double().mean()), gradients.last


def student_step(
    name: str, device: torch.device, dtype: torch.dtype, encoder: str = "resnet18"
) -> tuple[float, torch.Tensor]:
    """Loss and gradients of a step of the engine; views are those that the CPU makes."""
    torch.manual_seed(0)
    task, method = build_student(name, device, encoder)
    for part in method.network.children():  # What methods follow in buffers of their own is float32.
        part.to(dtype)
    to_device(method.network, device)
    labeled, unlabeled = (_tissue(num, 1, side=STUDENT_SIDE).flip(0) for num in (8, 24))
    targets = torch.linspace(0, 1, 8) if name == "rankup" else torch.arange(8) % 3
    targets = _as(targets, CPU, dtype)
    views_of = method.views

    def views(batch: Batch) -> tuple[torch.Tensor, ...]:
        there = views_of(Batch(labeled, targets, unlabeled, batch.step))
        for own, value in vars(method).items():  # What it draws with the views.
            if isinstance(value, torch.Tensor):
                setattr(method, own, value.to(device))
            elif isinstance(value, Mixing):
                setattr(method, own, Mixing(value.weights.to(device), value.order.to(device)))
        return tuple(_as(view, device, dtype) for view in there)

    method.views = views
    optimizer = method.optimizer(Schedule(1, "sgd", 1e-3, 0.0, ()))
    gradients = _Gradients(method.network, optimizer)
    pseudo_labels = torch.linspace(0, 1, 24 * task.num_outputs).view(24, -1).softmax(dim=1).to(dtype)
    step = StudentStep(method, task, targets, optimizer, seed=0, pseudo_labels=pseudo_labels)
    engine = Engine(lambda *_: None)
    engine.state = State(epoch=1, iteration=1)
    rank, num_ranks = idist.get_rank(), idist.get_world_size()  # each rank reads its rows, as in loaders
    measured = step(
        engine,
        [
            (patches[rows], torch.arange(len(patches))[rows])
            for patches in (labeled, unlabeled)
            for rows in [rows_of_rank(rank, num_ranks, len(patches))]
        ],
    )
    return float(measured["loss"].double().mean()), gradients.last


@functools.lru_cache(maxsize=1)  # both types of a step follow each other, and its gradients are 90 MB
def _reference(step_of: StepOf, name: str) -> tuple[float, torch.Tensor]:
    return step_of(name, CPU, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("step_of", "name"),
    [
        *(pytest.param(_pretext_step, name, id=f"pretext {name}") for name in TRAINED),
        *(pytest.param(student_step, name, id=f"student {name}") for name in STUDENTS),
    ],
)
def test_a_step_has_loss_and_gradients_of_float64(
    step_of: StepOf, name: str, dtype: torch.dtype, device: torch.device, compute_in: ComputeIn
) -> None:
    compute_in(torch.float32)
    right_loss, right = _reference(step_of, name)
    compute_in(dtype)
    loss, gradients = step_of(name, device, torch.float32)
    assert loss == pytest.approx(right_loss, rel=LOSSES[dtype])
    assert float((gradients - right).norm()) < GRADIENTS[dtype] * float(right.norm())
