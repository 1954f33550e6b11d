"""What all policies share: first everything is drawn, then it is executed, on whatever device the batch is."""

from abc import abstractmethod
from typing import Generic, Self, TypeVar

import numpy as np
import torch
from monai.transforms import RandomizableTransform

from histo_monai.transforms import batched, geometry, one_by_one, photometric
from histo_monai.transforms.parameters import ViewParameters

# One noise pool serves a batch; smaller ones would overlap too often in batches of small patches.
MIN_NOISE_POOL = 1 << 18

Range = tuple[float, float]
Drawn = TypeVar("Drawn")
Views = TypeVar("Views")


class Augmentation(RandomizableTransform, Generic[Drawn, Views]):
    """A policy: what is drawn for a batch (`randomize`), and the views that come of it (`apply`).

    Reproducible: everything is drawn on the CPU from `self.R` by `randomize`, in one go, whatever the
    device and the number of loader workers. The same state gives the same bytes on the same device, whatever
    the number of threads. Between CPU (`one_by_one`) and GPU (`batched`) parameters and noise are bit-equal, and
    pixels agree to a tenth of a grey level in white noise.

    Args:
        size_px: Side of the views.
        prob: Of each operation.

    Raises:
        ValueError: `prob` is no probability.
    """

    def __init__(self, size_px: int, prob: float = 1.0) -> None:
        check_number("prob", prob, 0, 1)
        super().__init__(prob=prob)
        self.size_px = size_px

    def set_random_state(self, seed: int | None = None, state: np.random.RandomState | None = None) -> Self:
        """Sets the source of all randomness (MONAI's protocol).

        Args:
            seed: Seed of a new state.
            state: The state itself, if `seed` is None. Neither: a state seeded by the operating system.

        Returns:
            Itself.
        """
        super().set_random_state(seed, state)
        return self

    @abstractmethod
    def randomize(self, num_samples: int, num_scales: int) -> Drawn:
        """Draws the parameters of one batch from `self.R`.

        The number of draws depends on the batch's size alone, so that every batch leaves the same state
        behind whatever was selected.

        Args:
            num_samples: N.
            num_scales: S, patches per sample.

        Returns:
            The parameters, on the CPU; their `rows` are those of some of the samples.
        """

    @abstractmethod
    def apply(self, patches: torch.Tensor, drawn: Drawn) -> Views:
        """Augments one batch with parameters that are drawn already.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            drawn: From `randomize` with the same N and S.

        Returns:
            What `__call__` returns.
        """

    def __call__(self, patches: torch.Tensor) -> Views:
        """Augments one batch.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.

        Returns:
            Shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`; a policy of two views
            returns two of these.

        Raises:
            ValueError: `patches` has another shape or type.
        """
        check_patches(patches)
        return self.apply(patches, self.randomize(*patches.shape[:2]))

    def _uniform(self, low: float, high: float, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(self.R.uniform(low, high, shape))

    def _crop_matrix(self, areas: Range, shape: tuple[int, int]) -> torch.Tensor:
        sides = geometry.crop_sides(self._uniform(*areas, shape), self._uniform(-1, 1, shape))
        return geometry.crop_matrix(sides, self._uniform(0, 1, (*shape, 2)))

    def _noise_start(self, shape: tuple[int, int]) -> torch.Tensor:
        last = noise_pool_length(self.size_px) - 3 * self.size_px**2
        return torch.from_numpy(self.R.randint(0, last + 1, shape)).to(torch.float64)

    def _noise_seed(self) -> int:
        return int(self.R.randint(0, 2**31 - 1))


def render(patches: torch.Tensor, drawn: ViewParameters, size_px: int) -> torch.Tensor:
    """Executes a drawing, on the CPU patch by patch, on a GPU batched.

    Args:
        patches: Shape (N, S, 3, H, H), uint8, not modified.
        drawn: Of the same N and S.
        size_px: Side of the views.

    Returns:
        Shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
    """
    execution = one_by_one if patches.device.type == "cpu" else batched
    # Normals are dear: none where nobody adds noise.
    noisy = bool((drawn.schedule == photometric.NAMES.index("noise")).any())
    generator = torch.Generator().manual_seed(drawn.noise_seed)
    pool = torch.randn(noise_pool_length(size_px) if noisy else 0, generator=generator)
    views = execution.augment(patches.flatten(0, 1), drawn, pool, size_px)
    return views.unflatten(0, patches.shape[:2])


def noise_pool_length(size_px: int) -> int:
    """Normals in the pool of a batch: below 2 ** 24 for any patch of up to 2048 px, so that float32 carries offsets."""
    return max(MIN_NOISE_POOL, 4 * size_px**2)


def check_patches(patches: torch.Tensor) -> None:
    """Refuses batches of another kind.

    Args:
        patches: Shape (N, S, 3, H, H), uint8.

    Raises:
        ValueError: `patches` has another shape or type.
    """
    if patches.dtype != torch.uint8 or patches.ndim != 5 or patches.shape[2] != 3:
        raise ValueError(f"uint8 (N, S, 3, H, W) expected, got {patches.dtype} {tuple(patches.shape)}")
    if patches.shape[3] != patches.shape[4]:
        raise ValueError(f"square patches expected, got {patches.shape[3]} × {patches.shape[4]} px")


def check_number(name: str, value: float, low: float, high: float) -> None:
    """Raises ValueError, with the name, unless the value lies in low..high."""
    if not low <= value <= high:
        raise ValueError(f"{name}: {low} to {high} expected, got {value}")


def check_range(name: str, value: tuple[float, float], low: float, high: float) -> None:
    """Raises ValueError, with the name, unless the two ends ascend within low..high."""
    if not low <= value[0] <= value[1] <= high:
        raise ValueError(f"{name}: two ascending numbers from {low} to {high} expected, got {value}")
