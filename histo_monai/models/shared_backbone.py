"""Inference of several models, with one pass of each common backbone."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.optimization import fuse

from histo_monai.models.encoder import Encoder
from histo_monai.models.sharing.copies import copy_sharing
from histo_monai.models.task_model import TaskModel

_LOG = logging.getLogger(__name__)


class SharedBackbone(nn.Module):
    """Models by name; models with equal encoder tensors (a student and its teacher) run one backbone.

    For inference alone: nothing trains, and batch-norms are folded into convolutions (`folded`), which changes outputs
    by float32 rounding. The given models stay unchanged.

    Input  (N, 3, H, W), float32, 0..1
    Output name -> (N, K), float32
    """

    def __init__(self, models: Mapping[str, TaskModel]) -> None:
        super().__init__()
        encoders: list[Encoder] = []
        self._backbone_of: dict[str, int] = {}
        for name, model in models.items():
            same = [i for i, encoder in enumerate(encoders) if _equal(encoder, model.encoder)]
            self._backbone_of[name] = same[0] if same else len(encoders)
            if not same:
                encoders.append(model.encoder)
        self.backbones = nn.ModuleList(folded(encoder) for encoder in encoders)
        self._names = list(models)
        self.heads = nn.ModuleList(copy.deepcopy(model.head) for model in models.values())
        self.eval().requires_grad_(False)

    def features(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        """Name -> (N, D); models with a common backbone have one tensor."""
        of_backbones = [backbone(patches) for backbone in self.backbones]
        return {name: of_backbones[number] for name, number in self._backbone_of.items()}

    def forward(self, patches: torch.Tensor) -> dict[str, torch.Tensor]:
        """Outputs of every model."""
        features = self.features(patches)
        return {name: head(features[name]) for name, head in zip(self._names, self.heads, strict=True)}


def folded(encoder: Encoder) -> Encoder:
    """Copy in evaluation mode, with batch-norms folded into the convolutions before them.

    Exact but for rounding. Not folded, and slower: batch-norms with an activation inside (`BatchNormAct2d` of timm),
    and backbones that torch.fx cannot trace. Copies of transformers share the encoder's memory.
    """
    has_any = any(type(module) is nn.BatchNorm2d for module in encoder.trunk.modules())
    encoder = copy_sharing(encoder, () if has_any else encoder.parameters()).eval()
    if has_any:
        try:
            encoder.trunk = fuse(encoder.trunk)
        except Exception as error:  # tracing runs code of any architecture
            _LOG.debug("encoder %s: batch-norms not folded: %s", encoder.name, error)
    return encoder


def _equal(one: Encoder, other: Encoder) -> bool:
    """Whether two encoders compute equal features of every patch: equal tensors, in one architecture."""
    if _architecture(one) != _architecture(other):
        return False
    tensors, others = one.state_dict(), other.state_dict()
    if tensors.keys() != others.keys():
        return False
    return all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())


def _architecture(encoder: Encoder) -> tuple[Any, ...]:
    """Facts beside the tensors: name and arguments (activations, pooling), and the side of resized patches."""
    return encoder.name, encoder.arguments, encoder.side_px, encoder.output, encoder.depths, encoder.field
