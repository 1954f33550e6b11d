"""Random parameters of views, sampled before any pixel changes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from histo_monai.transforms.operations.base import Geometric, Operation, Photometric
from histo_monai.transforms.sequence import UNUSED, compose_in_sequence, packed


@dataclass(frozen=True)
class ViewParameters:
    """Random parameters of one view of each patch, on the CPU, for N samples of S patches.

    Attributes:
        matrices: The composed geometry, output to input, shape (N, S, 3, 3), float64.
        schedule: Numbers of `operations` in order of application, shape (N, steps), and `UNUSED` at the end.
        operations: The policy's photometric operations.
        parameters: Parameters of each operation, shape (N, S, k), float64.
        noise_seed: Seed of the pixel noise.
    """

    matrices: torch.Tensor
    schedule: np.ndarray
    operations: tuple[Photometric, ...]
    parameters: tuple[torch.Tensor, ...]
    noise_seed: int

    @classmethod
    def of_geometry(cls, matrices: torch.Tensor) -> "ViewParameters":
        """Parameters of a pure warp; `matrices` map output to input, shape (N, S, 3, 3), float64."""
        return cls(matrices, np.empty((len(matrices), 0), np.int64), (), (), noise_seed=0)

    @classmethod
    def scheduled(
        cls,
        operations: Sequence[Operation],
        sampled: Sequence[torch.Tensor],
        schedule: np.ndarray,
        *,
        noise_seed: int = 0,
        base: torch.Tensor | None = None,
    ) -> "ViewParameters":
        """Parameters of views with each sample's own schedule.

        Geometric operations are composed in order into one warp, followed by the photometric ones in order.

        Args:
            sampled: Sampled parameters of each operation.
            schedule: Shape (N, steps): numbers of `operations`, or `UNUSED`.
            noise_seed: Seed of the pixel noise.
            base: Geometry before all operations, shape (N, S, 3, 3), or None.
        """
        geometric = [number for number, one in enumerate(operations) if isinstance(one, Geometric)]
        matrices = [sampled[number] for number in geometric]
        if matrices:
            warp = compose_in_sequence(matrices, _renumbered(schedule, geometric, len(operations)))
            base = warp if base is None else base @ warp
        elif base is None:
            base = torch.eye(3, dtype=torch.float64).expand(*sampled[0].shape[:2], 3, 3)
        photometric = {number: one for number, one in enumerate(operations) if isinstance(one, Photometric)}
        # Unused steps go to the end: fewer, fuller groups for `apply_in_sequence`.
        compact = packed(_renumbered(schedule, list(photometric), len(operations)))
        return cls(
            base,
            compact[:, : len(photometric)],
            tuple(photometric.values()),
            tuple(sampled[number] for number in photometric),
            noise_seed,
        )

    def rows(self, samples: slice) -> "ViewParameters":
        """The parameters of some samples, for one of several processes; only the noise seed depends on the start."""
        return ViewParameters(
            self.matrices[samples],
            self.schedule[samples],
            self.operations,
            tuple(part[samples] for part in self.parameters),
            self.noise_seed + (samples.start or 0),
        )

    def patch_schedule(self) -> np.ndarray:
        """The schedule of every patch, from its sample, shape (N S, steps)."""
        return self.schedule.repeat(self.matrices.shape[1], axis=0)

    def needs_normals(self) -> bool:
        """Whether a scheduled operation reads the batch's normal values."""
        numbers = [number for number, one in enumerate(self.operations) if one.needs_normals]
        return bool(np.isin(self.schedule, numbers).any())


@dataclass(frozen=True)
class PairParameters:
    """Random parameters of two views of each patch.

    Attributes:
        weak: Base crop and flip.
        strong: The weak geometry with further operations.
    """

    weak: ViewParameters
    strong: ViewParameters

    def rows(self, samples: slice) -> "PairParameters":
        """The parameters of some samples (`ViewParameters.rows`)."""
        return PairParameters(self.weak.rows(samples), self.strong.rows(samples))


def _renumbered(schedule: np.ndarray, chosen: Sequence[int], num_operations: int) -> np.ndarray:
    """The schedule renumbered to the indices of `chosen`; others become `UNUSED`."""
    # The last entry is for UNUSED, -1.
    number = np.full(num_operations + 1, UNUSED)
    number[list(chosen)] = np.arange(len(chosen))
    return number[schedule]
