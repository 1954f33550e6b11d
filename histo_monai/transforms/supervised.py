"""The augmentation of labeled images: geometry, and stains where it is asked for."""

from collections.abc import Sequence

import numpy as np
import torch

from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.draws import Uniform, check_number
from histo_monai.transforms.operations.base import Geometric, Operation
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Crop, Rotate, Scale
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import UNUSED, draw_schedule

SUPERVISED: tuple[Geometric, ...] = (
    Rotate(Uniform(-90, 90)),
    Scale(Uniform(0.8, 1.2)),
    Crop(Uniform(0.7, 1.0)),
)


def stains(most: float) -> tuple[Operation, ...]:
    """What differs between laboratories and scanners, drawn evenly from up to `most` either way; nothing for 0.

    Concentrations of hematoxylin, eosin and DAB by a factor and by a shift (of optical density; Tellez et al. 2019),
    brightness and contrast by factors.
    """
    if most == 0:
        return ()
    change, factor = Uniform(-most, most), Uniform(1 - most, 1 + most)
    return Hed(factor=change, shift=change), BrightnessContrast(brightness=factor, contrast=factor)


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
        unaugmented_fraction: Share of the samples that come out plain, as models are tested on them
            (`views.plain_view`): of each batch to one sample, of many batches exactly. The authors' code has one plain
                view in three.
        stain_jitter: Largest change of the stains, see `stains`; 0, the paper's: none.
        operations: What is drawn and scheduled.

    Raises:
        InputError: `prob`, `unaugmented_fraction` or `stain_jitter` is outside 0..1, or `size_px` too small for one of
            the operations.
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
        """Draws selection, order and magnitudes of one batch: see `Augmentation.randomize`."""
        source = self._source(num_samples, num_scales)
        drawn = [operation.draw(source) for operation in self.operations]
        schedule = draw_schedule(self.R, num_samples, len(self.operations), self.prob)
        if self.unaugmented_fraction > 0:
            schedule[self._draw_plain(num_samples)] = UNUSED
        return ViewParameters.scheduled(self.operations, drawn, schedule)

    def apply(self, patches: torch.Tensor, drawn: ViewParameters) -> torch.Tensor:
        """Augments one batch with parameters that are drawn already: see `Augmentation.apply`."""
        (view,) = render(patches, [drawn], self.size_px)
        return view

    def _draw_plain(self, num_samples: int) -> np.ndarray:
        # Every 1 / share-th of a random order, from a random start.
        places = self.R.rand(num_samples).argsort()
        steps = self.R.rand() + places * self.unaugmented_fraction
        return np.floor(steps + self.unaugmented_fraction) > np.floor(steps)
