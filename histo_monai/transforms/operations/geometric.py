"""Geometric operations, as matrices that are composed into one warp."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from histo_monai.transforms import geometry
from histo_monai.transforms.distributions import Quantity, Source, check_number, check_range
from histo_monai.transforms.operations.base import Geometric


@dataclass(frozen=True)
class Rotate(Geometric):
    """Rotation about the center, counter-clockwise, degrees."""

    degrees: Quantity
    name: ClassVar[str] = "rotate"

    def sample(self, source: Source) -> torch.Tensor:
        """Rotation matrices, shape (N, S, 3, 3)."""
        return geometry.rotation_matrix(self.degrees.sample(source))


@dataclass(frozen=True)
class Scale(Geometric):
    """Magnification about the center: 1.2 enlarges."""

    factor: Quantity
    name: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        check_range("scale", self.factor.bounds, 0.01, 100)

    def sample(self, source: Source) -> torch.Tensor:
        """Scaling matrices, shape (N, S, 3, 3)."""
        return geometry.scale_matrix(self.factor.sample(source))


@dataclass(frozen=True)
class Affine(Geometric):
    """Rotation (degrees), magnification and shift down and right (fractions of the side), in this order."""

    degrees: Quantity
    factor: Quantity
    shift: Quantity
    name: ClassVar[str] = "affine"

    def __post_init__(self) -> None:
        check_range("affine_scale", self.factor.bounds, 0.01, 100)

    def sample(self, source: Source) -> torch.Tensor:
        """Affine matrices, shape (N, S, 3, 3)."""
        turn, enlarge = self.degrees.sample(source), self.factor.sample(source)
        shift = geometry.shift_matrix(self.shift.sample(source, 2))
        return geometry.compose([geometry.rotation_matrix(turn), geometry.scale_matrix(enlarge), shift])


@dataclass(frozen=True)
class Flip(Geometric):
    """Mirroring left to right, or top to bottom, with probability `prob`; 1 uses no random value."""

    prob: float = 1.0
    vertical: bool = False
    name: ClassVar[str] = "flip"

    def __post_init__(self) -> None:
        check_number("flip prob", self.prob, 0, 1)

    def sample(self, source: Source) -> torch.Tensor:
        """Flip matrices, shape (N, S, 3, 3)."""
        certain = torch.ones(source.shape, dtype=torch.bool)
        flipped = certain if self.prob == 1 else source.uniform(0, 1) < self.prob
        return geometry.flip_matrix(flipped, vertical=self.vertical)


@dataclass(frozen=True)
class Crop(Geometric):
    """Random box of an area fraction, aspect ratio within 3/4-4/3, stretched to the whole."""

    area: Quantity
    name: ClassVar[str] = "crop"

    def __post_init__(self) -> None:
        check_range("crop_area", self.area.bounds, 0.01, 1)

    def sample(self, source: Source) -> torch.Tensor:
        """Crop matrices, shape (N, S, 3, 3)."""
        sides = geometry.crop_sides(self.area.sample(source), source.uniform(-1, 1))
        return geometry.crop_matrix(sides, source.uniform(0, 1, 2))
