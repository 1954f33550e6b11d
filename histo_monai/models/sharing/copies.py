"""Copies of a network that share the memory of its frozen parameters."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def frozen_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Parameters without gradient."""
    return [part for part in network.parameters() if not part.requires_grad]


def common_parameters(one: nn.Module, other: nn.Module) -> list[nn.Parameter]:
    """Parameters of a network in the memory of another network's parameters; both are frozen there."""
    places = {part.data_ptr() for part in other.parameters()}
    return [part for part in one.parameters() if part.data_ptr() in places]


def copy_sharing(network: Network, shared: Iterable[nn.Parameter]) -> Network:
    """Copy of a network; the parameters in `shared` share their memory with it, all other tensors are copied."""
    memo: dict[int, Any] = {
        id(part): nn.Parameter(part.detach(), requires_grad=part.requires_grad) for part in shared
    }
    return copy.deepcopy(network, memo)


@torch.no_grad()
def separate(network: nn.Module) -> None:
    """Give the parameters that train memory of their own."""
    for part in network.parameters():
        if part.requires_grad:
            part.data = part.data.clone()


class TrainedState:
    """State of a network without its frozen parameters, for checkpoints.

    Args:
        network: for example student and average.
        frozen: parameters that do not change; other parameters in the same memory do not change either.
    """

    def __init__(self, network: nn.Module, frozen: Iterable[nn.Parameter]) -> None:
        places = {part.data_ptr() for part in frozen}
        named = network.named_parameters(remove_duplicate=False)
        self._network = network
        self._frozen = {name for name, part in named if part.data_ptr() in places}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Tensors that change, by name."""
        state = self._network.state_dict()
        return {name: tensor for name, tensor in state.items() if name not in self._frozen}

    def load_state_dict(self, state_dict: dict[str, torch.Tensor]) -> None:
        """Restore a state from `state_dict`; frozen parameters stay."""
        present = self._network.state_dict()
        self._network.load_state_dict({**{name: present[name] for name in self._frozen}, **state_dict})
