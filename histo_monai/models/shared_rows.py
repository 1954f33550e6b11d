"""One batch in several processes: each encodes a share of its rows, and all of them have all features.

What a method of training does with views, guesses, mixtures, thresholds and losses it does in every process, on the
whole batch, with the same numbers; so none of it knows how many processes there are. Encoders, where the time goes, see
rows of their own. Pixels are read in shares, too, and exchanged as they come from the slides.
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
    """The encoders of what trains, shared by the processes of `torch.distributed`; one process has nothing to share.

    Batch-norms span the processes from then on.

    Args:
        network: what trains, and what guesses for it, in evaluation mode or not; on its device.

    Raises:
        InputError: see `synchronise_batchnorm`.
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
        """Encoders that are called in it take a share of the rows each, and give the features of all of them."""
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
        """Rows of this process, as many as each other one has -> those of all, in their order, without gradient."""
        return own if self._num == 1 else _gathered(own, self._num * len(own))

    def sum_gradients(self) -> None:
        """After `backward`: of encoders the sum over the processes; of all else the mean, which is what each has."""
        if self._num == 1:
            return
        of_encoders = {id(part) for encoder in self._encoders for part in encoder.parameters()}
        found = [
            (part.grad, 1 if id(part) in of_encoders else self._num)
            for part in self._parameters
            if part.grad is not None
        ]
        if not found:
            return
        flat = torch.cat([gradient.flatten() for gradient, _ in found])
        dist.all_reduce(flat)
        summed = flat.split([gradient.numel() for gradient, _ in found])
        for (gradient, times), total in zip(found, summed, strict=True):
            gradient.copy_(total.view_as(gradient) / times)


def share_of(rank: int, num_ranks: int, num: int) -> slice:
    """Rows of a process: contiguous, one more for the first `num % num_ranks` of them (as `numpy.array_split`)."""
    each, more = divmod(num, num_ranks)
    first = rank * each + min(rank, more)
    return slice(first, first + each + (rank < more))


def _take_own(rows: list[int]) -> Any:
    def hook(module: nn.Module, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        rows[:] = [len(inputs[0])]
        return (inputs[0][share_of(dist.get_rank(), dist.get_world_size(), len(inputs[0]))],)

    return hook


def _give_all(rows: list[int]) -> Any:
    def hook(module: nn.Module, inputs: Any, features: torch.Tensor) -> torch.Tensor:
        return _AllRows.apply(features, rows[0])

    return hook


class _AllRows(torch.autograd.Function):
    """Rows of all processes. Each computes the same loss of them, so the gradient of its own rows is here already."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, num: int) -> torch.Tensor:
        ctx.share = share_of(dist.get_rank(), dist.get_world_size(), num)
        return _gathered(own, num)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0][ctx.share].contiguous(), None


def _gathered(own: torch.Tensor, num: int) -> torch.Tensor:
    """Shares of equal length, the last rows of the shorter ones of no meaning, are exchanged and put together."""
    num_ranks = dist.get_world_size()
    longest = -(-num // num_ranks)
    padded = own.new_zeros((longest, *own.shape[1:]))
    padded[: len(own)] = own
    parts = [torch.empty_like(padded) for _ in range(num_ranks)]
    dist.all_gather(parts, padded)
    shares = [share_of(rank, num_ranks, num) for rank in range(num_ranks)]
    return torch.cat([part[: share.stop - share.start] for part, share in zip(parts, shares, strict=True)])
