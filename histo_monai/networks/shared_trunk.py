"""Several models of a task on the same patches, for inference: what their trunks share is computed once."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from histo_monai.networks.encoder import Encoder
from histo_monai.networks.task_model import TaskModel


class SharedTrunk(nn.Module):
    """Models by name; a trunk runs once for all models whose encoders hold equal tensors (a student and its teacher's).

    For inference alone: nothing in it trains, and batch-norms are folded into the convolutions before them, which
    changes outputs by float32 rounding. The models that are given stay as they are.

    Input  (N, 3, H, W), float32, 0..1
    Output name -> (N, K), float32

    Args:
        models: by name.
    """

    def __init__(self, models: Mapping[str, TaskModel]) -> None:
        super().__init__()
        encoders: list[Encoder] = []
        self._trunk_of: dict[str, int] = {}
        for name, model in models.items():
            same = [i for i, encoder in enumerate(encoders) if _equal(encoder, model.encoder)]
            self._trunk_of[name] = same[0] if same else len(encoders)
            if not same:
                encoders.append(model.encoder)
        self.trunks = nn.ModuleList(folded(encoder) for encoder in encoders)
        self._names = list(models)
        self.heads = nn.ModuleList(copy.deepcopy(model.head) for model in models.values())
        self.eval().requires_grad_(False)

    def features(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        """Name -> (N, 512); models that share a trunk have one tensor."""
        found = [trunk(patches) for trunk in self.trunks]
        return {name: found[number] for name, number in self._trunk_of.items()}

    def forward(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        """Outputs of every model."""
        features = self.features(patches)
        return {name: head(features[name]) for name, head in zip(self._names, self.heads, strict=True)}


def folded(encoder: Encoder) -> Encoder:
    """A copy in evaluation mode whose batch-norms are part of the convolutions before them.

    Exact but for rounding: a convolution followed by a fixed scale and shift per channel is another convolution.
    """
    encoder = copy.deepcopy(encoder).eval()
    trunk = encoder.trunk
    blocks = [block for layer in (trunk.layer1, trunk.layer2, trunk.layer3, trunk.layer4) for block in layer]
    for part in (trunk, *blocks):
        for convolution, norm in (("conv1", "bn1"), ("conv2", "bn2")):
            if hasattr(part, convolution):
                fused = fuse_conv_bn_eval(getattr(part, convolution), getattr(part, norm))
                setattr(part, convolution, fused)
                setattr(part, norm, nn.Identity())
    for block in blocks:
        if block.downsample is not None:
            block.downsample = fuse_conv_bn_eval(*block.downsample)
    return encoder


def _equal(one: Encoder, other: Encoder) -> bool:
    tensors = other.state_dict()
    return all(torch.equal(tensor, tensors[name]) for name, tensor in one.state_dict().items())
