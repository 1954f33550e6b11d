"""Means over the samples of an epoch, across processes."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from ignite.engine import Engine
from ignite.metrics import Metric


class SampleMean(Metric):
    """Mean of per-sample values, summed in float64 on their device without synchronization."""

    def reset(self) -> None:
        """Discard all values."""
        self._sum = torch.zeros((), dtype=torch.float64)  # goes to the device of the first value
        self._count: torch.Tensor | int = 0

    def update(self, output: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> None:
        """Add a batch of values (n,), or of values with a mask (n,), bool."""
        if isinstance(output, tuple):
            values, counted = output
            self._sum = self._sum + values.detach().double().where(counted, 0.0).sum()
            self._count = self._count + counted.sum()
        else:
            self._sum = self._sum + output.detach().double().sum()
            self._count += output.numel()

    def compute(self) -> float:
        """Mean over all processes; NaN without values. Synchronizes the GPU."""
        count = torch.as_tensor(self._count).to(self._sum)
        totals = torch.stack([self._sum, count])
        if dist.is_initialized():
            if dist.get_backend() == "nccl":  # Without values the sum is on the CPU.
                totals = totals.cuda()
            dist.all_reduce(totals)
        return float(totals[0] / totals[1])


def attach_means(engine: Engine, names: Iterable[str]) -> None:
    """Set `engine.state.metrics[name]` at each epoch's end, from dicts of values for `SampleMean`."""
    for name in names:
        SampleMean(output_transform=lambda output, name=name: output[name]).attach(engine, name)
