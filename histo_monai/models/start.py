"""What a pretraining starts from: an encoder by name, and the file of its weights where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from histo_monai.models.encoder import Encoder, build_encoder
from histo_monai.models.encoders.architectures import architecture
from histo_monai.models.encoders.published import HALF, Color
from histo_monai.models.heads import PairMLP
from histo_monai.models.settings import EncoderSettings
from histo_monai.models.weights import fit
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import Tensors, check_file, read_tensors
from histo_monai.utils.storage import file_sha256


class Started(NamedTuple):
    """An encoder, and the tensors of the pair MLP that its file brings; None where it brings none."""

    encoder: Encoder
    pair_mlp: Tensors | None


@dataclass(frozen=True)
class EncoderStart:
    """The section `encoder` of params, as networks take it.

    Attributes:
        name: see `build_encoder`.
        weights: file that is loaded; None leaves the random initialization.
        sha256: of the file, hexadecimal.
        license: of the weights, in words, for the record.
        mean: of R, G, B at full scale 0..1, with `std`. None takes 0.5 each without weights; with weights, what those
            published for the architecture were trained with (files of RSP's published code and of this project: their
            own).
        std: likewise.
        arguments: of timm that the architecture is built with, beside those of its name.
        side: input side, to which patches are resized; None: the side that published weights were trained at, or the
            side of the patches for other names.
    """

    name: str = "resnet18"
    weights: Path | None = None
    sha256: str | None = None
    license: str | None = None
    mean: Color | None = None
    std: Color | None = None
    arguments: Mapping[str, Any] | None = None
    side: int | None = None

    @classmethod
    def of(cls, settings: EncoderSettings) -> Self:
        """As params set it."""
        weights = None if settings.weights is None else Path(settings.weights)
        return cls(**{**asdict(settings), "weights": weights})

    def _built(self, img_px: int, mean: Color = HALF, std: Color = HALF) -> Encoder:
        return build_encoder(
            self.name, img_px, mean=mean, std=std, arguments=self.arguments, side_px=self.side
        )

    def without_weights(self) -> Self:
        """The same architecture at its random initialization."""
        return replace(self, weights=None, sha256=None, license=None)

    def build(self, img_px: int) -> Started:
        """The encoder for patches of a side.

        Raises:
            InputError: the name is unknown or does not go with the side; the file is missing, not whole, not the one
                of `sha256`, or does not fit; nothing tells its digest.
        """
        if self.weights is None:
            return Started(self._built(img_px, self.mean or HALF, self.std or HALF), None)
        digest = self.checked_digest(self.weights)
        tensors = read_tensors(self.weights)
        known = architecture(self.name, self.arguments)
        encoder = self._built(img_px)
        fitted = fit(tensors, encoder.trunk, PairMLP(encoder.num_features), self.weights)
        mean, std = fitted.normalization or (known.mean, known.std)
        encoder.normalize_by(self.mean or mean, self.std or std)
        encoder.trunk.load_state_dict(fitted.trunk)
        encoder.weights = {"sha256": digest, "license": self.license or known.license}
        return Started(encoder, fitted.pair_mlp)

    def checked_digest(self, path: Path) -> str:
        """SHA-256 of a file of weights, which is the one that was asked for.

        Raises:
            InputError: it is missing or no file of weights; or not the one of `sha256`, which may not be set.
        """
        check_file(path)
        digest = file_sha256(path)
        if self.sha256 is None:
            raise InputError(
                f"{path}: encoder.sha256 is not set; set it to {digest}, so that another file trains anew"
            )
        if digest != self.sha256.lower():
            raise InputError(
                f"{path}: its SHA-256 is {digest}, not {self.sha256} as encoder.sha256 says; fetch it again, or "
                "set that"
            )
        return digest
