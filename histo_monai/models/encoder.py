"""Encoders: patches to features, normalization and resizing included."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from histo_monai.models.encoders.architectures import ENCODERS, architecture
from histo_monai.models.encoders.color import NUM_FEATURES, stain_histograms
from histo_monai.models.encoders.depths import DepthsApart, FirstStages, SeveralDepths, features_after
from histo_monai.models.encoders.published import HALF, Color, Output
from histo_monai.models.settings import COLOR, FIELD, Depth, in_order
from histo_monai.utils.errors import InputError

_NUM_FEATURES: dict[tuple[Callable[[int], nn.Module], int], int] = {}
"""Builder and input side -> D; computing shapes takes longer than building the network."""


class Encoder(nn.Module):
    """RGB patches -> features, with normalization inside.

    Input  (N, 3, H, W), float32, 0..1; side `img_px`, or any side with `any_size`; with `side_px`, patches of any side
           are resized to it
    Output (N, D), float32

    Args:
        trunk: patches -> features or tokens, by `output`.
        name: as in `build_encoder`.
        img_px: side of the patches that the trunk was built for.
        num_features: D.
        mean: subtracted from each of R, G, B.
        std: divides each of R, G, B afterwards.
        side_px: input side of the trunk; patches of other sides are resized to it. None: patches stay as they are.
        output: as in `Architecture`.
        arguments: of timm, which override the table's.

    Attributes:
        ends: possible last modules of a shortened trunk (`Architecture.stages`).
        stages: number of stages after `end_after`; None: full depth.
        earlier: further depths after `end_at`, whose features come before; numbers of stages.
        field: side of the input, in sides of the patch in its middle; the field around it is read for `FIELD` alone.
        widths: number of features of each depth.
        weights: SHA-256 (`sha256`) and license (`license`) of the initial weights' file; None: random weights.
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
        self.stages: Depth = None
        self.earlier: tuple[int, ...] = ()
        self.field = 1
        self.widths: tuple[int, ...] = (num_features,)
        self.weights: dict[str, Any] | None = None

    def end_after(self, stages: int) -> None:
        """Shorten the trunk to its first stages (`FirstStages`).

        Raises:
            InputError: the architecture has fewer stages.
        """
        self.trunk = FirstStages(self.trunk, self._end(stages)).train(self.training)
        self.ends, self.stages = (), stages
        self.num_features = _num_features(self, self.side_px or self.img_px)
        self.widths = (self.num_features,)

    @property
    def depths(self) -> tuple[Depth, ...]:
        """Depths of the features, in their order."""
        return (*self.earlier, self.stages)

    def end_at(self, depths: Sequence[Depth]) -> None:
        """Give features of some depths side by side, the deepest last; the trunk ends there (`SeveralDepths`).

        Raises:
            InputError: the architecture has fewer stages.
        """
        *others, deepest = in_order(depths)
        earlier = tuple(stages for stages in others if stages is not None)
        names = [self._end(stages) for stages in earlier if stages > 0]
        if deepest is not None:
            self.end_after(deepest)
        if names:
            trunk = SeveralDepths(self.trunk, names)
            apart = DepthsApart(trunk).train(self.training)
            parts = on_meta(apart, self.side_px or self.img_px)
            self.trunk, self.ends = trunk, ()
            self.widths = tuple(part.shape[1] for part in parts)
        if COLOR in earlier:
            self.widths = (NUM_FEATURES, *self.widths)
        if FIELD in earlier:
            self.widths = (self.widths[-1], *self.widths)
        self.earlier, self.num_features = earlier, sum(self.widths)

    def _end(self, stages: int) -> str:
        """Name of the trunk's module that ends a stage."""
        if not 1 <= stages <= len(self.ends):
            mend = f"name a stage from 1 to {len(self.ends)}" if self.ends else "use its full depth"
            raise InputError(f"encoder {self.name}: has no stage {stages}. Fix: {mend}")
        return self.ends[stages - 1]

    def stage_features(self, patches: torch.Tensor) -> list[torch.Tensor]:
        """Features at each possible depth (`end_after`), full depth last; one pass."""
        return features_after(self, [f"trunk.{name}" for name in self.ends], patches)

    def normalize_by(self, mean: Color, std: Color) -> None:
        """Set mean and standard deviation of R, G, B for normalization."""
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))
        self._normalization = {"mean": list(mean), "std": list(std)}

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of a batch of patches.

        Raises:
            InputError: the trunk was built for patches of another side.
        """
        whole, num = patches, patches.shape[-1] // self.field
        if self.field > 1:
            first = (patches.shape[-1] - num) // 2
            patches = patches[..., first : first + num, first : first + num]
        parts = [self._encoded(patches)]
        if COLOR in self.earlier:
            histograms = stain_histograms((patches.float() * 255).round().clamp(0, 255).long())
            parts.insert(0, histograms.float())
        if FIELD in self.earlier:
            parts.insert(0, self._encoded(resized(whole, self.side_px or num))[:, -self.widths[-1] :])
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _encoded(self, patches: torch.Tensor) -> torch.Tensor:
        """Features of the trunk."""
        if self.side_px is not None:
            patches = resized(patches, self.side_px)
        elif not self.any_size and patches.shape[-2:] != (self.img_px, self.img_px):
            raise InputError(
                f"encoder {self.name}: patches of {' x '.join(map(str, patches.shape[-2:]))} px, but it was built for "
                f"{self.img_px} px. Fix: run the pretrain stage again with this patch_px"
            )
        return self._vectors(self.trunk((patches - self.mean) / self.std))

    def _vectors(self, output: torch.Tensor) -> torch.Tensor:
        """Features from the output of the trunk."""
        if self.output == "vector" or self.stages is not None:
            return output
        trunk: Any = self.trunk
        first_patch: int = trunk.num_prefix_tokens
        return torch.cat([output[:, 0], output[:, first_patch:].mean(dim=1)], dim=1)

    def description(
        self, *, architecture: str, head: str, patch_px: int, mpps: Sequence[float]
    ) -> dict[str, Any]:
        """Description of a pretrained encoder, for the JSON beside it.

        Args:
            architecture: modules of the pretraining in the file, in words.
            head: of fine-tuning, a name in `HEADS`.
            patch_px: side of the pretraining patches.
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
        """Argument of `encoder_from`."""
        optional: dict[str, Any] = {} if self.stages is None else {"stages": self.stages}
        if self.earlier:
            optional["earlier_stages"] = list(self.earlier)
        if self.field > 1:
            optional["field"] = self.field
        about = {"name": self.name, "img_px": self.img_px, "num_features": self.num_features}
        if self.side_px is not None:
            optional["side"] = self.side_px
        if self.arguments:
            optional["arguments"] = self.arguments
        return {**about, **optional, **self._normalization, "weights": self.weights}


