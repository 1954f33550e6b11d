"""Views: from a uint8 batch on a device to the float batch that a network sees."""

import torch

from histo_monai.transforms import geometry, operations
from histo_monai.transforms.augmentation import (
    Augmentation,
    Range,
    check_number,
    check_patches,
    check_range,
    render,
)
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import draw_schedule


def plain_view(patches: torch.Tensor, size_px: int) -> torch.Tensor:
    """The view without augmentation: area-correct resize to `size_px`, 0..1.

    Args:
        patches: Shape (N, S, 3, H, H), uint8.
        size_px: Side of the view.

    Returns:
        Shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.

    Raises:
        ValueError: `patches` has another shape or type.
    """
    check_patches(patches)
    flat = patches.flatten(0, 1)
    if flat.shape[-1] == size_px:
        view = flat.to(torch.float32).mul_(1 / 255)
    else:
        matrices = torch.eye(3, dtype=torch.float64).expand(len(flat), 3, 3)
        view = geometry.warp(flat, matrices, size_px)
    return view.unflatten(0, patches.shape[:2])


class PretrainAugmentation(Augmentation[ViewParameters, torch.Tensor]):
    """The augmentation of self-supervised pretraining (paper, section "Implementation details").

    Ten operations, "applied in sequence by randomly selecting them": each sample draws which of them it
    gets (each with probability `prob`) and in which order. The S patches of a sample share selection and
    order; every patch draws its own magnitudes. The geometric operations are composed, in their order, into
    one affine warp (pixels beyond the edge are mirrored, shrinking averages: see `geometry.warp`), which
    comes first; the photometric ones follow in their order.

    Reading of the paper where it leaves room:
        * rotation, scale, affine: about the patch's centre. Scale is the magnification (1.2 enlarges);
          "affine scale 0.5" is 1 ± 0.5, the shift is a fraction of the side, per axis.
        * random resized crop: 0.7-1.0 of the area (the range the paper gives for MoCo's crop; silent here),
          aspect ratio within 3/4-4/3, stretched back.
        * hue: ± 0.1 of a full turn. Saturation: the ratio of Tellez et al. 2019, -1 is grey, +1 is S (2 - S).
        * brightness, contrast: factors 1 ± 0.2, brightness first.
        * blur: Gaussian, odd kernel drawn uniformly.
        * HED: concentration of each stain times (1 ± 0.035) plus ± 0.035 optical density (base 10); Tellez
          et al. perturb by a factor and a shift.

    Args:
        size_px: Side of the views.
        prob: Of each operation. The paper gives none; one half is what its authors' library defaults to.
        rotation_deg: Largest angle, either way.
        scale: Smallest and largest magnification.
        affine_shift: Largest shift, fraction of the side.
        affine_scale: Largest departure of the magnification from 1.
        affine_rotation_deg: Largest angle, either way.
        crop_area: Smallest and largest fraction of the area.
        noise_sigma: Largest standard deviation, fraction of full scale.
        hue: Largest shift, fraction of a full turn.
        saturation: Largest ratio, at most 1.
        brightness: Largest departure of the factor from 1.
        contrast: Largest departure of the factor from 1.
        blur_kernel: Smallest and largest kernel, odd.
        hed: Largest relative change and shift of H, E and D.

    Raises:
        ValueError: A range is empty or impossible.
    """

    def __init__(
        self,
        size_px: int,
        prob: float = 0.5,
        *,
        rotation_deg: float = 90.0,
        scale: Range = (0.8, 1.2),
        affine_shift: float = 0.0625,
        affine_scale: float = 0.5,
        affine_rotation_deg: float = 45.0,
        crop_area: Range = (0.7, 1.0),
        noise_sigma: float = 0.1,
        hue: float = 0.1,
        saturation: float = 1.0,
        brightness: float = 0.2,
        contrast: float = 0.2,
        blur_kernel: tuple[int, int] = (3, 7),
        hed: float = 0.035,
    ) -> None:
        super().__init__(size_px, prob)
        check_number("affine_scale", affine_scale, 0, 0.99)
        check_number("saturation", saturation, 0, 1)
        check_number("brightness", brightness, 0, 1)
        check_number("contrast", contrast, 0, 1)
        check_number("noise_sigma", noise_sigma, 0, 1)
        check_range("scale", scale, 0.01, 100)
        check_range("crop_area", crop_area, 0.01, 1)
        check_range("blur_kernel", blur_kernel, 1, 2 * size_px - 1)
        if blur_kernel[0] % 2 == 0 or blur_kernel[1] % 2 == 0:
            raise ValueError(f"blur_kernel: two odd numbers expected, got {blur_kernel}")
        self.rotation_deg = rotation_deg
        self.scale = scale
        self.affine_shift = affine_shift
        self.affine_scale = affine_scale
        self.affine_rotation_deg = affine_rotation_deg
        self.crop_area = crop_area
        self.noise_sigma = noise_sigma
        self.hue = hue
        self.saturation = saturation
        self.brightness = brightness
        self.contrast = contrast
        self.blur_kernel = blur_kernel
        self.hed = hed

    def randomize(self, num_samples: int, num_scales: int) -> ViewParameters:
        """Draws selection, order and magnitudes of one batch: see `Augmentation.randomize`."""
        schedule = draw_schedule(self.R, num_samples, len(operations.NAMES), self.prob)
        values = self._draw_values((num_samples, num_scales))
        return values.scheduled(schedule, self._noise_seed(), self.blur_kernel[1])

    def apply(self, patches: torch.Tensor, drawn: ViewParameters) -> torch.Tensor:
        """Augments one batch with parameters that are drawn already: see `Augmentation.apply`."""
        return render(patches, drawn, self.size_px)

    def _draw_values(self, shape: tuple[int, int]) -> operations.OperationValues:
        smallest, largest = self.blur_kernel
        return operations.OperationValues(
            rotation_deg=self._uniform(-self.rotation_deg, self.rotation_deg, shape),
            scale=self._uniform(*self.scale, shape),
            affine_rotation_deg=self._uniform(-self.affine_rotation_deg, self.affine_rotation_deg, shape),
            affine_scale=self._uniform(1 - self.affine_scale, 1 + self.affine_scale, shape),
            affine_shift_yx=self._uniform(-self.affine_shift, self.affine_shift, (*shape, 2)),
            crop_area=self._uniform(*self.crop_area, shape),
            crop_stretch=self._uniform(-1, 1, shape),
            crop_position_yx=self._uniform(0, 1, (*shape, 2)),
            # The sign picks the sign of the noise.
            noise_sigma=self._uniform(-self.noise_sigma, self.noise_sigma, shape),
            noise_start=self._noise_start(shape),
            hue_turns=self._uniform(-self.hue, self.hue, shape),
            saturation=self._uniform(-self.saturation, self.saturation, shape),
            brightness=self._uniform(1 - self.brightness, 1 + self.brightness, shape),
            contrast=self._uniform(1 - self.contrast, 1 + self.contrast, shape),
            blur_kernel=torch.from_numpy(2 * self.R.randint(smallest // 2, largest // 2 + 1, shape) + 1),
            hed_factors=self._uniform(-self.hed, self.hed, (*shape, 3)),
            hed_shifts=self._uniform(-self.hed, self.hed, (*shape, 3)),
        )
