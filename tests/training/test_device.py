"""Memory order of networks on their device."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from histo_monai.models.encoder import build_encoder
from histo_monai.training.device import in_memory_order, seed_random_layers, to_device
from histo_monai.utils.randomness import Step

CPU = torch.device("cpu")


def _orders(network: nn.Module) -> set[bool]:
    """Whether wide filters, whose order shows in their strides, lie in channels-last."""
    filters = [part for part in network.parameters() if part.ndim == 4 and min(part.shape[1:3]) > 1]
    return {part.is_contiguous(memory_format=torch.channels_last) for part in filters}


@pytest.mark.parametrize(("name", "is_channels_last"), [("resnet18", False), ("test_efficientnet", True)])
def test_on_a_cpu_depthwise_networks_alone_are_channels_last(name: str, is_channels_last: bool) -> None:
    network = build_encoder(name, 32)
    to_device(network, CPU)
    assert _orders(network) == {is_channels_last}


def test_the_order_changes_neither_outputs_nor_gradients() -> None:
    ordered = build_encoder("test_efficientnet", 64).train()
    plain = copy.deepcopy(ordered)
    to_device(ordered, CPU)
    patches = torch.rand(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    weights = torch.linspace(-1, 1, ordered.num_features)
    for network, batch in ((ordered, in_memory_order(patches, CPU)), (plain, patches)):
        (network(batch) * weights).sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(ordered(patches), plain(patches), rtol=1e-4, atol=1e-5)
    for mine, other in zip(ordered.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        largest = float(other.grad.abs().max())  # 0 before a batch-norm, but for rounding
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-3 * largest + 1e-6)


def test_random_layers_drop_the_same_in_a_repeated_step_and_other_units_in_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dropped(step: Step) -> torch.Tensor:
        seed_random_layers(step, CPU)
        return nn.Dropout(0.5)(torch.ones(64))

    step = Step(seed=3, epoch=1, iteration=7)
    first = dropped(step)
    assert dropped(step).equal(first)
    assert not dropped(Step(seed=3, epoch=1, iteration=8)).equal(first)
    monkeypatch.setattr("histo_monai.training.device.this_rank", lambda: 1)
    assert not dropped(step).equal(first)
