"""Encoders: patches to features, normalization and resizing included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from histo_monai.models.encoders.architectures import ENCODERS, architecture
from histo_monai.models.encoders.published import HALF, Color, Output
from histo_monai.utils.errors import InputError

_LEAST_VARIANCE = 1e-4
"""Added to that of a channel: the root has no end of a slope at 0."""
_SEEN: dict[tuple[Callable[[int], nn.Module], int], int] = {}
"""How it is built, and for which side -> D: the pass of shapes takes longer than the trunk."""


class FirstStages(nn.Module):
    """The beginning of a trunk, with the trunk's names: texture where the whole of it would see objects.

    Input  (N, 3, H, W), float32
    Output (N, 2 C), float32: mean and standard deviation over the patch of each channel of the last stage

    Args:
        trunk: its parts are used, not copied.
        last: name of the part that it ends after.
    """

    def __init__(self, trunk: nn.Module, last: str) -> None:
        super().__init__()
        for name, part in trunk.named_children():
            self.add_module(name, part)
            if name == last:
                break

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of a batch of patches."""
        x = patches
        for part in self.children():
            x = part(x)
        return pooled(x)


def pooled(maps: torch.Tensor) -> torch.Tensor:
    """(N, C, h, w) -> (N, 2 C), float32: mean and standard deviation of each channel."""
    values = maps.float().flatten(2)
    return torch.cat([values.mean(dim=2), (values.var(dim=2, correction=0) + _LEAST_VARIANCE).sqrt()], dim=1)


