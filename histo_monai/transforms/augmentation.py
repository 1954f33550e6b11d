"""Base of all augmentation policies: sample the parameters of a batch, then execute them on its device."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.transforms import with_opencv, with_torch, with_triton
from histo_monai.transforms.distributions import Source, check_number
from histo_monai.transforms.geometry import check_patches
from histo_monai.transforms.operations.base import Operation
from histo_monai.transforms.operations.noise import pool_length
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.quiet import quiet_library

with quiet_library():  # MONAI loads nvImageCodec, which prints warnings where there is no GPU.
    from monai.transforms import RandomizableTransform

Parameters = TypeVar("Parameters")
Views = TypeVar("Views")


class Augmentation(RandomizableTransform, Generic[Parameters, Views]):
    """A policy: `randomize` samples the parameters of a batch, `apply` computes its views.

    `randomize` samples on the CPU from `self.R` at once, so results do not depend on device, threads or loader workers:
    equal states give equal bytes on one device. CPU (`with_opencv`) and GPU (`with_triton`) have bit-equal parameters
    and noise; pixels agree to a tenth of a gray level in white noise.

    Args:
        operations: Available operations, in sampling order.

    Raises:
        InputError: `prob` is no probability, or `size_px` is too small for an operation.
    """

    def __init__(self, size_px: int, operations: Sequence[Operation], prob: float = 1.0) -> None:
        check_number("prob", prob, 0, 1)
        for operation in operations:
            if size_px < operation.min_size_px:
                raise InputError(
                    f"size_px: got {size_px}. Fix: use at least {operation.min_size_px} for {operation.name}."
                )
        super().__init__(prob=prob)
        self.size_px = size_px
        self.operations = tuple(operations)

    def set_random_state(self, seed: int | None = None, state: np.random.RandomState | None = None) -> Self:
        """This policy with a new source of randomness (MONAI's protocol).

        Args:
            seed: Seed of a new state.
            state: The state itself, if `seed` is None. Neither: a state seeded by the operating system.
        """
        super().set_random_state(seed, state)
        return self

    @abstractmethod
    def randomize(self, num_samples: int, num_scales: int) -> Parameters:
        """Parameters of one batch, on the CPU, sampled from `self.R`; their `rows` select samples.

        The number of random values depends on the batch's size alone, so the final state does not depend on them.

        Args:
            num_samples: N.
            num_scales: S, patches per sample.
        """

    @abstractmethod
    def apply(self, patches: torch.Tensor, parameters: Parameters) -> Views:
        """Views of one batch, computed from sampled parameters; the result of `__call__`.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            parameters: Result of `randomize` with equal N and S.
        """

    def __call__(self, patches: torch.Tensor | NDArray[np.uint8]) -> Views:
        """Views of one batch, or of one image.

        Args:
            patches: Shape (N, S, 3, H, H), or (3, H, H) of one image; uint8, not modified.

        Returns:
            Shape (N, S, 3, size_px, size_px), or (3, size_px, size_px) of one image; float32, 0..1, on the device of
            `patches`; two of these from a policy with two views.

        Raises:
            ValueError: `patches` has another shape or type.
        """
        batch, alone = as_batch(patches)
        views: Any = self.apply(batch, self.randomize(*batch.shape[:2]))
        if not alone:
            return views
        of_one: Any = views[0, 0] if isinstance(views, torch.Tensor) else tuple(view[0, 0] for view in views)
        return of_one

    def _source(self, num_samples: int, num_scales: int) -> Source:
        return Source(self.R, (num_samples, num_scales), self.size_px)

    def _noise_seed(self) -> int:
        return int(self.R.randint(0, 2**31 - 1))


def render(
    patches: torch.Tensor, sampled_views: Sequence[ViewParameters], size_px: int
) -> tuple[torch.Tensor, ...]:
    """Views from parameters: per patch with OpenCV on a CPU, with kernels on a GPU, in torch batches elsewhere.

    Args:
        patches: Shape (N, S, 3, H, H), uint8, not modified.
        sampled_views: Parameters of equal N and S, one per view.

    Returns:
        One tensor per view, shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
    """
    flat, shape = patches.flatten(0, 1), patches.shape[:2]
    pools = [_normals(sampled, size_px) for sampled in sampled_views]
    if patches.device.type == "cpu":
        views = with_opencv.augment_views(flat, sampled_views, pools, size_px)
    else:
        views = [
            (with_triton if with_triton.does(sampled, patches.device) else with_torch).augment(
                flat, sampled, pool, size_px
            )
            for sampled, pool in zip(sampled_views, pools, strict=True)
        ]
    return tuple(view.unflatten(0, shape) for view in views)


def _normals(sampled: ViewParameters, size_px: int) -> torch.Tensor:
    """Pool of standard normal values for noise; empty if no view has noise, because sampling is slow."""
    generator = torch.Generator().manual_seed(sampled.noise_seed)
    return torch.randn(pool_length(size_px) if sampled.needs_normals() else 0, generator=generator)


def as_batch(patches: torch.Tensor | NDArray[np.uint8], *, alone: bool = False) -> tuple[torch.Tensor, bool]:
    """The input as a batch, shape (N, S, 3, H, H), and whether it was one image.

    Args:
        patches: Shape (N, S, 3, H, H), or (3, H, H); uint8.
        alone: Whether it must be one image.

    Raises:
        ValueError: `patches` has another shape or type.
    """
    # MONAI's tensors have metadata of their source; views must not.
    tensor = torch.as_tensor(patches).as_subclass(torch.Tensor)
    is_one = tensor.ndim == 3
    batch = tensor[None, None] if is_one else tensor
    shape_ok = batch.ndim == 5 and batch.shape[2] == 3 and (is_one or not alone)
    if tensor.dtype != torch.uint8 or not shape_ok:
        kinds = "an image (3, H, H)" if alone else "an image (3, H, H) or a batch (N, S, 3, H, H)"
        raise ValueError(
            f"{kinds} of uint8, 0..255, channels first, expected, got {tensor.dtype} {tuple(tensor.shape)}"
        )
    check_patches(batch)
    return batch, is_one
