"""Architectures by name: torchvision's ResNets, the table of published encoders, and every name of timm."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import nn

from histo_monai.models.encoders.published import (
    HALF,
    IMAGENET_MEAN,
    IMAGENET_STD,
    PUBLISHED,
    Color,
    Output,
    Published,
)
from histo_monai.models.layers import MaxPool2d
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.garbage import lasting

_MLP_LAYER = "mlp_layer"
_MLP_LAYERS = ("Mlp", "GluMlp", "SwiGLU", "SwiGLUPacked")
"""Layers of `timm.layers` that `encoder.arguments.mlp_layer` can name."""


@dataclass(frozen=True)
class Architecture:
    """Construction of an encoder's trunk.

    Attributes:
        build: input side in px -> trunk with random weights, (N, 3, P, P) -> (N, D).
        mean: of R, G, B at full scale 0..1, for published weights.
        std: of R, G, B at full scale 0..1, for published weights.
        any_size: whether the trunk takes other sides than the one it was built for.
        stages: possible last modules of `FirstStages`, in the order of the forward pass.
        side_px: input side, to which patches are resized; None: the side of the patches.
        output: one vector, or tokens whose class token and mean of patch tokens are the features.
        license: of the published weights; None: not in the table.
    """

    build: Callable[[int], nn.Module]
    mean: Color = HALF
    std: Color = HALF
    any_size: bool = True
    stages: tuple[str, ...] = ()
    side_px: int | None = None
    output: Output = "vector"
    license: str | None = None


def _resnet(name: str, img_px: int) -> nn.Module:
    with lasting():  # Late: it takes seconds to load, and few commands build a ResNet.
        import torchvision

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
"""Name in `encoder.name` -> architecture. The other names are those of `PUBLISHED` and of timm."""


def architecture(name: str, arguments: Mapping[str, Any] | None = None) -> Architecture:
    """Architecture of a name in `ENCODERS`, in the table of published encoders, or of timm.

    Args:
        arguments: of timm's `create_model`; they override the table's.

    Raises:
        InputError: the name is unknown (the message names close ones), or does not take arguments.
    """
    base, merged = _base(name, arguments)
    known = ENCODERS[base] if base in ENCODERS else _timm(name, base, merged)
    published = PUBLISHED.get(name)
    return known if published is None else _as_published(known, published)


def python_of_trunk(name: str, arguments: Mapping[str, Any] | None, input_px: int) -> str:
    """Python that builds the trunk as `network` from torchvision or timm alone.

    Args:
        name: in `ENCODERS`, in the table of published encoders, or of timm.
        arguments: as in `architecture`.
        input_px: side of its input.
    """
    base, merged = _base(name, arguments)
    if base in ENCODERS:
        return f'network = torchvision.models.get_model("{base}"); network.fc = torch.nn.Identity()'
    size = {"img_size": input_px} if _is_fixed(base) else {}
    given = {"num_classes": 0, **size, **merged}
    words = [
        f"{key}=timm.layers.{value}" if key == _MLP_LAYER else f"{key}={value!r}"
        for key, value in given.items()
    ]
    return f'network = timm.create_model("{base}", {", ".join(words)})'


def _base(name: str, arguments: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """Name of torchvision or timm, and the arguments of the table with the given ones.

    Raises:
        InputError: arguments for a ResNet of torchvision.
    """
    published = PUBLISHED.get(name)
    base = name if published is None else published.architecture
    if arguments and base in ENCODERS:
        raise InputError(
            f"encoder.arguments: given, but {name} is a ResNet of torchvision, which takes none. Fix: set "
            f"encoder.arguments to null, or encoder.name to an architecture of timm."
        )
    return base, {**(published.arguments if published else {}), **(arguments or {})}


def _as_published(known: Architecture, row: Published) -> Architecture:
    return replace(
        known,
        mean=row.mean,
        std=row.std,
        side_px=row.side_px,
        output=row.output,
        license=row.license,
    )


def _timm(name: str, base: str, arguments: Mapping[str, Any]) -> Architecture:
    """Architecture `base` of timm.

    Args:
        name: in params, for messages.
    """
    import timm  # the import takes a second

    if not timm.is_model(
        base
    ):  # Also False for "hf-hub:..." and "local-dir:...", which timm would read from other places.
        close = difflib.get_close_matches(name.lower(), [*PUBLISHED, *ENCODERS, *timm.list_models()], n=3)
        advice = f"name {' or '.join(map(repr, close))}" if close else "name one of `histo-monai encoders`"
        raise InputError(
            f"encoder.name: {name[:80]!r} is no published encoder, no ResNet of torchvision and no name of timm. "
            f"Fix: {advice}"
        )
    try:
        about = timm.get_pretrained_cfg(base)
    except RuntimeError as error:  # an unknown tag after the name
        raise InputError(f"encoder.name: {name[:80]!r}: {' '.join(str(error).split())}") from None
    is_fixed = _is_fixed(base)
    build = partial(_build_timm, base, _timm_arguments(arguments), is_fixed)
    if about is None:
        return Architecture(build)
    return Architecture(build, tuple(about.mean), tuple(about.std), any_size=not is_fixed)


def _is_fixed(base: str) -> bool:
    """Whether a network of timm is built for one input side."""
    import timm

    about = timm.get_pretrained_cfg(base)
    return about is not None and bool(about.fixed_input_size)


def _build_timm(name: str, arguments: Mapping[str, Any], is_fixed: bool, img_px: int) -> nn.Module:
    import timm

    size = {"img_size": img_px} if is_fixed else {}
    trunk = timm.create_model(name, pretrained=False, **{"num_classes": 0, **size, **arguments})
    side = getattr(getattr(trunk, "patch_embed", None), "patch_size", 1) if is_fixed else 1
    if any(img_px % part for part in (side if isinstance(side, tuple) else (side,))):
        raise InputError(f"its own patches have {side} px")  # timm would drop the remaining pixels
    return trunk


def _timm_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with the class of `mlp_layer` in place of its name.

    Raises:
        InputError: an argument would load weights, or `mlp_layer` has another name.
    """
    import timm.layers

    for key in ("pretrained", "checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"):
        if key in arguments:
            raise InputError(
                f"encoder.arguments.{key}: would load weights. Fix: name the file in encoder.weights."
            )
    for key, mend in (("num_classes", "leave it out; it is 0"), ("img_size", "set encoder.side")):
        if key in arguments:
            raise InputError(f"encoder.arguments.{key}: not an argument of an encoder. Fix: {mend}.")
    layer = arguments.get(_MLP_LAYER)
    if layer is None:
        return dict(arguments)
    if layer not in _MLP_LAYERS:
        raise InputError(
            f"encoder.arguments.mlp_layer: {str(layer)[:40]!r} is unknown. Fix: set one of {', '.join(_MLP_LAYERS)}."
        )
    return {**arguments, _MLP_LAYER: getattr(timm.layers, layer)}
