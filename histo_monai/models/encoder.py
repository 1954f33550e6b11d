"""The encoders by name: torchvision's ResNets, any other architecture of timm, and what stands in `ENCODERS` beside."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torchvision
from torch import nn

from histo_monai.models.layers import MaxPool2d
from histo_monai.utils.errors import InputError

Color = tuple[float, ...]
"""Three numbers, of R, G and B at full scale 0..1."""
_LEAST_VARIANCE = 1e-4
"""Added to that of a channel: the root has no end of a slope at 0."""
HALF: Color = (0.5, 0.5, 0.5)
IMAGENET_MEAN: Color = (0.485, 0.456, 0.406)
IMAGENET_STD: Color = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Architecture:
    """How an encoder's trunk is built.

    Attributes:
        build: side of the patches in px -> the trunk, (N, 3, P, P) -> (N, D), at its random initialization.
        mean: of R, G, B at full scale 0..1, that weights published for it were trained with.
        std: likewise.
        any_size: whether it takes patches of other sides than the one it was built for.
        stages: names of the trunk's parts that it may end after, first to last, see `FirstStages`; parts are in the
            order in which they are run.
    """

    build: Callable[[int], nn.Module]
    mean: Color = HALF
    std: Color = HALF
    any_size: bool = True
    stages: tuple[str, ...] = ()


def _resnet(name: str, img_px: int) -> nn.Module:
    trunk: nn.Module = torchvision.models.get_model(name, weights=None)
    trunk.fc, trunk.maxpool = nn.Identity(), MaxPool2d(kernel_size=3, stride=2, padding=1)
    return trunk


_RESNETS = (
    *(f"resnet{depth}" for depth in (18, 34, 50, 101, 152)),
    *("resnext50_32x4d", "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2"),
)
_STAGES = ("layer1", "layer2", "layer3")
ENCODERS: dict[str, Architecture] = {
    name: Architecture(partial(_resnet, name), IMAGENET_MEAN, IMAGENET_STD, stages=_STAGES)
    for name in _RESNETS
}
"""Name in `encoder.name` -> architecture. What is not here is looked for in timm; an encoder of your own is a line."""
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

    Input  (N, 3, H, W), float32, 0..1; of side `img_px`, or of any that the trunk can take where `any_size`
    Output (N, D), float32

    Args:
        trunk: patches -> features.
        name: in `ENCODERS`, or of timm.
        img_px: side of the patches that it was built for.
        num_features: D.
        mean: subtracted from each of R, G, B.
        std: divides each of R, G, B afterwards.

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
    ) -> None:
        super().__init__()
        self.normalize_by(mean, std)
        self.trunk = trunk
        self.name = name
        self.img_px = img_px
        self.num_features = num_features
        self.any_size = any_size
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
        self.num_features = _num_features(self.trunk, self.img_px)

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
        if not self.any_size and patches.shape[-2:] != (self.img_px, self.img_px):
            raise InputError(
                f"encoder {self.name} was built for patches of {self.img_px} px and got "
                f"{' x '.join(map(str, patches.shape[-2:]))} px; run the pretrain stage again with this patch_px"
            )
        return self.trunk((patches - self.mean) / self.std)

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
        kept = {} if self.stages is None else {"stages": self.stages}
        about = {"name": self.name, "img_px": self.img_px, "num_features": self.num_features}
        return {**about, **kept, **self._normalization, "weights": self.weights}


def build_encoder(
    name: str = "resnet18", img_px: int = 64, *, mean: Color = HALF, std: Color = HALF
) -> Encoder:
    """An encoder at its random initialization; `torch.manual_seed` decides it. Nothing is downloaded.

    Args:
        name: in `ENCODERS`, or of timm.
        mean: of R, G, B at full scale 0..1.

    Raises:
        InputError: the name is unknown, or the architecture does not take patches of this side.
    """
    known = architecture(name)
    try:
        trunk = known.build(img_px)
        key = (known.build, img_px)
        num_features = _SEEN.get(key) or _num_features(trunk, img_px)
        if name in ENCODERS:  # The others are made anew for each call.
            _SEEN[key] = num_features
    except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"encoder.name is {name!r}, which gives no features of patches of {img_px} px ({why}); set patch_px to a "
            "side that it takes (a transformer: a multiple of its own patch), or choose another encoder"
        ) from None
    return Encoder(
        trunk,
        name=name,
        img_px=img_px,
        num_features=num_features,
        any_size=known.any_size,
        mean=mean,
        std=std,
        ends=known.stages,
    )


def encoder_from(about: Mapping[str, Any]) -> Encoder:
    """The encoder that a description tells of, its weights random.

    Args:
        about: `encoder` of a description, checked by `check_encoder` or `check_task_model`.

    Raises:
        InputError: see `build_encoder`; or it has another number of features than the description says.
    """
    encoder = build_encoder(
        about["name"], about["img_px"], mean=tuple(about["mean"]), std=tuple(about["std"])
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


def architecture(name: str) -> Architecture:
    """The architecture of a name in `ENCODERS` or of timm.

    Raises:
        InputError: there is none; tells of names that are close.
    """
    return ENCODERS[name] if name in ENCODERS else _of_timm(name)


def _of_timm(name: str) -> Architecture:
    import timm  # takes a second, for which the other encoders need not wait

    if not timm.is_model(
        name
    ):  # also of "hf-hub:..." and "local-dir:...", which timm would read from elsewhere
        close = difflib.get_close_matches(name, [*ENCODERS, *timm.list_models()], n=3)
        advice = f"did you mean {' or '.join(map(repr, close))}?" if close else "see docs/encoders.md"
        raise InputError(
            f"encoder.name is {name[:80]!r}, no ResNet of torchvision and no name of timm; {advice}"
        )
    try:
        about = timm.get_pretrained_cfg(name)
    except RuntimeError as error:  # a tag behind the name that it does not have
        raise InputError(f"encoder.name is {name[:80]!r}: {' '.join(str(error).split())}") from None
    is_fixed = about is not None and about.fixed_input_size

    def build(img_px: int) -> nn.Module:
        size = {"img_size": img_px} if is_fixed else {}
        trunk = timm.create_model(name, pretrained=False, num_classes=0, **size)
        side = getattr(getattr(trunk, "patch_embed", None), "patch_size", 1) if is_fixed else 1
        if any(img_px % part for part in (side if isinstance(side, tuple) else (side,))):
            raise InputError(f"its own patches have {side} px")  # timm would leave out what is over
        return trunk

    if about is None:
        return Architecture(build)
    return Architecture(build, tuple(about.mean), tuple(about.std), any_size=not is_fixed)


def _num_features(trunk: nn.Module, img_px: int) -> int:
    """D, by a pass of shapes alone (on torch's meta device): what a trunk tells of itself differs between libraries."""
    tensors = dict(trunk.named_parameters()) | dict(trunk.named_buffers())
    shapes = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    patch = torch.empty(1, 3, img_px, img_px, device="meta")
    training = trunk.training
    features = torch.func.functional_call(trunk.eval(), shapes, (patch,))
    trunk.train(training)
    if not isinstance(features, torch.Tensor) or features.ndim != 2:
        raise InputError("its output is not one vector for each patch")
    return features.shape[1]
