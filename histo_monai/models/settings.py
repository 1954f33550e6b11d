"""What params can set of the encoder, in the section `encoder`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from histo_monai.utils.settings.rules import NumberOf, Range

_Mean = Annotated[tuple[Annotated[float, Range(-1.0, 1.0)], ...], NumberOf(3)]
_Std = Annotated[tuple[Annotated[float, Range(0.0, 1.0, exclusive_low=True)], ...], NumberOf(3)]


@dataclass(frozen=True)
class EncoderSettings:
    """The encoder that methods pretrain: its architecture, and published weights to start from.

    Attributes:
        name: a published encoder (`histo-monai encoders`), a ResNet of torchvision, or any name of timm.
        weights: file, from the project's root; null starts at random. The method `random` does so in any case.
        sha256: of the file, hexadecimal. What is recorded is what was loaded, and another file trains anew.
        license: of the weights, in words; goes into the record of every model made from them.
        mean: of R, G, B at full scale 0..1, that the weights were trained with; null: those published for the name.
        std: likewise.
        side: input side, px, to which patches are resized; null: the side that the published encoder was trained at, or
            patch_px for a network of your own.
        arguments: of timm's `create_model`, by name; they override the table's. null: none.
    """

    name: str
    weights: str | None
    sha256: str | None
    license: str | None
    mean: _Mean | None
    std: _Std | None
    side: Annotated[int, Range(32, 2048)] | None
    arguments: dict[str, Any] | None
