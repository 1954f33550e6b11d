"""The ten operations of the paper: their names, and the values that each needs per patch."""

from dataclasses import dataclass

import numpy as np
import torch

from histo_monai.transforms import geometry, intensity, photometric, stain
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import UNUSED, compose_in_sequence

GEOMETRIC = ("rotate", "scale", "affine", "flip", "crop")
NAMES = (*GEOMETRIC, *photometric.NAMES)


@dataclass(frozen=True)
class OperationValues:
    """What each operation does to each patch if it is scheduled; float64, shape (N, S) unless said otherwise.

    Attributes:
        rotation_deg: Of rotate.
        scale: Of scale, magnification.
        affine_rotation_deg: Of affine, which rotates, magnifies and shifts, in this order.
        affine_scale: Magnification.
        affine_shift_yx: Fractions of the side, shape (N, S, 2).
        crop_area: Of crop, fraction of the area.
        crop_stretch: Where its aspect ratio lies (`geometry.crop_sides`).
        crop_position_yx: Where it lies (`geometry.crop_matrix`), shape (N, S, 2).
        noise_sigma: Of noise, fraction of full scale; the sign is the noise's sign.
        noise_start: Where its stretch of the pool begins (`intensity.add_noise`), whole numbers.
        hue_turns: Of hue_saturation.
        saturation: Ratio (`intensity.adjust_hue_saturation`).
        brightness: Of brightness_contrast, factor.
        contrast: Factor.
        blur_kernel: Of blur, odd, int64.
        hed_factors: Of hed, relative change of the three stains, shape (N, S, 3).
        hed_shifts: Change of optical density (base 10), shape (N, S, 3).
    """

    rotation_deg: torch.Tensor
    scale: torch.Tensor
    affine_rotation_deg: torch.Tensor
    affine_scale: torch.Tensor
    affine_shift_yx: torch.Tensor
    crop_area: torch.Tensor
    crop_stretch: torch.Tensor
    crop_position_yx: torch.Tensor
    noise_sigma: torch.Tensor
    noise_start: torch.Tensor
    hue_turns: torch.Tensor
    saturation: torch.Tensor
    brightness: torch.Tensor
    contrast: torch.Tensor
    blur_kernel: torch.Tensor
    hed_factors: torch.Tensor
    hed_shifts: torch.Tensor

    def scheduled(
        self, schedule: np.ndarray, noise_seed: int, max_kernel: int, base: torch.Tensor | None = None
    ) -> ViewParameters:
        """The parameters of views to which each sample's operations are applied in its order.

        The geometric ones are composed, in their order, into one warp, which comes first; the photometric ones
        follow in their order.

        Args:
            schedule: Shape (N, steps): numbers into `NAMES`, or `UNUSED`.
            noise_seed: Seed of the pixel noise.
            max_kernel: The largest blur kernel that can occur.
            base: Geometry before everything else, shape (N, S, 3, 3).
        """
        matrices = compose_in_sequence(self._matrices(), schedule)
        # Unused steps go to the end: fewer, fuller groups for `apply_in_sequence`.
        own = np.where(schedule >= len(GEOMETRIC), schedule - len(GEOMETRIC), UNUSED)
        compact = np.take_along_axis(own, np.argsort(own == UNUSED, axis=1, kind="stable"), axis=1)
        return ViewParameters(
            matrices if base is None else base @ matrices,
            compact[:, : len(photometric.NAMES)],
            self._photometric_columns(max_kernel),
            noise_seed,
        )

    def _matrices(self) -> list[torch.Tensor]:
        affine = [
            geometry.rotation_matrix(self.affine_rotation_deg),
            geometry.scale_matrix(self.affine_scale),
            geometry.shift_matrix(self.affine_shift_yx),
        ]
        sides = geometry.crop_sides(self.crop_area, self.crop_stretch)
        return [
            geometry.rotation_matrix(self.rotation_deg),
            geometry.scale_matrix(self.scale),
            geometry.compose(affine),
            geometry.flip_matrix(torch.ones(self.scale.shape, dtype=torch.bool)),
            geometry.crop_matrix(sides, self.crop_position_yx),
        ]

    def _photometric_columns(self, max_kernel: int) -> tuple[torch.Tensor, ...]:
        shape = self.hed_factors.shape[:2]
        linear, offset = stain.hed_map(self.hed_factors.flatten(0, 1), self.hed_shifts.flatten(0, 1))
        return (
            torch.stack([self.noise_sigma, self.noise_start], dim=-1),
            torch.stack([self.hue_turns, self.saturation], dim=-1),
            torch.stack([self.brightness, self.contrast], dim=-1),
            intensity.gaussian_weights(self.blur_kernel, max_kernel),
            torch.cat([linear.flatten(1), offset.flatten(1)], dim=1).unflatten(0, shape),
        )
