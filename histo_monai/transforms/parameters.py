"""What one drawing of a policy decides, before any pixel is touched."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class ViewParameters:
    """One drawing of one view of each patch, all on the CPU: N samples of S patches.

    Attributes:
        matrices: The composed geometry, output to input, shape (N, S, 3, 3), float64.
        schedule: Photometric operations in order of application, shape (N, at most 5): numbers into
            `photometric.NAMES`, or `sequence.UNUSED`.
        photometric: Parameters of each photometric operation, shape (N, S, k), float64; their columns are
            described at `photometric.NAMES`. Empty for a policy that has none.
        noise_seed: Seed of the pixel noise.
    """

    matrices: torch.Tensor
    schedule: np.ndarray
    photometric: tuple[torch.Tensor, ...]
    noise_seed: int

    @classmethod
    def of_geometry(cls, matrices: torch.Tensor) -> "ViewParameters":
        """A warp and nothing else.

        Args:
            matrices: Output to input, shape (N, S, 3, 3), float64.
        """
        return cls(matrices, np.empty((len(matrices), 0), np.int64), (), noise_seed=0)

    def rows(self, samples: slice) -> "ViewParameters":
        """The parameters of some of the samples: what one of several processes needs of its batch.

        Everything but the noise is as in the whole batch; the noise has a seed of its own for each start.
        """
        return ViewParameters(
            self.matrices[samples],
            self.schedule[samples],
            tuple(part[samples] for part in self.photometric),
            self.noise_seed + (samples.start or 0),
        )

    def patch_schedule(self) -> np.ndarray:
        """The schedule of every patch: that of its sample, shape (N S, steps)."""
        return self.schedule.repeat(self.matrices.shape[1], axis=0)


@dataclass(frozen=True)
class PairParameters:
    """One drawing of two views of each patch: row i of both belongs to row i of the batch.

    Attributes:
        weak: The base crop and flip.
        strong: The same, with operations on top.
    """

    weak: ViewParameters
    strong: ViewParameters

    def rows(self, samples: slice) -> "PairParameters":
        """The parameters of some of the samples (`ViewParameters.rows`)."""
        return PairParameters(self.weak.rows(samples), self.strong.rows(samples))
