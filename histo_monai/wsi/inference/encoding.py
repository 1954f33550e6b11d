"""Settings of features: encoder depth, views, and stored precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.data.features.store import StoredPrecision, about_dataset, dataset_of, stored
from histo_monai.models.encoder import Encoder
from histo_monai.models.settings import FIELD, FIELD_TIMES, Depth
from histo_monai.models.shared_backbone import folded
from histo_monai.models.task_model import load_encoder
from histo_monai.training.device import channels_last
from histo_monai.transforms.fixed_views import FIXED_VIEWS

LEAST_BATCH = 16
"""Smaller batches are filled up: libraries compute them by other kernels, whose rounding differs."""


class Dataset(NamedTuple):
    """Values of a dataset of features, Shape (n, D), and its attributes."""

    values: NDArray[Any]
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Encoding:
    """Settings of a patch's features.

    Attributes:
        depths: Numbers of stages of the encoder, rising; None, the last, is the whole encoder.
        views: Names in `transforms.fixed_views.FIXED_VIEWS`, in addition to the unaugmented patch.
        precision: Type of the stored features.
        code_sha256: Digest of the code that computes the features; empty if not recorded.
    """

    depths: tuple[Depth, ...] = (None,)
    views: tuple[str, ...] = ()
    precision: StoredPrecision = "float32"
    code_sha256: str = ""

    @property
    def settings(self) -> dict[str, float | str]:
        """Values other than the defaults, for `Origin.settings`."""
        return {
            **({"depth": self.depth} if self.depth else {}),
            **({"earlier_stages": " ".join(map(str, self.earlier))} if self.earlier else {}),
            **({"views": " ".join(self.views)} if self.views else {}),
            **({"stored_as": self.precision} if self.precision != "float32" else {}),
            **({"code_sha256": self.code_sha256} if self.code_sha256 else {}),
        }

    @property
    def depth(self) -> int:
        """The deepest, whose features stand in the dataset `features`; 0 for the whole encoder."""
        return self.depths[-1] or 0

    @property
    def earlier(self) -> tuple[int, ...]:
        """The others, numbers of stages."""
        return tuple(stages for stages in self.depths[:-1] if stages is not None)

    @property
    def field(self) -> int:
        """Side of the input, in sides of a patch."""
        return FIELD_TIMES if FIELD in self.depths else 1

    def load(self, path: Path, device: torch.device) -> Encoder:
        """The encoder on the device, shortened to its deepest depth, with batch-norms folded.

        Raises:
            InputError: The file holds no encoder, or an encoder with fewer stages.
        """
        return self.ready(load_encoder(path)[0], device)

    def ready(self, encoder: Encoder, device: torch.device) -> Encoder:
        """As `load`, from an encoder at full depth.

        Raises:
            InputError: It has fewer stages.
        """
        encoder.end_at(self.depths)
        encoder.field = max(encoder.field, self.field)
        encoder = folded(encoder)
        encoder.to(device)
        channels_last(encoder)
        return encoder

    def features(self, encoder: Encoder, patches: torch.Tensor) -> torch.Tensor:
        """Features of patches in all views.

        Args:
            patches: Shape (n, 3, P, P), float32, 0..1, on the encoder's device.

        Returns:
            Shape (n, 1 + number of views, D), float32, on the CPU; the unaugmented patch comes first. D counts all
            depths.
        """
        num = len(patches)
        if num < LEAST_BATCH:
            patches = torch.cat([patches, patches.new_zeros((LEAST_BATCH - num, *patches.shape[1:]))])
        every = [patches, *(FIXED_VIEWS[name](patches) for name in self.views)]
        return torch.stack([encoder(view)[:num].float().cpu() for view in every], dim=1)

    def datasets(self, features: NDArray[np.float32], widths: Sequence[int]) -> dict[str, Dataset]:
        """Name in the file -> values and attributes; `features`, whose attributes are the writer's, comes first.

        Args:
            features: Shape (1 + number of views, n, D).
            widths: Number of features of each depth; their sum is D.
        """
        datasets = {}
        for view, values in zip(("", *self.views), features, strict=True):
            *earlier, deepest = np.split(values, np.cumsum(widths)[:-1], axis=1)
            datasets[dataset_of(view)] = Dataset(deepest, about_dataset(view))
            for stage, part in zip(self.earlier, earlier, strict=True):
                datasets[dataset_of(view, stage)] = Dataset(part, about_dataset(view, stage))
        return datasets

    def names(self) -> list[list[str]]:
        """Of each view, the datasets that hold its features side by side, the deepest last."""
        return [
            [*(dataset_of(view, stage) for stage in self.earlier), dataset_of(view)]
            for view in ("", *self.views)
        ]

    def stored(self, path: Path, datasets: Mapping[str, Dataset]) -> dict[str, Dataset]:
        """Datasets in the precision of the file.

        Raises:
            InputError: A value is too large for float16.
        """
        return {
            name: Dataset(stored(path, values, self.precision), about)
            for name, (values, about) in datasets.items()
        }
