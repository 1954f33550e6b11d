"""Two views of each patch that show the same tissue and little else in common: the augmentation of MoCo."""

from dataclasses import dataclass, replace

import torch

from histo_monai.transforms import geometry
from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.draws import Range, Source, Uniform, check_number, check_range
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Crop, Flip, Rotate
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import draw_schedule

NUM_VALIDATION_VIEWS = 64
"""Drawings that validation shows its samples in, by turns."""


@dataclass(frozen=True)
class ContrastiveParameters:
    """One drawing of two views of each patch: row i of both belongs to row i of the batch.

    Attributes:
        query: Of the view that the learning network sees.
        key: Of the view that the following network sees.
    """

    query: ViewParameters
    key: ViewParameters

    def rows(self, samples: slice) -> "ContrastiveParameters":
        """The parameters of some of the samples (`ViewParameters.rows`)."""
        return ContrastiveParameters(self.query.rows(samples), self.key.rows(samples))

    def numbers(self, drawings: torch.Tensor) -> "ContrastiveParameters":
        """A batch put together of drawings made before, each as often as it is named.

        Args:
            drawings: Number of the drawing of each sample, shape (N,), int64, on the CPU.
        """
        return ContrastiveParameters(*(_gather(view, drawings) for view in (self.query, self.key)))


class ContrastiveViews(Augmentation[ContrastiveParameters, tuple[torch.Tensor, torch.Tensor]]):
    """Two independently drawn views of each patch (paper, appendix "MoCo").

    Of each view, always: rotation by any angle, vertical and horizontal flip (each with probability one half), and a
    crop stretched back to `size_px`, composed in this order into one affine warp (pixels beyond the edge are mirrored,
    shrinking averages: see `geometry.warp`); then jitter of hue and saturation and of brightness and contrast, in
    random order. There is no pixel noise, so any share of a batch has the bytes that it has in the whole.

    Reading of the paper where it leaves room:
        * "0.6-1.4" are the factors of color jitter 0.4: brightness and contrast are multiplied by them, brightness
          first. Saturation has the ratio of Tellez et al. 2019 (`HueSaturation`), the factor less 1:
          0.6 S below, at most S (1 + 0.4 (1 - S)) above, which needs no clipping. Hue of a factor is its departure
          from 1 as a fraction of a full turn, ± 0.4, as in torchvision.
        * each range holds "no change", so everything is always applied.
        * the crop's aspect ratio lies within 3/4-4/3, as in `PretrainAugmentation`.

    The S patches of a sample share the order of the jitters, every patch draws its own magnitudes.

    Args:
        size_px: Side of the views.
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
        """Draws both views of one batch: see `Augmentation.randomize`."""
        source = self._source(num_samples, num_scales)
        return ContrastiveParameters(self._draw_view(source), self._draw_view(source))

    def apply(self, patches: torch.Tensor, drawn: ContrastiveParameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Both views with parameters that are drawn already.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            drawn: From `randomize` with the same N and S.

        Returns:
            The query's and the key's, each of shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of
            `patches`.
        """
        query, key = render(patches, [drawn.query, drawn.key], self.size_px)
        return query, key

    def _draw_view(self, source: Source) -> ViewParameters:
        base = geometry.compose([operation.draw(source) for operation in self.geometry])
        drawn = [operation.draw(source) for operation in self.operations]
        order = draw_schedule(self.R, source.shape[0], len(self.operations), prob=1.0)
        return ViewParameters.scheduled(self.operations, drawn, order, base=base)


def _gather(view: ViewParameters, drawings: torch.Tensor) -> ViewParameters:
    return replace(
        view,
        matrices=view.matrices[drawings],
        schedule=view.schedule[drawings.numpy()],
        parameters=tuple(part[drawings] for part in view.parameters),
    )
