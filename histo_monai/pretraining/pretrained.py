"""Baseline with published weights: the encoder of a file, not pretrained further."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.orders import Untrained
from histo_monai.pretraining.settings import PretextSettings, PretrainedSettings
from histo_monai.utils.errors import InputError


class Pretrained(Untrained):
    """Encoder of a weights file, with a linear head, or RSP's head where the file has its pair MLP.

    Raises:
        InputError: there is no file.
    """

    Settings: ClassVar[type[PretextSettings]] = PretrainedSettings

    def __init__(
        self,
        *,
        start: EncoderStart,
        patch_px: int,
        mpps: tuple[float, ...],
        augmentation_prob: float,
        settings: PretrainedSettings,
    ) -> None:
        if start.weights is None:
            raise InputError(
                "encoder.weights: null, but the method pretrained needs a file. Fix: put a file into data/weights and "
                "write its name and sha256 here."
            )
        super().__init__(start=start, patch_px=patch_px, mpps=mpps)

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """Encoder, and the pair MLP of the file, if any."""
        state = super().encoder_state()
        if self.brings_pair_mlp:
            return state
        return {name: tensor for name, tensor in state.items() if name.startswith("encoder.")}

    def description(self) -> Mapping[str, Any]:
        """Architecture, resolutions and normalization of the encoder."""
        if self.brings_pair_mlp:
            return super().description()
        encoder = self.network.encoder
        return encoder.description(
            architecture=f"{encoder.name} trunk", head="linear", patch_px=self.patch_px, mpps=self.mpps
        )
