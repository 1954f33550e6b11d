"""Weights from elsewhere -> a model of this project: a bundle, or a state dict and a model that is like it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.checkpoint import load_model, read_description, save_model
from histo_monai.models.task_model import from_task_model, load_encoder
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import read_tensors
from histo_monai.utils.storage import file_sha256, own_folder
from histo_monai.wsi.export.bundle import DESCRIPTION, WEIGHTS, check_bundle

_OF_FILE = ("sha256", "format")
_WRAPPERS = ("module.", "model.", "network.")


def take_back(source: Path, folder: Path, like: Path | None) -> Path:
    """Write a model and its description, and give its path.

    Tensors of a bundle that are those of its description give the model that was exported, byte for byte. Others were
    trained since: the description then says from which file they are (`imported`), and keeps no metrics.

    Args:
        source: a bundle that `write_bundle` wrote, or a file of tensors.
        like: of a file of tensors: a model or an encoder of the same architecture, whose description is taken over.

    Raises:
        InputError: a file cannot be used; `like` is given for a bundle; tensors are missing, left over or of another
            shape.
        OutputError: the folder holds what was not written so.
    """
    if not source.exists():
        raise InputError(f"{source}: no such file or folder; name a bundle, or a file of tensors")
    if source.is_dir():
        if like is not None:
            raise InputError(f"{source}: a bundle, which says itself what it is; leave out --like {like}")
        check_bundle(source)
        weights, beside = source / WEIGHTS, source / DESCRIPTION
    elif like is None:
        raise InputError(
            f"{source}: what is it? name a model or an encoder of the same architecture as --like; its µm/px, classes "
            "and normalization are taken over"
        )
    else:
        weights, beside = source, like.with_suffix(".json")
        load_model(like)
    about = read_description(beside)
    name = "encoder" if about.get("kind") == "encoder" else "model"
    bare = {key: value for key, value in about.items() if key not in _OF_FILE}
    with own_folder(folder, [weights, beside]) as draft:
        path = draft / f"{name}.safetensors"
        state = _unwrapped(read_tensors(weights))
        save_model(path, state, bare)
        if file_sha256(path) != about.get("sha256"):
            imported = {"file_sha256": file_sha256(weights), "in_place_of": about.get("sha256")}
            save_model(path, state, {**bare, "metrics": {}, "imported": imported})
        try:
            _check(path, bare)
        except InputError as error:
            raise InputError(f"{source}: {str(error).replace(str(draft), str(folder))}") from None
    return folder / path.name


def _check(path: Path, about: Mapping[str, Any]) -> None:
    """It is what it says: all tensors are there, and no others."""
    (load_encoder if about.get("kind") == "encoder" else from_task_model)(path)


def _unwrapped(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without the word that wrappers put before every name."""
    for prefix in _WRAPPERS:
        if all(name.startswith(prefix) for name in tensors):
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return dict(tensors)
