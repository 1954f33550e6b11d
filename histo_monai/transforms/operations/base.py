"""Base classes of augmentation operations."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from histo_monai.transforms.distributions import Source
from histo_monai.transforms.operations.buffers import Buffers, Pixels


class Operation(ABC):
    """One augmentation operation: a frozen dataclass whose fields are distributions of its parameters.

    A policy lists operations; each sample's schedule selects and orders them. Sampling does not depend on the schedule,
    and execution uses sampled parameters only.

    Attributes:
        name: Name in settings and tables.
    """

    name: ClassVar[str]

    @abstractmethod
    def sample(self, source: Source) -> torch.Tensor:
        """Parameters of each patch, float64, on the CPU, sampled for scheduled and other patches."""

    @property
    def min_size_px(self) -> int:
        """Smallest side of a view for this operation."""
        return 1


class Geometric(Operation):
    """Operation whose `sample` gives matrices, output to input (`geometry`), shape (N, S, 3, 3).

    A view's matrices are composed into one warp before all photometric operations.
    """


class Photometric(Operation):
    """Operation whose `sample` gives k parameters, shape (N, S, k); both executions agree to a tenth of a gray level.

    Attributes:
        needs_normals: Whether the executions read `normals`.
    """

    needs_normals: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Change one patch on the CPU.

        Args:
            buffers: The patch in `pixels`, 0..1, to be changed or swapped with `spare`.
            normals: Standard normal values of the batch, float32; empty if no patch needs them.
        """

    @staticmethod
    @abstractmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """The changed batch, on any device, computed asynchronously; shape (n, 3, H, W), float32, 0..1.

        Args:
            images: Shape (n, 3, H, W), float32, 0..1, not modified.
            parameters: Shape (n, k), float32, on the images' device.
            normals: Values as in `with_opencv`, on the images' device.
        """


def per_image(parameters: torch.Tensor, dims: int = 2) -> torch.Tensor:
    """Numbers of shape (n,), with `dims` further axes of length 1."""
    return parameters.reshape(-1, *[1] * dims)
