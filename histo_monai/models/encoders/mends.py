"""Fixes for a weights file that does not fit the encoder: the param to set, from differences between their tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch

_Shapes = Mapping[str, torch.Tensor]
_LEFT = {
    r"blocks\.\d+\.ls[12]\.gamma": "init_values to 1e-5",
    r"reg_token$": "reg_tokens to {second}",
    r"cls_token$": "class_token to true",
    r"fc_norm\.": "global_pool to avg",
    r"attn\.[qk]_norm\.": "qk_norm to true",
}
"""Tensor that only the file has -> argument that adds it; `second` is the tensor's second dimension."""


def missing_argument(missing: Iterable[str], left: Iterable[str], given: _Shapes) -> str:
    """The param to set if tensor names of file and encoder differ; empty if no param explains the difference.

    Args:
        missing: names of the encoder that the file does not have.
        left: names of the file that the encoder does not have.
        given: tensors of the file, under the encoder's names.
    """
    missing, left = list(missing), list(left)
    for name in left:
        for pattern, mend in _LEFT.items():
            if re.search(pattern, name):
                return (
                    f"set encoder.arguments.{mend.format(second=given[name].shape[1:2].numel())} (for {name})"
                )
    blocks = [int(match[1]) for name in left if (match := re.search(r"blocks\.(\d+)\.", name))]
    if blocks:
        return f"set encoder.arguments.depth to {max(blocks) + 1} (for {left[0]})"
    for name in missing:
        if re.search(r"blocks\.\d+\.ls[12]\.gamma", name):
            return f"set encoder.arguments.init_values to null (the file has no {name})"
        if name == "reg_token":
            return "set encoder.arguments.reg_tokens to 0 (the file has no reg_token)"
    lost = [int(match[1]) for name in missing if (match := re.match(r"blocks\.(\d+)\.", name))]
    whole = {int(match[1]) for name in given if (match := re.match(r"blocks\.(\d+)\.", name))}
    if lost and whole and min(lost) == max(whole) + 1:
        return f"set encoder.arguments.depth to {min(lost)} (the file has no {missing[0]})"
    return ""


def wrong_argument(given: _Shapes, wanted: _Shapes) -> str:
    """The param to set if tensor shapes differ; empty if no param explains the difference.

    Args:
        given: tensors of a file, under the encoder's names.
        wanted: tensors of the encoder.
    """
    odd = [name for name in wanted if name in given and given[name].shape != wanted[name].shape]
    for name in odd:
        file, ours = given[name].shape, wanted[name].shape
        if name == "reg_token" and file[1] != ours[1]:
            return f"set encoder.arguments.reg_tokens to {file[1]} (for {name})"
        if name.endswith("patch_embed.proj.weight") and len(file) == 4 and file[2:] != ours[2:]:
            return f"set encoder.arguments.patch_size to {file[2]} and encoder.side to a multiple of it (for {name})"
        if name in ("cls_token", "pos_embed") and len(file) == 3 and file[2] != ours[2]:
            return f"set encoder.arguments.embed_dim to {file[2]} (for {name})"
        if name == "pos_embed" and len(file) == 3:
            return f"set encoder.arguments.no_embed_class, or encoder.side ({name}: {file[1]} positions, not {ours[1]})"
    for name in odd:
        if match := re.fullmatch(r"blocks\.(\d+)\.mlp\.fc1\.weight", name):
            width, features = given[name].shape
            inner = given.get(f"blocks.{match[1]}.mlp.fc2.weight")
            is_gated = inner is not None and 2 * inner.shape[1] == width
            layer = "mlp_layer to SwiGLUPacked, act_layer to silu and " if is_gated else ""
            return f"set encoder.arguments.{layer}mlp_ratio to {width / features:g} (for {name})"
        if re.fullmatch(r"blocks\.\d+\.mlp\.fc2\.weight", name):
            width = next((given[key].shape[0] for key in given if key.endswith("mlp.fc1.weight")), 0)
            layer = "SwiGLUPacked, with act_layer silu" if 2 * given[name].shape[1] == width else "Mlp"
            return f"set encoder.arguments.mlp_layer to {layer} (for {name})"
    return ""
