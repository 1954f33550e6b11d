"""Tensors of published weights for a trunk, under any known prefix; loaded completely or not at all."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from histo_monai.models.encoders.layouts import TRANSFORMERS, known_layout
from histo_monai.models.encoders.mends import missing_argument, wrong_argument
from histo_monai.models.encoders.published import Color
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import Tensors, in_the_way

_LOG = logging.getLogger(__name__)

_PREFERRED = ("teacher", "momentum_encoder")
_AFTER = ("student", "encoder_k")
_PREFIXES = (
    *("module", "model", "backbone", "encoder", "encoder_q", "base_encoder", "trunk"),
    *(*_PREFERRED, *_AFTER, "resnet", "_orig_mod", "vit", "dinov2"),
)
_HEADS = (
    *("fc", "head", "heads", "head_dist", "classifier", "projector", "projection_head", "predictor"),
    *("prototypes", "mask_token", "queue", "queue_ptr", "pooler", "dino_head", "ibot_head", "reference"),
)
_OWN = "encoder.trunk."
"""Prefix in an encoder.safetensors of this project."""
_LAYERS = tuple(f"{k}.{part}" for k in (0, 2) for part in ("weight", "bias"))
_RSP_NORMALIZATION = (0.0, 0.0, 0.0), (1 / 255, 1 / 255, 1 / 255)
"""RSP's published code trains on pixels of 0..255."""
_SHOWN = 5


@dataclass(frozen=True)
class Fitted:
    """Tensors of an encoder from a file.

    Attributes:
        trunk: tensors by the names of the trunk.
        pair_mlp: tensors of the pair MLP, by its names; None: the file has none. Files of RSP's published code (a
            ResNet under `model.`, the pair MLP under `fc.`) and of this project have one.
        normalization: mean and std of such a file's training; None: not stated.
    """

    trunk: Tensors
    pair_mlp: Tensors | None
    normalization: tuple[Color, Color] | None


def fit(tensors: Mapping[str, torch.Tensor], trunk: nn.Module, pair_mlp: nn.Module, path: Path) -> Fitted:
    """Find a trunk's tensors in a file, under any known prefix.

    Of several complete copies a teacher or momentum encoder comes first, a student or key encoder last. Heads and
    other copies are omitted and logged.

    Args:
        tensors: of `read_tensors`.
        trunk: its names and shapes are expected.
        pair_mlp: its names and shapes are expected, if the file has a pair MLP.
        path: of the file, for messages.

    Raises:
        InputError: a tensor is missing, has another shape, is not finite, or belongs to neither trunk nor head; names
            up to five of them.
    """
    wanted = trunk.state_dict()
    tensors, layout = known_layout(tensors, wanted)
    if layout:
        _LOG.info("weights: file=%s layout=%s", path, layout)
    prefix = _best_prefix(tensors, wanted)
    matched = {name: tensors[prefix + name] for name in wanted if prefix + name in tensors}
    for name in wanted:  # torchvision's older files do not count batches, and nothing reads the count
        if name.endswith("num_batches_tracked"):
            matched.setdefault(name, torch.zeros_like(wanted[name]))
    pairs, normalization = _pair_mlp(tensors, prefix), None
    used = {prefix + name for name in matched} | set(pairs)
    if prefix == _OWN and {"encoder.mean", "encoder.std"} <= set(tensors):
        used |= {"encoder.mean", "encoder.std"}
        normalization = _colors(tensors["encoder.mean"]), _colors(tensors["encoder.std"])
    elif pairs:
        normalization = _RSP_NORMALIZATION
    rest = [name for name in tensors if name not in used]
    known = [name for name in rest if _is_known(name, wanted)]
    missing, unknown = [name for name in wanted if name not in matched], sorted(set(rest) - set(known))
    if missing or unknown:
        raise InputError(
            f"{path}: does not fit the encoder: {_some(missing)} missing, {_some(unknown)} left over. Fix: "
            f"{missing_argument(missing, unknown, tensors) or _remedy(tensors, wanted, prefix)}"
        )
    matched = _resized(matched, trunk, antialias=layout != TRANSFORMERS or "reg_token" in wanted)
    given = {layer: tensors[name] for name, layer in pairs.items()}
    _check_shapes({**matched, **given}, {**wanted, **(pair_mlp.state_dict() if given else {})}, path)
    heads = sorted({_bare(name).split(".")[0] for name in known})
    under = f" prefix={prefix}" if prefix else ""
    left = f" skipped={len(known)} ({', '.join(heads[:_SHOWN])})" if known else ""
    _LOG.info("weights: file=%s tensors=%d%s%s", path, len(matched) + len(given), under, left)
    return Fitted(matched, given or None, normalization)


