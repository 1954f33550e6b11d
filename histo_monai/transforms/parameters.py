"""What one drawing of the pretraining augmentation decides, before any pixel is touched."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class PretrainParameters:
    """One drawing of `PretrainAugmentation`, all on the CPU: N samples of S patches.

    Attributes:
        matrices: The composed geometry, output to input, shape (N, S, 3, 3), float64.
        schedule: Photometric operations in order of application, shape (N, 5): numbers into
            `photometric.NAMES`, or `sequence.UNUSED`.
        photometric: Parameters of each photometric operation, shape (N, S, k), float64; their columns are
            described at `photometric.NAMES`.
        noise_seed: Seed of the pixel noise.
    """

    matrices: torch.Tensor
    schedule: np.ndarray
    photometric: tuple[torch.Tensor, ...]
    noise_seed: int

    def rows(self, samples: slice) -> "PretrainParameters":
        """The parameters of some of the samples: what one of several processes needs of its batch.

        Everything but the noise is as in the whole batch; the noise has a seed of its own for each start.
        """
        return PretrainParameters(
            self.matrices[samples],
            self.schedule[samples],
            tuple(part[samples] for part in self.photometric),
            self.noise_seed + (samples.start or 0),
        )

    def patch_schedule(self) -> np.ndarray:
        """The schedule of every patch: that of its sample, shape (N S, 5)."""
        return self.schedule.repeat(self.matrices.shape[1], axis=0)
