"""One batch in several processes: each process encodes some rows, and all processes have all features.

Views, pseudo labels, mixtures, thresholds and losses are computed in every process on the whole batch, with equal
results. So methods need no code for several processes. Only encoders, which take most time, divide rows. Pixels are
read in parts, too, and exchanged after reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from histo_monai.models.batchnorm import synchronise_batchnorm
from histo_monai.models.encoder import Encoder


class SharedRows:
    """Division of a network's encoder passes over the processes of `torch.distributed`; no effect in one process.

    Batch-norms span the processes from then on.

    Args:
        network: trained modules and their averaged copies, on their device.

    Raises:
        InputError: a kind of batch-norm cannot span processes.
    """

    def __init__(self, network: nn.Module, device: torch.device) -> None:
        self._num = dist.get_world_size() if dist.is_initialized() else 1
        if self._num == 1:
            self._encoders: list[Encoder] = []
            return
        self._encoders = [module for module in network.modules() if isinstance(module, Encoder)]
        for encoder in self._encoders:
            synchronise_batchnorm(encoder, device)
        self._parameters = list(network.parameters())

    @contextmanager
    def divided(self) -> Iterator[None]:
        """Context in which encoders compute a part of the rows in each process and return the features of all rows."""
        hooks: list[Any] = []
        for encoder in self._encoders:
            rows: list[int] = []
            hooks.append(encoder.register_forward_pre_hook(_take_own(rows)))
            hooks.append(encoder.register_forward_hook(_give_all(rows)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def all_rows(self, own: torch.Tensor) -> torch.Tensor:
        """Rows of all processes in rank order, without gradient; each process has an equal number."""
        return own if self._num == 1 else _gathered(own, self._num * len(own))

    def sum_gradients(self) -> None:
        """Sum encoder gradients over the processes and average all other gradients, after `backward`."""
        if self._num == 1:
            return
        of_encoders = {id(part) for encoder in self._encoders for part in encoder.parameters()}
        gradients = [
            (part.grad, 1 if id(part) in of_encoders else self._num)
            for part in self._parameters
            if part.grad is not None
        ]
        if not gradients:
            return
        flat = torch.cat([gradient.flatten() for gradient, _ in gradients])
        dist.all_reduce(flat)
        summed = flat.split([gradient.numel() for gradient, _ in gradients])
        for (gradient, times), total in zip(gradients, summed, strict=True):
            gradient.copy_(total.view_as(gradient) / times)


def rows_of_rank(rank: int, num_ranks: int, num: int) -> slice:
    """Contiguous rows of a process; the first `num % num_ranks` processes have one more (as `numpy.array_split`)."""
    each, more = divmod(num, num_ranks)
    first = rank * each + min(rank, more)
    return slice(first, first + each + (rank < more))


def _take_own(rows: list[int]) -> Any:
    def hook(module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        rows[:] = [len(inputs[0])]
        return (inputs[0][rows_of_rank(dist.get_rank(), dist.get_world_size(), len(inputs[0]))],)

    return hook


def _give_all(rows: list[int]) -> Any:
    def hook(module: nn.Module, inputs: Any, features: torch.Tensor) -> torch.Tensor:
        return _AllRows.apply(features, rows[0])

    return hook


class _AllRows(torch.autograd.Function):
    """Rows of all processes. Every process computes an equal loss, so the gradient of its own rows is local."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, num: int) -> torch.Tensor:
        ctx.rows = rows_of_rank(dist.get_rank(), dist.get_world_size(), num)
        return _gathered(own, num)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0][ctx.rows].contiguous(), None


def _gathered(own: torch.Tensor, num: int) -> torch.Tensor:
    """Rows of all processes in rank order; shorter parts are padded for the exchange."""
    num_ranks = dist.get_world_size()
    longest = -(-num // num_ranks)
    padded = own.new_zeros((longest, *own.shape[1:]))
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in range(num_ranks)]
    dist.all_gather(parts, padded)
    of_ranks = [rows_of_rank(rank, num_ranks, num) for rank in range(num_ranks)]
    return torch.cat([part[: rows.stop - rows.start] for part, rows in zip(parts, of_ranks, strict=True)])
