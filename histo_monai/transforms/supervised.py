"""Augmentation of labeled images: geometry, and optional stain changes."""

from collections.abc import Sequence

import numpy as np
import torch

from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.distributions import Uniform, check_number
from histo_monai.transforms.operations.base import Geometric, Operation
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Crop, Rotate, Scale
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import UNUSED, random_schedule

SUPERVISED: tuple[Geometric, ...] = (
    Rotate(Uniform(-90, 90)),
    Scale(Uniform(0.8, 1.2)),
    Crop(Uniform(0.7, 1.0)),
)


def stains(most: float) -> tuple[Operation, ...]:
    """Operations for differences between laboratories and scanners, uniform within ± `most`; empty for 0.

    Concentrations of hematoxylin, eosin and DAB change by a factor and a shift (of optical density; Tellez et al.
    2019), brightness and contrast by factors.
    """
    if most == 0:
        return ()
    change, factor = Uniform(-most, most), Uniform(1 - most, 1 + most)
    return Hed(factor=change, shift=change), BrightnessContrast(brightness=factor, contrast=factor)


class SupervisedAugmentation(Augmentation[ViewParameters, torch.Tensor]):
    """Augmentation of labeled images in fine-tuning and consistency training (paper, "Implementation details").

    Rotation, scale and random resized crop back to `size_px`, in random order, composed into one affine warp
    (`geometry.warp`), which also resizes images of another size.

    Interpretation of the paper where it is ambiguous: all three are always applied, since each range contains "no
    change"; the crop is that of `PretrainAugmentation`. The S patches of a sample have one schedule, and each patch its
    own magnitudes.

    Args:
        unaugmented_fraction: Fraction of samples without augmentation (`fixed_views.unaugmented_view`), as in tests:
            exact to one sample per batch, and over many batches. The authors' code has one unaugmented view in three.
        stain_jitter: Largest change of the stains (`stains`); 0, the paper's value: none.
        operations: Scheduled operations.

    Raises:
        InputError: `prob`, `unaugmented_fraction` or `stain_jitter` is outside 0..1, or `size_px` is too small for an
            operation.
    """

    def __init__(
        self,
        size_px: int,
        prob: float = 1.0,
        *,
        unaugmented_fraction: float = 0.0,
        stain_jitter: float = 0.0,
        operations: Sequence[Geometric] = SUPERVISED,
    ) -> None:
        check_number("unaugmented_fraction", unaugmented_fraction, 0, 1)
        check_number("stain_jitter", stain_jitter, 0, 1)
        super().__init__(size_px, (*operations, *stains(stain_jitter)), prob)
        self.unaugmented_fraction = unaugmented_fraction

    def randomize(self, num_samples: int, num_scales: int) -> ViewParameters:
        """Schedules and magnitudes of one batch, sampled from `self.R`."""
        source = self._source(num_samples, num_scales)
        parameters = [operation.sample(source) for operation in self.operations]
        schedule = random_schedule(self.R, num_samples, len(self.operations), self.prob)
        if self.unaugmented_fraction > 0:
            schedule[self._unaugmented_samples(num_samples)] = UNUSED
        return ViewParameters.scheduled(self.operations, parameters, schedule)

    def apply(self, patches: torch.Tensor, parameters: ViewParameters) -> torch.Tensor:
        """Views of one batch from sampled parameters."""
        (view,) = render(patches, [parameters], self.size_px)
        return view

    def _unaugmented_samples(self, num_samples: int) -> np.ndarray:
        # Every 1 / fraction-th sample of a random order, from a random start.
        places = self.R.rand(num_samples).argsort()
        steps = self.R.rand() + places * self.unaugmented_fraction
        return np.floor(steps + self.unaugmented_fraction) > np.floor(steps)
