"""Import of weights: MONAI bundle, or state dict with a model of equal architecture -> model file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from histo_monai.evaluation.conformal import CONFORMAL
from histo_monai.models.checkpoint import load_model, read_description, save_model
from histo_monai.models.reference import reference_tensors
from histo_monai.models.task_model import from_task_model, load_encoder
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import read_tensors
from histo_monai.utils.storage import file_sha256, own_folder
from histo_monai.wsi.export.bundle import DESCRIPTION, REFERENCE, WEIGHTS, check_bundle

_OF_FILE = ("sha256", "format")
_WRAPPERS = ("module.", "model.", "network.")


def take_back(source: Path, folder: Path, like: Path | None) -> Path:
    """Path of the model file written from a bundle or a state dict.

    An unchanged bundle gives the exported model byte for byte. Weights trained since then get a description with
    `imported`, the source file, and without metrics; labeled patches and thresholds of the exported model are left out.

    Args:
        source: bundle of `write_bundle`, or state dict.
        like: model file with a matching architecture and the description to copy, for a state dict.

    Raises:
        InputError: a file cannot be used, `like` is given for a bundle, or tensors are missing, surplus or of another
            shape.
        OutputError: the folder holds other files.
    """
    if not source.exists():
        raise InputError(f"{source}: not found. Fix: name a bundle or a state dict")
    if source.is_dir():
        if like is not None:
            raise InputError(f"{source}: a bundle has its own description. Fix: leave out --like {like}")
        check_bundle(source)
        weights, beside = source / WEIGHTS, source / DESCRIPTION
        reference = read_tensors(source / REFERENCE) if (source / REFERENCE).is_file() else {}
    elif like is None:
        raise InputError(
            f"{source}: a state dict has no description. Fix: give --like MODEL of equal architecture; its µm/px, "
            "classes and normalization are copied"
        )
    else:
        weights, beside = source, like.with_suffix(".json")
        load_model(like)
        reference = reference_tensors(like)
    about = read_description(beside)
    name = "encoder" if about.get("kind") == "encoder" else "model"
    bare = {key: value for key, value in about.items() if key not in _OF_FILE}
    with own_folder(folder, [weights, beside]) as draft:
        path = draft / f"{name}.safetensors"
        state = _unwrapped(read_tensors(weights))
        save_model(path, {**state, **reference}, bare)
        if file_sha256(path) != about.get("sha256"):
            imported = {"file_sha256": file_sha256(weights), "in_place_of": about.get("sha256")}
            bare.pop(CONFORMAL, None)
            save_model(path, state, {**bare, "metrics": {}, "imported": imported})
        try:
            _check(path, bare)
        except InputError as error:
            raise InputError(f"{source}: {str(error).replace(str(draft), str(folder))}") from None
    return folder / path.name


def _check(path: Path, about: Mapping[str, Any]) -> None:
    """Check that the file holds exactly the tensors of its description."""
    (load_encoder if about.get("kind") == "encoder" else from_task_model)(path)


def _unwrapped(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors without the prefix of wrapper modules."""
    for prefix in _WRAPPERS:
        if all(name.startswith(prefix) for name in tensors):
            return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return dict(tensors)
