"""Section `encoder` of params."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from histo_monai.utils.settings.rules import NumberOf, Range

Depth = int | None
"""Number of stages of an encoder; None: the whole encoder; `COLOR` or `FIELD`."""
COLOR = -1
"""As a depth: histograms of the stains of a patch (`models.encoders.color`), before the first stage."""
FIELD = -2
"""As a depth: features of the field around a patch at the deepest depth, before color."""
FIELD_TIMES = 2
"""Side of the field around a patch, in sides of the patch."""
_Mean = Annotated[tuple[Annotated[float, Range(-1.0, 1.0)], ...], NumberOf(3)]
_Std = Annotated[tuple[Annotated[float, Range(0.0, 1.0, exclusive_low=True)], ...], NumberOf(3)]


@dataclass(frozen=True)
class EncoderSettings:
    """Encoder at the start of pretraining: architecture and initial weights.

    Attributes:
        name: a published encoder (`histo-monai encoders`), a ResNet of torchvision, or any name of timm.
        weights: file, relative to the project's root; null: random weights. The method `random` does not use it.
        sha256: of the file, hexadecimal; another file trains anew.
        license: of the weights, in words; written into every model made from them. null: of the table.
        mean: of R, G, B at full scale 0..1, for normalization; null: published values of the name.
        std: of R, G, B at full scale 0..1, for normalization; null: published values of the name.
        side: input side, px, to which patches are resized; null: of the table, or patch_px for other names.
        arguments: of timm's `create_model`, which override the table's; null: none.
    """

    name: str
    weights: str | None
    sha256: str | None
    license: str | None
    mean: _Mean | None
    std: _Std | None
    side: Annotated[int, Range(32, 2048)] | None
    arguments: dict[str, Any] | None


def in_order(depths: Sequence[Depth]) -> tuple[Depth, ...]:
    """Depths from the shallowest on, the whole encoder last."""
    return tuple(sorted(depths, key=lambda stages: (stages is None, stages or 0)))
