"""What an augmentation operation is."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch

from histo_monai.transforms.draws import Source
from histo_monai.transforms.operations.buffers import Buffers, Pixels


class Operation(ABC):
    """One augmentation operation: a frozen dataclass whose fields say how its parameters are drawn.

    A policy lists operations; each sample's schedule says which of them it gets, and in which order. The draw is the
    same whatever was scheduled, and what was drawn is all that the executions see.

    Attributes:
        name: What settings and tables call it.
    """

    name: ClassVar[str]

    @abstractmethod
    def draw(self, source: Source) -> torch.Tensor:
        """What the operation does to each patch if it is scheduled, float64, on the CPU."""

    @property
    def min_size_px(self) -> int:
        """Smallest side of the views that it can change."""
        return 1


class Geometric(Operation):
    """`draw` gives matrices, output to input (`geometry`), shape (N, S, 3, 3).

    Both executions compose a view's matrices into one warp, which comes before all photometric operations.
    """


class Photometric(Operation):
    """`draw` gives k columns of parameters, shape (N, S, k), for two executions that agree to a tenth of a gray level.

    Attributes:
        needs_normals: Whether the executions read `normals`.
    """

    needs_normals: ClassVar[bool] = False

    @staticmethod
    @abstractmethod
    def with_opencv(buffers: Buffers, parameters: list[float], normals: Pixels) -> None:
        """Changes one patch on the CPU.

        Args:
            buffers: Hold the patch in `pixels`, which is changed or swapped with `spare`; 0..1 before and after.
            normals: Standard normal values of the batch, float32; empty where no patch of the batch needs any.
        """

    @staticmethod
    @abstractmethod
    def with_torch(images: torch.Tensor, parameters: torch.Tensor, normals: torch.Tensor) -> torch.Tensor:
        """Changes a batch on any device, without waiting for it.

        Args:
            images: Shape (n, 3, H, W), float32, 0..1, not modified.
            parameters: Shape (n, k), float32, on the images' device.
            normals: As in `with_opencv`, on the images' device.

        Returns:
            Shape (n, 3, H, W), float32, 0..1.
        """


def per_image(parameters: torch.Tensor, dims: int = 2) -> torch.Tensor:
    """Numbers of shape (n,) in the shape in which they meet tensors of `dims` further axes."""
    return parameters.reshape(-1, *[1] * dims)
