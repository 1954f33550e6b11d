"""Settings of features: encoder depth, views, and stored precision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from histo_monai.data.features.store import StoredPrecision
from histo_monai.models.encoder import Encoder
from histo_monai.models.shared_backbone import folded
from histo_monai.models.task_model import load_encoder
from histo_monai.training.device import channels_last
from histo_monai.transforms.plain_views import PLAIN_VIEWS


@dataclass(frozen=True)
class Encoding:
    """Settings of a patch's features.

    Attributes:
        depth: Number of encoder stages in use; None for the whole encoder.
        views: Names in `transforms.plain_views.PLAIN_VIEWS`, in addition to the unaugmented patch.
        precision: Type of the stored features.
        code_sha256: Digest of the code that computes the features; empty if not recorded.
    """

    depth: int | None = None
    views: tuple[str, ...] = ()
    precision: StoredPrecision = "float32"
    code_sha256: str = ""

    @property
    def settings(self) -> dict[str, float | str]:
        """Values other than the defaults, for `Origin.settings`."""
        return {
            **({"depth": self.depth} if self.depth else {}),
            **({"views": " ".join(self.views)} if self.views else {}),
            **({"stored_as": self.precision} if self.precision != "float32" else {}),
            **({"code_sha256": self.code_sha256} if self.code_sha256 else {}),
        }

    def load(self, path: Path, device: torch.device) -> Encoder:
        """The encoder on the device, shortened to its depth, with batch-norms folded.

        Raises:
            InputError: The file holds no encoder, or an encoder with fewer stages.
        """
        encoder, _ = load_encoder(path)
        if self.depth:
            encoder.end_after(self.depth)
        encoder = folded(encoder)
        encoder.to(device)
        channels_last(encoder)
        return encoder

    def features(self, encoder: Encoder, patches: torch.Tensor) -> torch.Tensor:
        """Features of patches in all views.

        Args:
            patches: Shape (n, 3, P, P), float32, 0..1, on the encoder's device.

        Returns:
            Shape (n, 1 + number of views, D), float32, on the CPU; the unaugmented patch comes first.
        """
        every = [patches, *(PLAIN_VIEWS[name](patches) for name in self.views)]
        return torch.stack([encoder(view).float().cpu() for view in every], dim=1)
