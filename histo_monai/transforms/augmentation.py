"""What all policies share: first everything is drawn, then it is executed, on whatever device the batch is."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from monai.transforms import RandomizableTransform
from numpy.typing import NDArray

from histo_monai.transforms import with_opencv, with_torch, with_triton
from histo_monai.transforms.draws import Source, check_number
from histo_monai.transforms.operations.base import Operation
from histo_monai.transforms.operations.noise import pool_length
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.utils.errors import InputError

Drawn = TypeVar("Drawn")
Views = TypeVar("Views")


class Augmentation(RandomizableTransform, Generic[Drawn, Views]):
    """A policy: what is drawn for a batch (`randomize`), and the views that come of it (`apply`).

    Reproducible: everything is drawn on the CPU from `self.R` by `randomize`, in one go, whatever the
    device and the number of loader workers. The same state gives the same bytes on the same device, whatever
    the number of threads. Between CPU (`with_opencv`) and GPU (`with_triton`) parameters and noise are bit-equal, and
    pixels agree to a tenth of a gray level in white noise.

    Args:
        operations: What is scheduled for the samples, in this order drawn.

    Raises:
        InputError: `prob` is no probability, or `size_px` too small for one of the operations.
    """

    def __init__(self, size_px: int, operations: Sequence[Operation], prob: float = 1.0) -> None:
        check_number("prob", prob, 0, 1)
        for operation in operations:
            if size_px < operation.min_size_px:
                raise InputError(
                    f"size_px: at least {operation.min_size_px} expected for {operation.name}, got {size_px}"
                )
        super().__init__(prob=prob)
        self.size_px = size_px
        self.operations = tuple(operations)

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

    def __call__(self, patches: torch.Tensor | NDArray[np.uint8]) -> Views:
        """Augments one batch, or one image.

        Args:
            patches: Shape (N, S, 3, H, H), or (3, H, H) of one image; uint8, not modified.

        Returns:
            Shape (N, S, 3, size_px, size_px), or (3, size_px, size_px) of one image; float32, 0..1, on the device of
            `patches`; a policy of two views returns two of these.

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
    patches: torch.Tensor, drawings: Sequence[ViewParameters], size_px: int
) -> tuple[torch.Tensor, ...]:
    """Executes drawings: on the CPU patch by patch with OpenCV, on a GPU by kernels, elsewhere in batches with torch.

    Args:
        patches: Shape (N, S, 3, H, H), uint8, not modified.
        drawings: Of the same N and S, one for each view.

    Returns:
        For each drawing shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
    """
    flat, shape = patches.flatten(0, 1), patches.shape[:2]
    pools = [_normals(drawn, size_px) for drawn in drawings]
    if patches.device.type == "cpu":
        views = with_opencv.augment_views(flat, drawings, pools, size_px)
    else:
        views = [
            (with_triton if with_triton.does(drawn, patches.device) else with_torch).augment(
                flat, drawn, pool, size_px
            )
            for drawn, pool in zip(drawings, pools, strict=True)
        ]
    return tuple(view.unflatten(0, shape) for view in views)


def _normals(drawn: ViewParameters, size_px: int) -> torch.Tensor:
    """Standard normal values that noise is made of: costly, so none where no view has noise."""
    generator = torch.Generator().manual_seed(drawn.noise_seed)
    return torch.randn(pool_length(size_px) if drawn.needs_normals() else 0, generator=generator)


def as_batch(patches: torch.Tensor | NDArray[np.uint8], *, alone: bool = False) -> tuple[torch.Tensor, bool]:
    """A batch as it is, one image as a batch of one; and whether it was one.

    Args:
        patches: Shape (N, S, 3, H, H), or (3, H, H); uint8.
        alone: Whether it must be one image.

    Returns:
        Shape (N, S, 3, H, H).

    Raises:
        ValueError: `patches` has another shape or type.
    """
    # MONAI's tensors remember where they came from; views do not.
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
