"""Views: from a uint8 batch on a device to the float batch that a network sees."""

import numpy as np
import torch
from monai.transforms import RandomizableTransform

from histo_monai.transforms import batched, geometry, intensity, one_by_one, photometric, stain
from histo_monai.transforms.parameters import PretrainParameters
from histo_monai.transforms.sequence import UNUSED, draw_schedule

# One noise pool serves a batch; smaller ones would overlap too often in batches of small patches.
MIN_NOISE_POOL = 1 << 18

Range = tuple[float, float]


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
    _check(patches)
    flat = patches.flatten(0, 1)
    if flat.shape[-1] == size_px:
        view = flat.to(torch.float32).mul_(1 / 255)
    else:
        matrices = torch.eye(3, dtype=torch.float64).expand(len(flat), 3, 3)
        view = geometry.warp(flat, matrices, size_px)
    return view.unflatten(0, patches.shape[:2])


class PretrainAugmentation(RandomizableTransform):
    """The augmentation of self-supervised pretraining (paper, section "Implementation details").

    Ten operations, "applied in sequence by randomly selecting them": each sample draws which of them it
    gets (each with probability `prob`) and in which order. The S patches of a sample share selection and
    order; every patch draws its own magnitudes. The geometric operations are composed, in their order, into
    one affine warp (pixels beyond the edge are mirrored, shrinking averages: see `geometry.warp`), which
    comes first; the photometric ones follow in their order.

    Reproducible: everything is drawn on the CPU from `self.R` by `randomize`, in one go, whatever the
    device and the number of loader workers. The same state gives the same bytes on the same device, whatever
    the number of threads. Between CPU (`one_by_one`) and GPU (`batched`) parameters and noise are bit-equal, and
    pixels agree to a tenth of a grey level in white noise.

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

    GEOMETRIC = ("rotate", "scale", "affine", "flip", "crop")

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
        _check_number("prob", prob, 0, 1)
        super().__init__(prob=prob)
        _check_number("affine_scale", affine_scale, 0, 0.99)
        _check_number("saturation", saturation, 0, 1)
        _check_number("brightness", brightness, 0, 1)
        _check_number("contrast", contrast, 0, 1)
        _check_number("noise_sigma", noise_sigma, 0, 1)
        _check_range("scale", scale, 0.01, 100)
        _check_range("crop_area", crop_area, 0.01, 1)
        _check_range("blur_kernel", blur_kernel, 1, 2 * size_px - 1)
        if blur_kernel[0] % 2 == 0 or blur_kernel[1] % 2 == 0:
            raise ValueError(f"blur_kernel: two odd numbers expected, got {blur_kernel}")
        self.size_px = size_px
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

    def set_random_state(
        self, seed: int | None = None, state: np.random.RandomState | None = None
    ) -> "PretrainAugmentation":
        """Sets the source of all randomness (MONAI's protocol).

        Args:
            seed: Seed of a new state.
            state: The state itself, if `seed` is None. Neither: a state seeded by the operating system.

        Returns:
            Itself.
        """
        super().set_random_state(seed, state)
        return self

    def randomize(self, num_samples: int, num_scales: int) -> PretrainParameters:
        """Draws the parameters of one batch from `self.R`.

        The number of draws depends on the batch's size alone, so that every batch leaves the same state
        behind whatever was selected.

        Args:
            num_samples: N.
            num_scales: S, patches per sample.

        Returns:
            The parameters, on the CPU.
        """
        num_geometric, num_photometric = len(self.GEOMETRIC), len(photometric.NAMES)
        schedule = draw_schedule(self.R, num_samples, num_geometric + num_photometric, self.prob)
        shape = (num_samples, num_scales)
        matrices = self._draw_geometry(schedule, shape)
        parameters = self._draw_photometric(shape)
        noise_seed = int(self.R.randint(0, 2**31 - 1))
        own = np.where(schedule >= num_geometric, schedule - num_geometric, UNUSED)
        # Unused steps go to the end: fewer, fuller groups for `apply_in_sequence`.
        compact = np.take_along_axis(own, np.argsort(own == UNUSED, axis=1, kind="stable"), axis=1)
        return PretrainParameters(matrices, compact[:, :num_photometric], parameters, noise_seed)

    def __call__(self, patches: torch.Tensor) -> torch.Tensor:
        """Augments one batch.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.

        Returns:
            Shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.

        Raises:
            ValueError: `patches` has another shape or type.
        """
        _check(patches)
        return self.apply(patches, self.randomize(*patches.shape[:2]))

    def apply(self, patches: torch.Tensor, drawn: PretrainParameters) -> torch.Tensor:
        """Augments one batch with parameters that are drawn already.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            drawn: From `randomize` with the same N and S.

        Returns:
            Shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
        """
        execution = one_by_one if patches.device.type == "cpu" else batched
        pool = self._noise_pool(drawn.noise_seed)
        views = execution.augment(patches.flatten(0, 1), drawn, pool, self.size_px)
        return views.unflatten(0, patches.shape[:2])

    def _draw_geometry(self, schedule: np.ndarray, shape: tuple[int, int]) -> torch.Tensor:
        angle = self._uniform(-self.rotation_deg, self.rotation_deg, shape)
        factor = self._uniform(*self.scale, shape)
        affine_angle = self._uniform(-self.affine_rotation_deg, self.affine_rotation_deg, shape)
        affine_factor = self._uniform(1 - self.affine_scale, 1 + self.affine_scale, shape)
        affine_shift = self._uniform(-self.affine_shift, self.affine_shift, (*shape, 2))
        sides = geometry.crop_sides(self._uniform(*self.crop_area, shape), self._uniform(-1, 1, shape))
        affine = [
            geometry.rotation_matrix(affine_angle),
            geometry.scale_matrix(affine_factor),
            geometry.shift_matrix(affine_shift),
        ]
        candidates = [
            geometry.rotation_matrix(angle),
            geometry.scale_matrix(factor),
            geometry.compose(affine),
            geometry.flip_matrix(torch.ones(shape, dtype=torch.bool)),
            geometry.crop_matrix(sides, self._uniform(0, 1, (*shape, 2))),
            torch.eye(3, dtype=torch.float64).expand(*shape, 3, 3),
        ]
        nothing = len(self.GEOMETRIC)
        own = np.where((schedule == UNUSED) | (schedule >= nothing), nothing, schedule)
        stacked, samples = torch.stack(candidates), torch.arange(shape[0])
        return geometry.compose([stacked[torch.from_numpy(step), samples] for step in own.T])

    def _draw_photometric(self, shape: tuple[int, int]) -> tuple[torch.Tensor, ...]:
        # The sign picks the sign of the noise.
        sigma = self._uniform(-self.noise_sigma, self.noise_sigma, shape)
        start = self.R.randint(0, self._pool_length - 3 * self.size_px**2 + 1, shape)
        hue = self._uniform(-self.hue, self.hue, shape)
        saturation = self._uniform(-self.saturation, self.saturation, shape)
        brightness = self._uniform(1 - self.brightness, 1 + self.brightness, shape)
        contrast = self._uniform(1 - self.contrast, 1 + self.contrast, shape)
        smallest, largest = self.blur_kernel
        kernel = 2 * self.R.randint(smallest // 2, largest // 2 + 1, shape) + 1
        linear, offset = stain.hed_map(
            self._uniform(-self.hed, self.hed, (*shape, 3)).flatten(0, 1),
            self._uniform(-self.hed, self.hed, (*shape, 3)).flatten(0, 1),
        )
        hed = torch.cat([linear.flatten(1), offset.flatten(1)], dim=1).unflatten(0, shape)
        return (
            torch.stack([sigma, torch.from_numpy(start).to(torch.float64)], dim=-1),
            torch.stack([hue, saturation], dim=-1),
            torch.stack([brightness, contrast], dim=-1),
            intensity.gaussian_weights(torch.from_numpy(kernel), largest),
            hed,
        )

    @property
    def _pool_length(self) -> int:
        # Below 2 ** 24 for any patch of up to 1600 px: float32 carries the offsets exactly.
        return max(MIN_NOISE_POOL, 4 * self.size_px**2)

    def _noise_pool(self, seed: int) -> torch.Tensor:
        return torch.randn(self._pool_length, generator=torch.Generator().manual_seed(seed))

    def _uniform(self, low: float, high: float, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(self.R.uniform(low, high, shape))


def _check(patches: torch.Tensor) -> None:
    if patches.dtype != torch.uint8 or patches.ndim != 5 or patches.shape[2] != 3:
        raise ValueError(f"uint8 (N, S, 3, H, W) expected, got {patches.dtype} {tuple(patches.shape)}")
    if patches.shape[3] != patches.shape[4]:
        raise ValueError(f"square patches expected, got {patches.shape[3]} × {patches.shape[4]} px")


def _check_number(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name}: {low} to {high} expected, got {value}")


def _check_range(name: str, value: tuple[float, float], low: float, high: float) -> None:
    if not low <= value[0] <= value[1] <= high:
        raise ValueError(f"{name}: two ascending numbers from {low} to {high} expected, got {value}")
