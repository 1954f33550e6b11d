"""Published weights as they are: the encoder of a file without any pretraining of our own, beside `random`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.orders import Untrained
from histo_monai.pretraining.settings import PretextSettings, PretrainedSettings
from histo_monai.utils.errors import InputError


class Pretrained(Untrained):
    """The encoder of a file, written like any other method's, with a linear head.

    A file that brings the pair MLP of RSP has RSP's head. The one validation pass shows how well a head that is not
    trained orders triples: at chance.

    Args:
        start: encoder and the file that it starts from.
        patch_px: side of the patches.
        mpps: the three resolutions, µm/px, finest first.
        augmentation_prob: not used, since nothing trains.
        settings: none.

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
                "method pretrained has no weights to start from: put a file into data/weights and name it in "
                "encoder.weights, with its sha256"
            )
        super().__init__(start=start, patch_px=patch_px, mpps=mpps)

    def encoder_state(self) -> dict[str, torch.Tensor]:
        """The encoder; the pair MLP where the file brings one."""
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
