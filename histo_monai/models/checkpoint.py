"""Model files: safetensors for tensors, JSON for the description. Loading never runs code."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import in_the_way
from histo_monai.utils.storage import file_sha256, opened, read_json, sealed, whole_file, write_json
from histo_monai.utils.storage.shapes import Shape

FORMAT = 3  # 2 added the digests of tensors and description, 3 the encoder's name
_SEAL = "description_sha256"

_REMEDY = "remove both files and run `dvc pull` or `dvc repro`; if the error returns, see docs/remote.md"
_MEND = f"Fix: {_REMEDY}."
_PART_BYTES = 2**27
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_MAKE_AGAIN = "Fix: run the stage that makes it again."


def save_model(path: Path, state: Mapping[str, torch.Tensor], description: Mapping[str, Any]) -> None:
    """Write `path` (safetensors) and a JSON beside it, each atomically.

    The bytes depend on the tensors alone: equal trainings give equal files. The JSON holds the SHA-256 of the tensors
    (`sha256`) and of itself (`description_sha256`), so changed bytes are detected. A pair of files from a run killed
    between both writes is refused.

    Args:
        path: ends in `.safetensors`.
        state: tensors by name; moved to the CPU and made contiguous.
        description: content of the JSON: kind, µm/px, normalization, params, provenance.
    """
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: not a model file. Fix: use a name that ends in .safetensors.")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with whole_file(path, sum(tensor.nbytes for tensor in tensors.values())) as draft:
        write_tensors(draft, tensors)
        complete = {**description, "format": FORMAT, "sha256": file_sha256(draft)}
        write_json(path.with_suffix(".json"), sealed(complete, _SEAL))


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], **metadata: str) -> None:
    """Write contiguous tensors of the CPU without a second copy in memory.

    Raises:
        OSError: the file cannot be written; the library has another type for this error.
    """
    try:
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt", **metadata})
    except safetensors.SafetensorError as error:
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def load_model(path: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors by name and description, as given to `save_model`.

    Raises:
        InputError: a file is missing, is not JSON or safetensors, has another format or other bytes than saved (JSON
            layout apart); or a tensor is not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such model. Fix: run the stage that makes it, or `dvc pull`.")
    beside = path.with_suffix(".json")
    description = read_description(beside)
    if file_sha256(path) != description.pop("sha256", None):
        raise InputError(f"{path}: SHA-256 differs from {beside.name}. {_MEND}")
    try:
        tensors = _read(path)
    except safetensors.SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file ({error}). {_MEND}") from None
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise InputError(f"{path}: {name} holds NaN or infinity. {_MAKE_AGAIN}")
    return tensors, description


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Copies of all tensors, as the file may change.

    The library maps the file into memory. Its map is given up after each part, so that two copies never exist.
    """
    tensors: dict[str, torch.Tensor] = {}
    names: list[str] | None = None
    while names is None or len(tensors) < len(names):
        num_bytes = 0
        with safetensors.safe_open(path, "pt") as file:
            names = list(file.keys())
            for name in names[len(tensors) :]:
                tensors[name] = file.get_tensor(name).clone()
                num_bytes += tensors[name].nbytes
                if num_bytes > _PART_BYTES:
                    break
    return tensors


def read_description(path: Path, shape: Shape = object) -> dict[str, Any]:
    """Description of a model from its JSON, with the digest of the tensors (`sha256`), without its own.

    Raises:
        InputError: the file is missing, is not JSON, or has another shape, format or content than saved.
    """
    description = read_json(path, _REMEDY, shape)
    written_as = description.get("format")
    if written_as != FORMAT:
        newer = isinstance(written_as, int) and written_as > FORMAT
        fix = "Fix: update histo_monai." if newer else _MAKE_AGAIN
        raise InputError(f"{path}: format {written_as!r}, but this version reads {FORMAT}. {fix}")
    whole = opened(description, _SEAL)
    if _SEAL not in description:
        raise InputError(f"{path}: no seal ({_SEAL}), so changes cannot be detected. {_MEND}")
    if whole is None:
        raise InputError(f"{path}: changed after saving (SHA-256 differs). {_MEND}")
    return whole


def load_into(
    module: nn.Module,
    state: Mapping[str, torch.Tensor],
    prefix: str,
    path: Path,
    *,
    shares_memory: bool = False,
) -> None:
    """Load exactly the tensors with names below `prefix` into `module`.

    Args:
        shares_memory: parameters take the memory of `state`, where dtypes are equal; buffers are copied.

    Raises:
        InputError: names, shapes or dtypes differ; names `path` and the first difference.
    """
    part = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    want = module.state_dict()
    before = in_the_way(state, want)
    if before and before != prefix and not set(part) & set(want):
        raise InputError(
            f"{path}: tensor names begin with {before!r}, not {prefix!r}. Fix: save tensors with the prefix {prefix!r}."
        )
    odd = sorted(set(part) ^ set(want)) or sorted(n for n in want if want[n].shape != part[n].shape)
    if odd:
        raise InputError(
            f"{path}: does not fit {type(module).__name__}: {prefix}{odd[0]} is missing, extra or of another shape. "
            f"{_MAKE_AGAIN}"
        )
    kinds = sorted(name for name in want if not _same_kind(want[name].dtype, part[name].dtype))
    if kinds:
        its, right = part[kinds[0]].dtype, want[kinds[0]].dtype
        raise InputError(
            f"{path}: {prefix}{kinds[0]} is {its}, but the network has {right}. Fix: save it as {right}."
        )
    if shares_memory:
        weights = {name for name, _ in module.named_parameters()}
        part = {
            name: tensor.to(want[name].dtype) if name in weights else tensor.to(want[name].dtype, copy=True)
            for name, tensor in part.items()
        }
    module.load_state_dict(part, assign=shares_memory)


def _same_kind(one: torch.dtype, other: torch.dtype) -> bool:
    """Whether dtypes are equal or both floating-point."""
    return one == other or (one.is_floating_point and other.is_floating_point)
