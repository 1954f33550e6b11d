"""Augmented views of pretraining: uint8 batches on a device -> float batches for a network."""

from collections.abc import Sequence

import torch

from histo_monai.transforms.augmentation import Augmentation, render
from histo_monai.transforms.distributions import OddUniform, Uniform
from histo_monai.transforms.operations.base import Operation
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.geometric import Affine, Crop, Flip, Rotate, Scale
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import random_schedule

# The paper's section "Implementation details", interpreted in `PretrainAugmentation`.
PRETRAINING: tuple[Operation, ...] = (
    Rotate(Uniform(-90, 90)),
    Scale(Uniform(0.8, 1.2)),
    Affine(degrees=Uniform(-45, 45), factor=Uniform(0.5, 1.5), shift=Uniform(-0.0625, 0.0625)),
    Flip(),
    Crop(Uniform(0.7, 1.0)),
    Noise(Uniform(-0.1, 0.1)),
    HueSaturation(hue=Uniform(-0.1, 0.1), saturation=Uniform(-1, 1)),
    BrightnessContrast(Uniform(0.8, 1.2), Uniform(0.8, 1.2)),
    Blur(OddUniform(3, 7)),
    Hed(factor=Uniform(-0.035, 0.035), shift=Uniform(-0.035, 0.035)),
)


class PretrainAugmentation(Augmentation[ViewParameters, torch.Tensor]):
    """Augmentation of self-supervised pretraining (paper, section "Implementation details").

    Ten operations, "applied in sequence by randomly selecting them": each sample has its own random selection (each
    operation with probability `prob`) and order. The S patches of a sample have one schedule, and each patch its own
    magnitudes. The geometric operations are composed in order into one affine warp (`geometry.warp`), which comes
    first; the photometric ones follow in order.

    Interpretation of the paper where it is ambiguous:
        * rotation, scale, affine: about the patch's center. Scale is the magnification (1.2 enlarges);
          "affine scale 0.5" is 1 ± 0.5, the shift is a fraction of the side, per axis.
        * random resized crop: 0.7-1.0 of the area (the paper's range for MoCo's crop; silent here),
          aspect ratio within 3/4-4/3, stretched back.
        * hue: ± 0.1 of a full turn. Saturation: the ratio of Tellez et al. 2019, -1 is gray, +1 is S (2 - S).
        * brightness, contrast: factors 1 ± 0.2, brightness first.
        * blur: Gaussian, uniformly random odd kernel.
        * HED: concentration of each stain times (1 ± 0.035) plus ± 0.035 optical density (base 10); Tellez
          et al. perturb by a factor and a shift.

    Args:
        prob: Probability of each operation. The paper gives none; one half is the default of its authors' library.
        operations: Scheduled operations.

    Raises:
        InputError: `prob` is no probability, or `size_px` is too small for an operation.
    """

    def __init__(
        self, size_px: int, prob: float = 0.5, operations: Sequence[Operation] = PRETRAINING
    ) -> None:
        super().__init__(size_px, operations, prob)

    def randomize(self, num_samples: int, num_scales: int) -> ViewParameters:
        """Schedules and magnitudes of one batch, sampled from `self.R`."""
        schedule = random_schedule(self.R, num_samples, len(self.operations), self.prob)
        source = self._source(num_samples, num_scales)
        parameters = [operation.sample(source) for operation in self.operations]
        return ViewParameters.scheduled(self.operations, parameters, schedule, noise_seed=self._noise_seed())

    def apply(self, patches: torch.Tensor, parameters: ViewParameters) -> torch.Tensor:
        """Views of one batch from sampled parameters."""
        (view,) = render(patches, [parameters], self.size_px)
        return view
