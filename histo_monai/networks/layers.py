"""Layers that compute as torch's do, in a precision or an order of memory that suits where they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import fx, nn


def at_full_precision(layers: nn.Module, *features: torch.Tensor) -> torch.Tensor:
    """What `layers` give in the type of their own weights, whatever autocast does around them.

    bfloat16 has 8 significant bits, too few for logits and scores.

    Args:
        layers: with parameters of one floating type, float32 as a rule.
        features: of any floating type; a trunk under autocast gives bfloat16.
    """
    dtype = next(layers.parameters()).dtype
    with torch.autocast(features[0].device.type, enabled=False):
        outputs: torch.Tensor = layers(*(x.to(dtype) for x in features))
    return outputs


class MaxPool2d(nn.MaxPool2d):
    """`nn.MaxPool2d`, the same values; without gradients on a CPU in a quarter of the time.

    Input  (N, C, H, W), of any floating type
    Output as of `nn.MaxPool2d`, in the order of memory of the input
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return _max_pool(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)


@fx.wrap
def _max_pool(
    x: torch.Tensor,
    kernel_size: int | tuple[int, ...],
    stride: int | tuple[int, ...],
    padding: int | tuple[int, ...],
    dilation: int | tuple[int, ...],
    ceil_mode: bool,
) -> torch.Tensor:
    """Through channels-last, where torch has vector instructions; with gradients its way back costs what this gains."""
    is_plain = (
        x.device.type == "cpu" and x.is_contiguous() and not (x.requires_grad and torch.is_grad_enabled())
    )
    ordered = x.contiguous(memory_format=torch.channels_last) if is_plain else x
    pooled = F.max_pool2d(ordered, kernel_size, stride, padding, dilation, ceil_mode)
    return pooled.contiguous() if is_plain else pooled