class Encoder(nn.Module):
    """RGB patches -> features. Normalization is part of the network, so no caller can forget it.

    Input  (N, 3, H, W), float32, 0..1; of side `img_px`, or of any that the trunk can take where `any_size`; of any
           where `side_px` is set, to which they are resized
    Output (N, D), float32

    Args:
        trunk: patches -> features, or tokens, see `output`.
        name: in `ENCODERS`, or of timm.
        img_px: side of the patches that it was built for.
        num_features: D.
        mean: subtracted from each of R, G, B.
        std: divides each of R, G, B afterwards.
        side_px: input side of the trunk; patches of other sides are resized to it. None: patches stay as they are.
        output: see `Architecture`.
        arguments: of timm that the trunk was built with, beside those of its name.

    Attributes:
        ends: names of the parts of the trunk that it may end after, see `Architecture.stages`.
        stages: how many of them it has kept, see `end_after`; None: all of the trunk.
        weights: of the file that it started from, SHA-256 (`sha256`) and license text (`license`); None without.
    """

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(
        self,
        trunk: nn.Module,
        *,
        name: str,
        img_px: int,
        num_features: int,
        any_size: bool,
        mean: Color,
        std: Color,
        ends: Sequence[str] = (),
        side_px: int | None = None,
        output: Output = "vector",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.normalize_by(mean, std)
        self.trunk = trunk
        self.name = name
        self.img_px = img_px
        self.num_features = num_features
        self.any_size = any_size
        self.side_px = side_px
        self.output = output
        self.arguments = dict(arguments or {})
        self.ends = tuple(ends)
        self.stages: int | None = None
        self.weights: dict[str, Any] | None = None

    def end_after(self, stages: int) -> None:
        """Keep the first stages of the trunk alone, and what `FirstStages` makes of them; before that, all are kept.

        Raises:
            InputError: the architecture has no so many that it may end after.
        """
        if not 1 <= stages <= len(self.ends):
            raise InputError(
                f"encoder {self.name} cannot end after {stages} of its stages; it can after {len(self.ends)} at most"
            )
        self.trunk = FirstStages(self.trunk, self.ends[stages - 1]).train(self.training)
        self.ends, self.stages = (), stages
        self.num_features = _num_features(self, self.side_px or self.img_px)

    def stage_features(self, patches: torch.Tensor) -> list[torch.Tensor]:
        """What each of its possible ends would give, see `end_after`, and last the features of the whole; one pass."""
        seen: list[torch.Tensor] = []
        parts = [self.trunk.get_submodule(name) for name in self.ends]
        hooks = [part.register_forward_hook(lambda _, __, maps: seen.append(pooled(maps))) for part in parts]
        try:
            whole = self(patches)
        finally:
            for hook in hooks:
                hook.remove()
        return [*seen, whole]

    def normalize_by(self, mean: Color, std: Color) -> None:
        """Set what is subtracted from R, G, B, and what divides them afterwards."""
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))
        self._normalization = {"mean": list(mean), "std": list(std)}

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of a batch of patches.

        Raises:
            InputError: the trunk was built for patches of another side.
        """
        if self.side_px is not None:
            patches = resized(patches, self.side_px)
        elif not self.any_size and patches.shape[-2:] != (self.img_px, self.img_px):
            raise InputError(
                f"encoder {self.name} was built for patches of {self.img_px} px and got "
                f"{' x '.join(map(str, patches.shape[-2:]))} px; run the pretrain stage again with this patch_px"
            )
        return self._vectors(self.trunk((patches - self.mean) / self.std))

    def _vectors(self, output: torch.Tensor) -> torch.Tensor:
        """Features of what the trunk gives."""
        if self.output == "vector" or self.stages is not None:
            return output
        trunk: Any = self.trunk
        first_patch: int = trunk.num_prefix_tokens
        return torch.cat([output[:, 0], output[:, first_patch:].mean(dim=1)], dim=1)

    def description(
        self, *, architecture: str, head: str, patch_px: int, mpps: Sequence[float]
    ) -> dict[str, Any]:
        """What a pretrained encoder is, for the JSON beside it; `encoder_from` builds it again from `encoder`.

        Args:
            architecture: all that is kept of the pretraining, in words.
            head: that fine-tuning puts on it, a name in `HEADS`.
            patch_px: side of the patches that it was pretrained on.
            mpps: their resolutions, µm/px.
        """
        return {
            "architecture": architecture,
            "head": head,
            "patch_px": patch_px,
            "mpps": list(mpps),
            "encoder": self.about(),
        }

    def about(self) -> dict[str, Any]:
        """What `encoder_from` builds it again from."""
        kept: dict[str, Any] = {} if self.stages is None else {"stages": self.stages}
        about = {"name": self.name, "img_px": self.img_px, "num_features": self.num_features}
        if self.side_px is not None:
            kept["side"] = self.side_px
        if self.arguments:
            kept["arguments"] = self.arguments
        return {**about, **kept, **self._normalization, "weights": self.weights}


def build_encoder(
    name: str = "resnet18",
    img_px: int = 64,
    *,
    mean: Color = HALF,
    std: Color = HALF,
    arguments: Mapping[str, Any] | None = None,
    side_px: int | None = None,
) -> Encoder:
    """An encoder at its random initialization; `torch.manual_seed` decides it. Nothing is downloaded.

    Args:
        name: in `ENCODERS` or the table of published encoders, or of timm.
        img_px: side of the patches.
        mean: of R, G, B at full scale 0..1.
        arguments: of timm, which override the table's.
        side_px: input side, to which patches are resized; None: the table's, or `img_px` for other names.

    Raises:
        InputError: the name is unknown, or the architecture does not take patches of this side.
    """
    known = architecture(name, arguments)
    side_px = side_px or known.side_px
    input_px = side_px or img_px
    try:
        trunk = known.build(input_px)
        encoder = Encoder(
            trunk,
            name=name,
            img_px=img_px,
            num_features=0,
            any_size=known.any_size or side_px is not None,
            mean=mean,
            std=std,
            ends=known.stages,
            side_px=side_px,
            output=known.output,
            arguments=arguments,
        )
        key = (known.build, input_px)
        encoder.num_features = _SEEN.get(key) or _num_features(encoder, input_px)
        if name in ENCODERS:  # The others are made anew for each call.
            _SEEN[key] = encoder.num_features
    except (AssertionError, AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        set_side = "set encoder.side" if side_px else "set patch_px (or encoder.side)"
        arguments_too = ", or correct encoder.arguments" if arguments else ""
        raise InputError(
            f"encoder.name is {name!r}, which gives no features of patches of {input_px} px ({why}); {set_side} to a "
            f"side that it takes (a transformer: a multiple of its own patch){arguments_too}, or choose another encoder"
        ) from None
    return encoder


def encoder_from(about: Mapping[str, Any]) -> Encoder:
    """The encoder that a description tells of, its weights random.

    Args:
        about: `encoder` of a description, checked by `check_encoder` or `check_task_model`.

    Raises:
        InputError: see `build_encoder`; or it has another number of features than the description says.
    """
    encoder = build_encoder(
        about["name"],
        about["img_px"],
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        arguments=about.get("arguments"),
        side_px=about.get("side"),
    )
    if about.get("stages") is not None:
        encoder.end_after(about["stages"])
    if encoder.num_features != about["num_features"]:
        raise InputError(
            f"encoder.num_features is {about['num_features']}, but {encoder.name} has {encoder.num_features}; "
            "run the stage that makes it again"
        )
    encoder.weights = about["weights"]
    return encoder


def resized(patches: torch.Tensor, side_px: int) -> torch.Tensor:
    """Patches of a side, bilinear, an area mean where they shrink; those of the side are returned as they are."""
    if patches.shape[-2:] == (side_px, side_px):
        return patches
    return functional.interpolate(patches, (side_px, side_px), mode="bilinear", antialias=True)


def _num_features(encoder: Encoder, input_px: int) -> int:
    """D, by a pass of shapes alone (on torch's meta device): what a trunk tells of itself differs between libraries."""
    tensors = dict(encoder.named_parameters()) | dict(encoder.named_buffers())
    shapes = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    patch = torch.empty(1, 3, input_px, input_px, device="meta")
    training = encoder.training
    features = torch.func.functional_call(encoder.eval(), shapes, (patch,))
    encoder.train(training)
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        raise InputError("its output is not one vector for each patch")
    return features.shape[1]
