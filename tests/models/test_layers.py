"""Layers are those of torch, computed otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from histo_monai.models.layers import MaxPool2d

POOLS = [
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2},
    {"kernel_size": 2, "ceil_mode": True},
    {"kernel_size": (3, 1), "dilation": 2},
]
ORDERS = [torch.contiguous_format, torch.channels_last]


@pytest.mark.parametrize("settings", POOLS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("is_learning", [True, False])
def test_max_pooling_is_that_of_torch(
    settings: dict[str, int], order: torch.memory_format, dtype: torch.dtype, is_learning: bool
) -> None:
    torch.manual_seed(0)
    x = torch.randint(-3, 3, (5, 7, 13, 12)).to(dtype).contiguous(memory_format=order)  # many are the same
    x[0, 0, 3, 4] = float("nan")
    ours, theirs = (x.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    with torch.set_grad_enabled(is_learning):
        found, expected = MaxPool2d(**settings)(ours), nn.MaxPool2d(**settings)(theirs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True, check_stride=True)
    if is_learning:
        weights = torch.rand(expected.shape).to(dtype)
        for pooled in (found, expected):
            (pooled * weights).nansum().backward()
        assert torch.equal(ours.grad, theirs.grad)


def test_a_trace_does_not_look_at_the_order_of_memory() -> None:
    traced = fx.symbolic_trace(nn.Sequential(MaxPool2d(2)))
    for order in ORDERS:
        x = torch.rand(2, 3, 8, 8).contiguous(memory_format=order)
        assert torch.equal(traced(x), nn.MaxPool2d(2)(x))
        assert traced(x).stride() == nn.MaxPool2d(2)(x).stride()