def _remedy(names: Iterable[str], wanted: Iterable[str], known: str) -> str:
    """Fix for names of a file that have an unknown prefix, or for another architecture."""
    prefix = in_the_way(names, wanted)
    if prefix and prefix != known:
        return f"save the encoder's tensors without the prefix {prefix!r}, or with {_PREFIXES[1]!r}"
    return "set encoder.name to the architecture of the file"


def _best_prefix(tensors: Iterable[str], wanted: Iterable[str]) -> str:
    """Prefix of known words with most of the wanted names below it."""
    names, wanted = set(tensors), list(wanted)
    prefixes = {""}
    for name in names:
        words = name.split(".")
        for end in range(1, len(words)):
            if words[end - 1] not in _PREFIXES:
                break
            prefixes.add(".".join(words[:end]) + ".")

    def order(prefix: str) -> tuple[int, int, int, str]:
        words = prefix.split(".")
        rank = 0 if set(words) & set(_PREFERRED) else 2 if set(words) & set(_AFTER) else 1
        return -sum(prefix + name in names for name in wanted), rank, len(words), prefix

    return min(prefixes, key=order)


def _pair_mlp(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, str]:
    """Name in the file -> name in `PairMLP`; empty if the file has no pair MLP beside the trunk."""
    if prefix == _OWN:
        names = {f"pair_mlp.layers.{layer}": f"layers.{layer}" for layer in _LAYERS}
    elif prefix.endswith("model."):
        names = {f"{prefix.removesuffix('model.')}fc.{layer}": f"layers.{layer}" for layer in _LAYERS}
    else:
        return {}
    return names if set(names) <= set(tensors) else {}


def _colors(buffer: torch.Tensor) -> Color:
    return tuple(buffer.flatten().tolist())


def _bare(name: str) -> str:
    """Name without known prefixes."""
    words = name.split(".")
    while len(words) > 1 and words[0] in _PREFIXES:
        words = words[1:]
    return ".".join(words)


def _is_known(name: str, wanted: Mapping[str, Any]) -> bool:
    """Whether a tensor belongs to a head, or to another copy of the trunk."""
    bare = _bare(name)
    return bare in wanted or bare.split(".")[0] in _HEADS


def _resized(tensors: Tensors, trunk: nn.Module, *, antialias: bool) -> Tensors:
    """Position embeddings of another image size, resampled by a bicubic filter.

    Args:
        tensors: of a file, by the names of the trunk.
        antialias: as timm does; transformers' ViT and DINOv2 without registers do not.
    """
    name, wanted = "pos_embed", getattr(trunk, "pos_embed", None)
    given = tensors.get(name)
    if wanted is None or given is None or given.shape == wanted.shape or given.ndim != 3:
        return tensors
    from timm.layers import resample_abs_pos_embed

    about: Any = trunk
    prefixes = 0 if getattr(about, "no_embed_class", False) else getattr(about, "num_prefix_tokens", 0)
    if (
        given.shape[2] != wanted.shape[2]
        or math.isqrt(given.shape[1] - prefixes) ** 2 != given.shape[1] - prefixes
    ):
        return tensors
    _LOG.info("weights: %s resampled from %d to %d positions", name, given.shape[1], wanted.shape[1])
    grid = list(about.patch_embed.grid_size)
    return {
        **tensors,
        name: resample_abs_pos_embed(given, grid, num_prefix_tokens=prefixes, antialias=antialias),
    }


def _check_shapes(tensors: Tensors, wanted: Mapping[str, torch.Tensor], path: Path) -> None:
    odd = [
        f"{name} {tuple(tensor.shape)}, not {tuple(wanted[name].shape)}"
        for name, tensor in tensors.items()
        if tensor.shape != wanted[name].shape
        or tensor.is_floating_point() != wanted[name].is_floating_point()
    ]
    if odd:
        raise InputError(
            f"{path}: does not fit the encoder: shape or type differs for {_some(odd)}. Fix: "
            f"{wrong_argument(tensors, wanted) or 'set encoder.name to the architecture of the file'}"
        )
    bad = [name for name, tensor in tensors.items() if not bool(tensor.float().isfinite().all())]
    if bad:
        raise InputError(f"{path}: NaN or infinity in {_some(bad)}. Fix: fetch it again.")


def _some(names: list[str]) -> str:
    return f"{len(names)}" + (f" ({', '.join(names[:_SHOWN])})" if names else "")
