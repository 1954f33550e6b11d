"""Training engine of all `Pretext` methods."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from ignite.engine import Engine
from torch import nn

from histo_monai.data.loaders.resident import PatchLoader
from histo_monai.models.batchnorm import freeze_statistics, synchronise_batchnorm
from histo_monai.models.encoder import Encoder
from histo_monai.pretraining.protocol import Pretext, Task
from histo_monai.training.device import in_memory_order, precision, seed_random_layers, to_device
from histo_monai.training.fit import Records, fit
from histo_monai.training.graphs import EncoderGraphs
from histo_monai.training.handlers import BestState, ScheduledRates
from histo_monai.training.means import attach_means
from histo_monai.training.schedule import Rates
from histo_monai.utils.randomness import Step
from histo_monai.utils.ranks import num_ranks, this_rank


@dataclass(frozen=True)
class PretrainResult:
    """Result of a pretraining.

    Attributes:
        curves: one row per epoch: epoch, lr, train_loss, ..., validation_loss, ...
        best_epoch: epoch of the saved weights, 0 without training; `Pretext.network` holds them.
        validation: mean of each measure over the validation samples, with the saved weights.
        picture: a validation batch with the network's outputs, (H, W, 3) uint8.
    """

    curves: list[dict[str, float]]
    best_epoch: int
    validation: dict[str, float]
    picture: np.ndarray


def pretrain(
    pretext: Pretext,
    training: PatchLoader | None,
    validation: PatchLoader | None,
    *,
    seed: int,
    device: torch.device,
    records: Records,
    rates: Rates | None = None,
    freezes_batchnorm: bool = False,
) -> PretrainResult:
    """Train with validation after every epoch; `pretext.network` ends with the saved weights.

    The saved weights are those of the lowest validation loss, or the last ones (`Pretext.KEEPS_BEST`).

    Runs in each process of `ignite.distributed`. Batch-norm statistics span the processes, so their number does not
    change the training. Random decisions are functions of (seed, epoch, iteration).

    Args:
        pretext: the method; its network is moved to `device`.
        training: batches of this process; its `batch_sampler` has `set_epoch`. None where `pretext.epochs` is 0.
        validation: batches of this process, in a fixed order. None where nothing trains: nothing is measured.
        seed: of every random decision after initialization.
        rates: learning rates of the steps, relative to the optimizer's; None: constant.
        freezes_batchnorm: whether batch-norms of encoders keep their statistics.

    Raises:
        ArithmeticError: the loss is not finite; names epoch, iteration and remedy.
    """
    if validation is None:
        if pretext.epochs:
            raise ValueError(f"validation is None, but the method trains {pretext.epochs} epochs")
        return PretrainResult([], 0, {}, np.full((1, 1, 3), 255, np.uint8))
    network = placed(pretext.network, device)
    optimizer = pretext.optimizer(network)
    trainer = _trainer(pretext, network, optimizer, seed, device, freezes_batchnorm=freezes_batchnorm)
    if rates is not None:
        ScheduledRates(optimizer, rates).attach(trainer)
    evaluator = _evaluator(pretext, device)
    best = BestState(pretext.network) if pretext.KEEPS_BEST and pretext.epochs else None
    curves = fit(
        trainer,
        evaluator,
        training,
        validation,
        epochs=pretext.epochs,
        optimizer=optimizer,
        parts={"network": pretext.network, "optimizer": optimizer},
        best=best,
        rank=lambda means: (means["loss"],),
        pictures={"answers": lambda: _picture(pretext, evaluator)},
        images_per_step=pretext.batch_size * len(pretext.mpps) // num_ranks(),
        records=records,
        prefix="pretext_",
    )
    evaluator.run(validation)
    epoch = best.epoch if best else len(curves)
    return PretrainResult(curves, epoch, dict(evaluator.state.metrics), _picture(pretext, evaluator))


def placed(network: nn.Module, device: torch.device) -> nn.Module:
    """Network on its device in the fast memory order; wrapped in DDP for several processes."""
    to_device(network, device)
    if num_ranks() == 1:
        return network
    synchronise_batchnorm(network, device)
    ids = [device.index] if device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(network, device_ids=ids, broadcast_buffers=False)


def _trainer(
    pretext: Pretext,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    seed: int,
    device: torch.device,
    *,
    freezes_batchnorm: bool,
) -> Engine:
    graphs = EncoderGraphs(network, device)
    frozen = [part for part in network.modules() if isinstance(part, Encoder)] if freezes_batchnorm else []

    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        network.train()
        for encoder in frozen:
            freeze_statistics(encoder)
        patches, rows = (part.to(device, non_blocking=True) for part in batch)
        now = Step(seed, engine.state.epoch, engine.state.iteration, this_rank(), num_ranks())
        task = pretext.training_task(patches, rows, now)
        seed_random_layers(now, device)
        return training_step(pretext, network, optimizer, task, device, graphs)

    trainer = Engine(step)
    attach_means(trainer, pretext.MEASURES)
    return trainer


def training_step(
    pretext: Pretext,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    task: Task,
    device: torch.device,
    graphs: EncoderGraphs | None = None,
) -> dict[str, torch.Tensor]:
    """Run forward, backward and optimizer on one task; returns measures per sample."""
    task = _in_memory_order(task, device)
    with precision(device), graphs or nullcontext():
        outputs = network(*task.inputs)
    measured = pretext.measure(outputs, task)
    optimizer.zero_grad(set_to_none=True)
    measured["loss"].mean().backward()
    optimizer.step()
    pretext.after_step(outputs, task)
    return {name: values.detach() for name, values in measured.items()}


def _evaluator(pretext: Pretext, device: torch.device) -> Engine:
    @torch.no_grad()
    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> dict[str, torch.Tensor]:
        pretext.network.eval()
        patches, rows = (part.to(device, non_blocking=True) for part in batch)
        task = _in_memory_order(pretext.validation_task(patches, rows), device)
        with precision(device):
            outputs = pretext.network(*task.inputs)
        if engine.state.iteration == 1:
            engine.state.first = (outputs, task)
        return pretext.measure(outputs, task)

    evaluator = Engine(step)
    attach_means(evaluator, pretext.MEASURES)
    return evaluator


def _in_memory_order(task: Task, device: torch.device) -> Task:
    return Task(tuple(in_memory_order(x, device) for x in task.inputs), task.targets)


def _picture(pretext: Pretext, evaluator: Engine) -> np.ndarray:
    return pretext.picture(*evaluator.state.first)
