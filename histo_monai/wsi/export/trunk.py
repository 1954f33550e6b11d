"""Backbone of an encoder with the tensor names of torchvision or timm."""

from __future__ import annotations

import json
from pathlib import Path

from histo_monai.models.card import model_facts
from histo_monai.models.checkpoint import write_tensors
from histo_monai.models.encoder import Encoder
from histo_monai.models.encoders.architectures import python_of_trunk
from histo_monai.models.settings import COLOR, FIELD
from histo_monai.models.task_model import load_encoder
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_folder, check_outputs, whole_file


def write_trunk(model: Path, path: Path) -> str:
    """Write a backbone as safetensors; its metadata states architecture, normalization, patch side, µm/px, card.

    Args:
        model: encoder.safetensors or model.safetensors.
        path: ends in .safetensors.

    Returns:
        Lines of Python that load it and compute features without this package.

    Raises:
        InputError: the model cannot be used.
        OutputError: the file exists.
    """
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: not a .safetensors file name. Fix: name a file that ends in .safetensors")
    check_folder(path.parent)
    check_outputs([path], [model], written={})
    encoder, about = load_encoder(model)
    if encoder.depths != (None,) or encoder.field > 1:
        names = {COLOR: "0 (color)", FIELD: "the field"}
        stages = ", ".join(names.get(depth, str(depth)) for depth in encoder.depths if depth is not None)
        stages = stages or "the field"
        raise InputError(
            f"{model}: its depth is stage {stages} of {encoder.name}, which torchvision and timm cannot build. "
            "Fix: export --onnx or --bundle"
        )
    state = {name: tensor.contiguous() for name, tensor in encoder.trunk.state_dict().items()}
    metadata = {
        "name": encoder.name,
        "mean": json.dumps(about["encoder"]["mean"]),
        "std": json.dumps(about["encoder"]["std"]),
        "patch_px": str(about["patch_px"]),
        "mpp": json.dumps(about.get("mpp") or about["mpps"]),
        "card": json.dumps(model_facts(about), ensure_ascii=False),
    }
    if encoder.side_px is not None:
        metadata |= {"side": str(encoder.side_px), "output": encoder.output}
    if encoder.arguments:
        metadata["arguments"] = json.dumps(encoder.arguments)
    with whole_file(path) as draft:
        write_tensors(draft, state, **metadata)
    return _python(encoder, path, about["patch_px"])


def _python(encoder: Encoder, path: Path, patch_px: int) -> str:
    """Python that loads the backbone and computes features of `patches`."""
    about = encoder.about()
    lines = [
        python_of_trunk(encoder.name, encoder.arguments, encoder.side_px or encoder.img_px),
        f"network.load_state_dict(safetensors.torch.load_file({json.dumps(str(path))}))",
        f"mean, std = (torch.tensor(x).view(3, 1, 1) for x in ({about['mean']}, {about['std']}))",
    ]
    if encoder.side_px is not None:
        size = f"({encoder.side_px}, {encoder.side_px})"
        lines.append(
            f'patches = torch.nn.functional.interpolate(patches, {size}, mode="bilinear", antialias=True)'
        )
    output, pooling = "features", []
    if encoder.output != "vector":
        output = "tokens"
        patch_tokens = "tokens[:, network.num_prefix_tokens :]"
        pooling = [f"features = torch.cat([tokens[:, 0], {patch_tokens}.mean(dim=1)], dim=1)"]
    lines.append(
        f"{output} = network.eval()((patches - mean) / std)  # RGB, 0..1, (n, 3, {patch_px}, {patch_px}) -> "
        f"(n, {encoder.num_features})"
    )
    return "\n".join([*lines, *pooling])
