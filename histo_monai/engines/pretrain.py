"""Self-supervised pretraining: one engine for every method behind the `Pretext` protocol."""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
from ignite.engine import Engine, Events
from torch import nn
from torch.utils.data import DataLoader

from histo_monai.engines.handlers import (
    BestState,
    Curves,
    attach_progress,
    attach_tensorboard,
    stop_when_not_finite,
)
from histo_monai.engines.means import attach_means
from histo_monai.engines.resume import ResumePoint
from histo_monai.networks import synchronise_batchnorm
from histo_monai.pretext import Pretext, Step, Task


@dataclass(frozen=True)
class PretrainResult:
    """What a pretraining leaves.

    Attributes:
        curves: one row per epoch: epoch, lr, train_loss, ..., validation_loss, ...
        best_epoch: of the lowest validation loss, 0 if nothing was trained; `Pretext.network` holds its weights.
        validation: mean of each measure over the validation samples, with the weights kept.
        picture: a validation batch with the answers of the kept network, (H, W, 3) uint8.
    """

    curves: list[dict[str, float]]
    best_epoch: int
    validation: dict[str, float]
    picture: np.ndarray


def pretrain(
    pretext: Pretext,
    training: DataLoader[Any] | None,
    validation: DataLoader[Any],
    *,
    seed: int,
    device: torch.device,
    tensorboard: Path | None,
    resume: Path | None,
    fingerprint: str,
) -> PretrainResult:
    """Train, validate after every epoch, and leave the weights of the lowest validation loss in `pretext.network`.

    Runs in each process of `ignite.distributed`; batch-norm statistics span the processes, so their number does not
    change the training. Random decisions are functions of (seed, epoch, iteration).

    Args:
        pretext: the method; its network is moved to `device`.
        training: batches of this process; its `batch_sampler` has `set_epoch`. None where `pretext.epochs` is 0.
        validation: batches of this process, in a fixed order.
        seed: of every random decision after initialisation.
        device: where the network runs. CUDA uses bfloat16 autocast and channels-last.
        tensorboard: folder of event files, None for none.
        resume: file that keeps the state after every epoch, so that a killed run goes on where it was; None for none.
        fingerprint: of everything that decides the result; a state under another fingerprint is not resumed.

    Raises:
        ArithmeticError: the loss is not finite; names epoch, iteration and what to change.
    """
    network = placed(pretext.network, device)
    optimizer = pretext.optimizer(network)
    trainer = _trainer(pretext, network, optimizer, seed, device)
    evaluator = _evaluator(pretext, device)
    best = BestState(pretext.network)
    curves = Curves(trainer, evaluator, optimizer)
    point = ResumePoint(
        resume,
        fingerprint,
        {"network": pretext.network, "optimizer": optimizer, "best": best, "curves": curves},
    )

    trainer.add_event_handler(Events.ITERATION_COMPLETED, stop_when_not_finite)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(validation))
    trainer.add_event_handler(Events.EPOCH_COMPLETED, curves.add)
    trainer.add_event_handler(
        Events.EPOCH_COMPLETED, lambda: best.offer(evaluator.state.metrics["loss"], trainer.state.epoch)
    )
    trainer.add_event_handler(Events.EPOCH_COMPLETED, point.save)
    attach_progress(trainer, evaluator)
    done = point.restore()
    if tensorboard is not None and idist.get_rank() == 0:
        if done == 0:
            shutil.rmtree(tensorboard, ignore_errors=True)  # the curves of another training
        attach_tensorboard(tensorboard, trainer, evaluator, optimizer, lambda: _picture(pretext, evaluator))
    if training is not None and done < pretext.epochs:
        order: Any = training.batch_sampler
        trainer.add_event_handler(Events.EPOCH_STARTED, lambda: order.set_epoch(trainer.state.epoch))
        plan = {
            "epoch_length": len(training),
            "max_epochs": pretext.epochs,
            "iteration": done * len(training),
        }
        trainer.load_state_dict(plan)
        trainer.run(training)
    best.restore()
    evaluator.run(validation)
    return PretrainResult(
        curves.rows, best.epoch, dict(evaluator.state.metrics), _picture(pretext, evaluator)
    )


def placed(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on its device, in the memory order that is fast there; wrapped where there are several processes."""
    network.to(device)
    if device.type == "cuda":
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing in the stubs
    if idist.get_world_size() == 1:
        return network
    synchronise_batchnorm(network, device)
    ids = [device.index] if device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(network, device_ids=ids, broadcast_buffers=False)


def _precision(device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else nullcontext()


def _trainer(
    pretext: Pretext, network: nn.Module, optimizer: torch.optim.Optimizer, seed: int, device: torch.device
) -> Engine:
    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        network.train()
        patches = batch[0].to(device, non_blocking=True)
        now = Step(seed, engine.state.epoch, engine.state.iteration, idist.get_rank(), idist.get_world_size())
        return training_step(pretext, network, optimizer, pretext.training_task(patches, now), device)

    trainer = Engine(step)
    attach_means(trainer, pretext.MEASURES)
    return trainer


def training_step(
    pretext: Pretext, network: nn.Module, optimizer: torch.optim.Optimizer, task: Task, device: torch.device
) -> dict[str, torch.Tensor]:
    """Forward, backward, optimiser: what the network learns from one task; returns its measures per sample."""
    task = _in_memory_order(task, device)
    with _precision(device):
        outputs = network(*task.inputs)
    measured = pretext.measure(outputs, task)
    optimizer.zero_grad(set_to_none=True)
    measured["loss"].mean().backward()
    optimizer.step()
    pretext.after_step()
    return {name: values.detach() for name, values in measured.items()}


def _evaluator(pretext: Pretext, device: torch.device) -> Engine:
    @torch.no_grad()
    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        pretext.network.eval()
        task = _in_memory_order(pretext.validation_task(batch[0].to(device, non_blocking=True)), device)
        with _precision(device):
            outputs = pretext.network(*task.inputs)
        if engine.state.iteration == 1:
            engine.state.first = (outputs, task)
        return pretext.measure(outputs, task)

    evaluator = Engine(step)
    attach_means(evaluator, pretext.MEASURES)
    return evaluator


def _in_memory_order(task: Task, device: torch.device) -> Task:
    """Channels-last where the convolutions are fastest in it; five axes are (n, S, C, H, W)."""
    if device.type != "cuda":
        return task
    return Task(tuple(_channels_last(x) for x in task.inputs), task.targets)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    if x.ndim == 5:
        return x.flatten(0, 1).contiguous(memory_format=torch.channels_last).unflatten(0, x.shape[:2])
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _picture(pretext: Pretext, evaluator: Engine) -> np.ndarray:
    return pretext.picture(*evaluator.state.first)
