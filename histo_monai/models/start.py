"""Encoder at the start of a pretraining, with optional weights of a file."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from histo_monai.models.encoder import Encoder, build_encoder
from histo_monai.models.encoders.architectures import architecture
from histo_monai.models.encoders.published import HALF, Color
from histo_monai.models.heads.pairs import PairMLP
from histo_monai.models.settings import EncoderSettings
from histo_monai.models.weights import fit
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import Tensors, check_file, read_tensors
from histo_monai.utils.storage import file_sha256

_LOG = logging.getLogger(__name__)


class Started(NamedTuple):
    """Encoder, and tensors of the file's pair MLP, or None."""

    encoder: Encoder
    pair_mlp: Tensors | None


@dataclass(frozen=True)
class EncoderStart:
    """Section `encoder` of params.

    Attributes:
        name: architecture, as in `build_encoder`.
        weights: file to load; None: random initialization.
        sha256: of the file, hexadecimal.
        license: of the weights, in words, for the record.
        mean: of R, G, B in 0..1. None without weights: 0.5 each. None with weights: of the architecture's published
            weights; RSP's published files and this project's files bring their own.
        std: standard deviation, with defaults as `mean`.
        arguments: of timm's `create_model`, which override the table's.
        side: input side in px, to which patches are resized. None: the side in the table of published encoders, or the
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
        """Start from params."""
        weights = None if settings.weights is None else Path(settings.weights)
        return cls(**{**asdict(settings), "weights": weights})

    def _built(self, img_px: int, mean: Color = HALF, std: Color = HALF) -> Encoder:
        return build_encoder(
            self.name, img_px, mean=mean, std=std, arguments=self.arguments, side_px=self.side
        )

    def without_weights(self) -> Self:
        """Start of the same architecture at its random initialization."""
        return replace(self, weights=None, sha256=None, license=None)

    def build(self, img_px: int) -> Started:
        """Encoder for patches of side `img_px`.

        Raises:
            InputError: the name is unknown or does not fit the side; or the file is missing, damaged, does not fit, or
                has another digest than `sha256`, or `sha256` is not set.
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
        if self.license and known.license and self.license != known.license:
            _LOG.warning(
                "encoder.license: %r, but %s is published under %s. Fix unless you have that license: set null",
                *(self.license, self.name, known.license),
            )
        encoder.weights = {"sha256": digest, "license": self.license or known.license}
        return Started(encoder, fitted.pair_mlp)

    def checked_digest(self, path: Path) -> str:
        """SHA-256 of a weights file, equal to `sha256`.

        Raises:
            InputError: the file is missing, no weights file, or has another digest than `sha256`; or `sha256` is not
                set.
        """
        check_file(path)
        digest = file_sha256(path)
        if self.sha256 is None:
            raise InputError(
                f"{path}: encoder.sha256 is not set, so a changed file would not retrain. Fix: set it to {digest}."
            )
        if digest != self.sha256.lower():
            raise InputError(
                f"{path}: SHA-256 is {digest}, but encoder.sha256 is {self.sha256}. Fix: download the file again, or "
                "change encoder.sha256."
            )
        return digest
