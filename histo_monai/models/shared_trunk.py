"""Several models of a task on the same patches, for inference: what their trunks share is computed once."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping

import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from histo_monai.models.encoder import Encoder
from histo_monai.models.task_model import TaskModel

_LOG = logging.getLogger(__name__)


class SharedTrunk(nn.Module):
    """Models by name; a trunk runs once for all models whose encoders hold equal tensors (a student and its teacher's).

    For inference alone: nothing in it trains, and batch-norms are folded into the convolutions before them, where
    `folded` can, which changes outputs by float32 rounding. The models that are given stay as they are.

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
        """Name -> (N, D); models that share a trunk have one tensor."""
        of_trunks = [trunk(patches) for trunk in self.trunks]
        return {name: of_trunks[number] for name, number in self._trunk_of.items()}

    def forward(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        """Outputs of every model."""
        features = self.features(patches)
        return {name: head(features[name]) for name, head in zip(self._names, self.heads, strict=True)}


def folded(encoder: Encoder) -> Encoder:
    """A copy in evaluation mode whose batch-norms are part of the convolutions before them.

    Exact but for rounding: a convolution followed by a fixed scale and shift per channel is another convolution. Left
    as they are, and only slower for it: trunks without batch-norm (transformers), batch-norms with an activation
    inside (`BatchNormAct2d` of timm), and trunks that torch.fx cannot trace.
    """
    encoder = copy.deepcopy(encoder).eval()
    if any(type(module) is nn.BatchNorm2d for module in encoder.trunk.modules()):
        try:
            encoder.trunk = fuse(encoder.trunk)
        except Exception as error:  # tracing runs code of any architecture
            _LOG.debug("%s is not folded: %s", encoder.name, error)
    return encoder


def _equal(one: Encoder, other: Encoder) -> bool:
    tensors, others = one.state_dict(), other.state_dict()
    if one.name != other.name or tensors.keys() != others.keys():
        return False
    return all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
