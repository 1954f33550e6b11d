"""Random views of a patch for momentum contrast and self-distillation."""

from dataclasses import dataclass, replace

import torch

from histo_monai.transforms import geometry
from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.distributions import Range, Source, Uniform, check_number, check_range
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Crop, Flip, Rotate
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import random_schedule

NUM_VALIDATION_VIEWS = 64
"""Number of fixed view parameters; validation row r uses parameters r modulo 64."""


@dataclass(frozen=True)
class ContrastiveParameters:
    """Random parameters of two views of each patch; row i belongs to sample i.

    Attributes:
        query: view for the query network.
        key: view for the key network.
    """

    query: ViewParameters
    key: ViewParameters

    def rows(self, samples: slice) -> "ContrastiveParameters":
        """Parameters of a slice of the samples."""
        return ContrastiveParameters(self.query.rows(samples), self.key.rows(samples))

    def numbers(self, numbers: torch.Tensor) -> "ContrastiveParameters":
        """Parameters selected by sample number, with repeats.

        Args:
            numbers: Shape (N,), int64, on the CPU.
        """
        return ContrastiveParameters(*(with_numbers(view, numbers) for view in (self.query, self.key)))


class ContrastiveViews(Augmentation[ContrastiveParameters, tuple[torch.Tensor, torch.Tensor]]):
    """Two independent random views of each patch (paper, appendix "MoCo").

    Each view has a rotation by any angle, vertical and horizontal flips (probability 1/2 each), and a crop resized to
    `size_px`. One affine warp composes them (`geometry.warp`: mirrored edges, area mean on shrinking). Jitters of hue
    and saturation and of brightness and contrast follow in random order. No pixel noise: a slice of a batch keeps its
    bytes.

    Choices that the paper leaves open:
        * "0.6-1.4" are the factors of color jitter 0.4. Brightness is multiplied before contrast.
          Saturation changes by the factor less 1 (Tellez et al. 2019, `HueSaturation`):
          0.6 S below, at most S (1 + 0.4 (1 - S)) above, without clipping. Hue shifts by ± 0.4 turns, as in
          torchvision.
        * Each range contains the identity, so every operation is always applied.
        * The crop's aspect ratio lies within 3/4-4/3, as in `PretrainAugmentation`.

    The S patches of a sample have one order of jitters; each patch has random magnitudes of its own.

    Args:
        crop_area: Smallest and largest fraction of the area.
        jitter: Smallest and largest factor of brightness, contrast and saturation.
        hue: Largest shift, either way, fraction of a full turn.

    Raises:
        ValueError: A range is empty or impossible.
    """

    def __init__(
        self,
        size_px: int,
        *,
        crop_area: Range = (0.7, 1.0),
        jitter: Range = (0.6, 1.4),
        hue: float = 0.4,
    ) -> None:
        check_range("jitter", jitter, 0, 2)
        check_number("hue", hue, 0, 0.5)
        factor = Uniform(*jitter)
        jitters = (
            HueSaturation(hue=Uniform(-hue, hue), saturation=Uniform(*jitter, shift=-1)),
            BrightnessContrast(brightness=factor, contrast=factor),
        )
        super().__init__(size_px, jitters)
        self.geometry = (
            Rotate(Uniform(0, 360)),
            Flip(0.5, vertical=True),
            Flip(0.5),
            Crop(Uniform(*crop_area)),
        )

    def randomize(self, num_samples: int, num_scales: int) -> ContrastiveParameters:
        """Random parameters of both views of one batch."""
        return ContrastiveParameters(*self.randomize_views(2, num_samples, num_scales))

    def randomize_views(self, num_views: int, num_samples: int, num_scales: int) -> list[ViewParameters]:
        """Random parameters of several views of one batch."""
        source = self._source(num_samples, num_scales)
        return [self._sample_view(source) for _ in range(num_views)]

    def apply(
        self, patches: torch.Tensor, parameters: ContrastiveParameters
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Both views of a batch, with given parameters.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            parameters: from `randomize` with equal N and S.

        Returns:
            Query view and key view, each (N, S, 3, size_px, size_px), float32, 0..1, on the device of `patches`.
        """
        query, key = render(patches, [parameters.query, parameters.key], self.size_px)
        return query, key

    def _sample_view(self, source: Source) -> ViewParameters:
        base = geometry.compose([operation.sample(source) for operation in self.geometry])
        parameters = [operation.sample(source) for operation in self.operations]
        order = random_schedule(self.R, source.shape[0], len(self.operations), prob=1.0)
        return ViewParameters.scheduled(self.operations, parameters, order, base=base)


def with_numbers(view: ViewParameters, numbers: torch.Tensor) -> ViewParameters:
    """Parameters selected by sample number, with repeats.

    Args:
        numbers: Shape (N,), int64, on the CPU.
    """
    return replace(
        view,
        matrices=view.matrices[numbers],
        schedule=view.schedule[numbers.numpy()],
        parameters=tuple(part[numbers] for part in view.parameters),
    )
