"""Means over the samples of an epoch, across processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from ignite.engine import Engine
from ignite.metrics import Metric
from ignite.metrics.metric import reinit__is_reduced, sync_all_reduce


class SampleMean(Metric):
    """Mean of values that come per sample, Shape (n,); summed in float64 on the device, so no step waits for it."""

    @reinit__is_reduced
    def reset(self) -> None:
        """Forget all values."""
        self._sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._count = torch.zeros((), dtype=torch.float64, device=self._device)

    @reinit__is_reduced
    def update(self, output: torch.Tensor) -> None:
        """Add the values of a batch."""
        self._sum += output.detach().double().sum().to(self._device)
        self._count += output.numel()

    @sync_all_reduce("_sum", "_count")
    def compute(self) -> float:
        """The mean over all processes; NaN if there was no value."""
        return float(self._sum / self._count)


def attach_means(engine: Engine, names: Iterable[str]) -> None:
    """Give `engine.state.metrics[name]` at the end of each epoch, from outputs that are dicts of Shape (n,) tensors."""
    for name in names:
        SampleMean(output_transform=lambda output, name=name: output[name]).attach(engine, name)
