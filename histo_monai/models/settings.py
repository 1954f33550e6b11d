"""What params can set of the encoder, in the section `encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from histo_monai.utils.settings.rules import NumberOf, Range

_Mean = Annotated[tuple[Annotated[float, Range(-1.0, 1.0)], ...], NumberOf(3)]
_Std = Annotated[tuple[Annotated[float, Range(0.0, 1.0, exclusive_low=True)], ...], NumberOf(3)]


@dataclass(frozen=True)
class EncoderSettings:
    """The encoder that methods pretrain: its architecture, and published weights to start from.

    Attributes:
        name: a ResNet of torchvision, any name of timm, or one in `ENCODERS`.
        weights: file, from the project's root; null starts at random. The method `random` does so in any case.
        sha256: of the file, hexadecimal. What is recorded is what was loaded, and another file trains anew.
        license: of the weights, in words; goes into the record of every model made from them.
        mean: of R, G, B at full scale 0..1, that the weights were trained with; null: those published for the name.
        std: likewise.
    """

    name: str
    weights: str | None
    sha256: str | None
    license: str | None
    mean: _Mean | None
    std: _Std | None
