"""The augmentation of supervised fine-tuning: geometry only."""

import torch

from histo_monai.transforms import geometry
from histo_monai.transforms.augmentation import Augmentation, Range, check_range, render
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import compose_in_sequence, draw_schedule


class SupervisedAugmentation(Augmentation[ViewParameters, torch.Tensor]):
    """The augmentation of labeled images, in fine-tuning and in consistency training (paper, section
    "Implementation details").

    Rotation, scale and random resized crop back to `size_px`, in random order, composed into one affine warp
    (pixels beyond the edge are mirrored, shrinking averages: see `geometry.warp`). Images of another size are
    resized by the same warp.

    Reading of the paper where it leaves room: all three are always applied, since each range holds "no change"; the
    crop is that of `PretrainAugmentation`. The S patches of a sample share selection and order, every patch draws
    its own magnitudes.

    Args:
        size_px: Side of the views.
        prob: Of each operation.
        rotation_deg: Largest angle, either way.
        scale: Smallest and largest magnification.
        crop_area: Smallest and largest fraction of the area.

    Raises:
        ValueError: A range is empty or impossible.
    """

    def __init__(
        self,
        size_px: int,
        prob: float = 1.0,
        *,
        rotation_deg: float = 90.0,
        scale: Range = (0.8, 1.2),
        crop_area: Range = (0.7, 1.0),
    ) -> None:
        super().__init__(size_px, prob)
        check_range("scale", scale, 0.01, 100)
        check_range("crop_area", crop_area, 0.01, 1)
        self.rotation_deg = rotation_deg
        self.scale = scale
        self.crop_area = crop_area

    def randomize(self, num_samples: int, num_scales: int) -> ViewParameters:
        """Draws selection, order and magnitudes of one batch: see `Augmentation.randomize`."""
        shape = (num_samples, num_scales)
        matrices = [
            geometry.rotation_matrix(self._uniform(-self.rotation_deg, self.rotation_deg, shape)),
            geometry.scale_matrix(self._uniform(*self.scale, shape)),
            self._crop_matrix(self.crop_area, shape),
        ]
        schedule = draw_schedule(self.R, num_samples, len(matrices), self.prob)
        return ViewParameters.of_geometry(compose_in_sequence(matrices, schedule))

    def apply(self, patches: torch.Tensor, drawn: ViewParameters) -> torch.Tensor:
        """Augments one batch with parameters that are drawn already: see `Augmentation.apply`."""
        return render(patches, drawn, self.size_px)
