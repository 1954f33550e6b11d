"""Two views of each patch that show the same tissue and little else in common: the augmentation of MoCo."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from histo_monai.transforms import geometry, photometric
from histo_monai.transforms.augmentation import Augmentation, Range, check_number, check_range, render
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import draw_schedule

_OPERATIONS = np.array([photometric.NAMES.index(name) for name in ("hue_saturation", "brightness_contrast")])


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
        * "0.6-1.4" are the factors of colour jitter 0.4: brightness and contrast are multiplied by them, brightness
          first. Saturation has the ratio of Tellez et al. 2019 (`intensity.adjust_hue_saturation`), the factor less 1:
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
        super().__init__(size_px)
        check_range("crop_area", crop_area, 0.01, 1)
        check_range("jitter", jitter, 0, 2)
        check_number("hue", hue, 0, 0.5)
        self.crop_area = crop_area
        self.jitter = jitter
        self.hue = hue

    def randomize(self, num_samples: int, num_scales: int) -> ContrastiveParameters:
        """Draws both views of one batch: see `Augmentation.randomize`."""
        shape = (num_samples, num_scales)
        return ContrastiveParameters(self._draw_view(shape), self._draw_view(shape))

    def apply(self, patches: torch.Tensor, drawn: ContrastiveParameters) -> tuple[torch.Tensor, torch.Tensor]:
        """Both views with parameters that are drawn already.

        Args:
            patches: Shape (N, S, 3, H, H), uint8, not modified.
            drawn: From `randomize` with the same N and S.

        Returns:
            The query's and the key's, each of shape (N, S, 3, size_px, size_px), float32, 0..1, on the device of
            `patches`.
        """
        return render(patches, drawn.query, self.size_px), render(patches, drawn.key, self.size_px)

    def _draw_view(self, shape: tuple[int, int]) -> ViewParameters:
        matrices = geometry.compose(
            [
                geometry.rotation_matrix(self._uniform(0, 360, shape)),
                geometry.flip_matrix(self._uniform(0, 1, shape) < 0.5, vertical=True),
                geometry.flip_matrix(self._uniform(0, 1, shape) < 0.5),
                self._crop_matrix(self.crop_area, shape),
            ]
        )
        pairs = {
            "hue_saturation": (
                self._uniform(-self.hue, self.hue, shape),
                self._uniform(*self.jitter, shape) - 1,
            ),
            "brightness_contrast": (self._uniform(*self.jitter, shape), self._uniform(*self.jitter, shape)),
        }
        # What is never scheduled has no columns.
        columns = {name: torch.stack(pair, dim=-1) for name, pair in pairs.items()}
        none = torch.empty(*shape, 0, dtype=torch.float64)
        order = draw_schedule(self.R, shape[0], len(_OPERATIONS), prob=1.0)
        return ViewParameters(
            matrices,
            _OPERATIONS[order],
            tuple(columns.get(name, none) for name in photometric.NAMES),
            noise_seed=0,
        )


def _gather(view: ViewParameters, drawings: torch.Tensor) -> ViewParameters:
    return replace(
        view,
        matrices=view.matrices[drawings],
        schedule=view.schedule[drawings.numpy()],
        photometric=tuple(part[drawings] for part in view.photometric),
    )
