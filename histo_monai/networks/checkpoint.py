"""Models on disk: safetensors for the numbers, JSON for what they are. Loading one never runs code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

FORMAT = 1


def save_model(path: Path, state: Mapping[str, torch.Tensor], description: Mapping[str, Any]) -> None:
    """Write `path` (safetensors) and beside it the same name with `.json`; each file appears whole or not at all.

    The bytes are a function of the tensors alone: two equal trainings give equal files.

    Args:
        path: ends in `.safetensors`.
        state: tensors by name; moved to the CPU and made contiguous.
        description: what the model is, its µm/px, normalisation, params, provenance; written to the JSON.
    """
    if path.suffix != ".safetensors":
        raise ValueError(f"{path}: a model file ends in .safetensors")
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    draft = path.with_name(f".{path.name}.draft")
    safetensors.torch.save_file(tensors, draft, metadata={"format": "pt"})
    text = path.with_name(f".{path.stem}.json.draft")
    text.write_text(json.dumps({"format": FORMAT, **description}, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, path)
    os.replace(text, path.with_suffix(".json"))


def load_model(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors by name, and the description beside them.

    Raises:
        ValueError: a file is missing, is not safetensors or JSON, or has a format newer than this code knows.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such model; run the stage that makes it, or `dvc pull`")
    beside = path.with_suffix(".json")
    try:
        state = safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: not a safetensors file ({error}); make or pull it again") from None
    try:
        description = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(
            f"{beside}: the description of the model is missing or is not JSON; pull it again"
        ) from None
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{beside}: format {description.get('format')!r}, this version reads {FORMAT}; update histo_monai"
        )
    return state, description


def load_into(module: nn.Module, state: Mapping[str, torch.Tensor], prefix: str, path: Path) -> None:
    """Load the tensors whose names begin with `prefix` into `module`, all of them and nothing else.

    Raises:
        ValueError: names or shapes differ; the line names `path` and the first of them.
    """
    part = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    want = module.state_dict()
    odd = sorted(set(part) ^ set(want)) or sorted(n for n in want if want[n].shape != part[n].shape)
    if odd:
        raise ValueError(
            f"{path}: does not fit {type(module).__name__}: {prefix}{odd[0]} is missing, extra or misshapen"
        )
    module.load_state_dict(part)
