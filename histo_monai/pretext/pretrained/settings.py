"""Nothing to set, but a file to have."""

from __future__ import annotations

from dataclasses import dataclass

from histo_monai.pretext.settings import UntrainedSettings
from histo_monai.settings.reader import ParamsError


@dataclass(frozen=True)
class PretrainedSettings(UntrainedSettings):
    """Nothing to set: the encoder stays as its file says."""

    def check(self, *, corpus: str, num_train: int, weights: str | None) -> None:
        """See `PretextSettings`; there is a file."""
        if weights is None:
            raise ParamsError(
                "encoder.weights: null, but `methods` holds pretrained; put a file into data/weights and name it "
                "here, with its sha256"
            )
