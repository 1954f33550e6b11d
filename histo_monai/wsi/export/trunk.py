"""Backbone of an encoder with the tensor names of torchvision or timm."""

from __future__ import annotations

import json
from pathlib import Path

import safetensors.torch

from histo_monai.models.card import model_facts
from histo_monai.models.encoder import ENCODERS
from histo_monai.models.task_model import load_encoder
from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_folder, check_outputs, whole_file


def write_trunk(model: Path, path: Path) -> str:
    """Write a backbone as safetensors; its header states name, mean, std, patch side, µm/px and model card.

    Args:
        model: encoder.safetensors or model.safetensors.
        path: ends in .safetensors.

    Returns:
        Four lines of Python that load it without this package.

    Raises:
        InputError: the model cannot be used.
        OutputError: the file exists.
    """
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: not a .safetensors file name. Fix: name a file that ends in .safetensors")
    check_folder(path.parent)
    check_outputs([path], [model], written={})
    encoder, about = load_encoder(model)
    if encoder.stages is not None:
        raise InputError(
            f"{model}: its depth is stage {encoder.stages} of {encoder.name}, which torchvision and timm cannot build. "
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
    with whole_file(path) as draft:
        draft.write_bytes(safetensors.torch.save(state, metadata={"format": "pt", **metadata}))
    mean, std = about["encoder"]["mean"], about["encoder"]["std"]
    size = "" if encoder.any_size else f", img_size={encoder.img_px}"
    build = f'timm.create_model("{encoder.name}", num_classes=0{size})'
    if encoder.name in ENCODERS:
        build = f'torchvision.models.get_model("{encoder.name}"); network.fc = torch.nn.Identity()'
    return "\n".join(
        [
            f"network = {build}",
            f"network.load_state_dict(safetensors.torch.load_file({json.dumps(str(path))}))",
            f"mean, std = (torch.tensor(x).view(3, 1, 1) for x in ({mean}, {std}))",
            f"features = network.eval()((patches - mean) / std)  # RGB, 0..1, (n, 3, {about['patch_px']}, "
            f"{about['patch_px']}) -> (n, {encoder.num_features})",
        ]
    )