def build_encoder(
    name: str = "resnet18",
    img_px: int = 64,
    *,
    mean: Color = HALF,
    std: Color = HALF,
    arguments: Mapping[str, Any] | None = None,
    side_px: int | None = None,
) -> Encoder:
    """Encoder with random weights (`torch.manual_seed`); nothing is downloaded.

    Args:
        name: in `ENCODERS`, in the table of published encoders, or of timm.
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
        encoder.num_features = _NUM_FEATURES.get(key) or _num_features(encoder, input_px)
        encoder.widths = (encoder.num_features,)
        if name in ENCODERS:  # Other architectures are built for each call.
            _NUM_FEATURES[key] = encoder.num_features
    except (AssertionError, AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        set_side = "set encoder.side" if side_px else "set patch_px (or encoder.side)"
        arguments_too = ", or correct encoder.arguments" if arguments else ""
        raise InputError(
            f"encoder.name: {name!r} gives no features of patches of {input_px} px ({why}). Fix: {set_side} to a side "
            f"that it accepts (a transformer: a multiple of its own patch){arguments_too}, or choose another encoder"
        ) from None
    return encoder


def encoder_from(about: Mapping[str, Any]) -> Encoder:
    """Encoder of a description, with random weights.

    Args:
        about: `encoder` of a description, checked by `check_encoder` or `check_task_model`.

    Raises:
        InputError: as `build_encoder`; or the number of features differs from the description.
    """
    encoder = build_encoder(
        about["name"],
        about["img_px"],
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        arguments=about.get("arguments"),
        side_px=about.get("side"),
    )
    encoder.end_at([*about.get("earlier_stages", ()), about.get("stages")])
    encoder.field = about.get("field", 1)
    if encoder.num_features != about["num_features"]:
        raise InputError(
            f"encoder.num_features: {about['num_features']}, but {encoder.name} has {encoder.num_features}. "
            "Fix: run the encoder's stage again"
        )
    encoder.weights = about["weights"]
    return encoder


def resized(patches: torch.Tensor, side_px: int) -> torch.Tensor:
    """Patches resized to a side, bilinear, with antialiasing where they shrink; unchanged if they have this side."""
    if patches.shape[-2:] == (side_px, side_px):
        return patches
    return functional.interpolate(patches, (side_px, side_px), mode="bilinear", antialias=True)


def _num_features(encoder: Encoder, input_px: int) -> int:
    """D of an encoder: libraries name the attribute differently."""
    features = on_meta(encoder, input_px)
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        raise InputError("its output is not one vector for each patch")
    return features.shape[1]


def on_meta(network: nn.Module, input_px: int) -> Any:
    """Output for one patch on torch's device "meta": shapes without values; the network stays."""
    tensors = dict(network.named_parameters()) | dict(network.named_buffers())
    shapes = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    patch = torch.empty(1, 3, input_px, input_px, device="meta")
    training = network.training
    output = torch.func.functional_call(network.eval(), shapes, (patch,))
    network.train(training)
    return output
