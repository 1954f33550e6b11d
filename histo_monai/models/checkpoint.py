"""Models on disk: safetensors for the numbers, JSON for what they are. Loading one never runs code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.tensors import in_the_way
from histo_monai.utils.storage import opened, read_json, sealed, whole_file, write_json
from histo_monai.utils.storage.shapes import Shape

FORMAT = (
    3  # 3: the description names the encoder; since 2 it holds the digest of the tensors' file, and its own
)
_SEAL = "description_sha256"

_MEND = "remove both files and `dvc pull` or `dvc repro` again; where they come back so, see docs/remote.md"


def save_model(path: Path, state: Mapping[str, torch.Tensor], description: Mapping[str, Any]) -> None:
    """Write `path` (safetensors) and beside it the same name with `.json`; each file appears whole or not at all.

    The bytes are a function of the tensors alone: two equal trainings give equal files. The JSON holds their
    SHA-256 (`sha256`) and that of itself without it (`description_sha256`), so that a changed byte is found and
    the two belong together: a run killed between the two files leaves a pair that is refused.

    Args:
        path: ends in `.safetensors`.
        state: tensors by name; moved to the CPU and made contiguous.
        description: what the model is, its µm/px, normalization, params, provenance; written to the JSON.
    """
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: a model file ends in .safetensors")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    content = safetensors.torch.save(tensors, metadata={"format": "pt"})
    complete = {**description, "format": FORMAT, "sha256": hashlib.sha256(content).hexdigest()}
    with whole_file(path, len(content)) as draft:
        draft.write_bytes(content)
        write_json(path.with_suffix(".json"), sealed(complete, _SEAL))


def load_model(path: str | Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors by name, and the description beside them, as they were given to `save_model`.

    Raises:
        InputError: a file is missing, is not JSON or safetensors, has another format than this code reads, or
            is not byte for byte what was saved (of the JSON: but for its layout); or a tensor is not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such model; run the stage that makes it, or `dvc pull`")
    beside = path.with_suffix(".json")
    description = read_description(beside)
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != description.pop("sha256", None):
        raise InputError(f"{path}: not the bytes that {beside.name} describes (SHA-256 differs); {_MEND}")
    try:
        tensors = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise InputError(f"{path}: not a safetensors file ({error}); {_MEND}") from None
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise InputError(
                f"{path}: {name} holds NaN or infinity, so every prediction would; run the stage that makes it again"
            )
    return tensors, description


def read_description(path: Path, shape: Shape = object) -> dict[str, Any]:
    """The JSON beside a model as it was saved, the digest of the tensors' file (`sha256`) in it, that of itself not.

    Raises:
        InputError: it is missing, is not JSON, has another shape or another format than this code reads, or is not as
            it was saved.
    """
    description = read_json(path, f"it describes the model; {_MEND}", shape)
    written_as = description.get("format")
    if written_as != FORMAT:
        newer = isinstance(written_as, int) and written_as > FORMAT
        mend = "update histo_monai" if newer else "run the stage that makes it again"
        raise InputError(f"{path}: format {written_as!r}, this version reads {FORMAT}; {mend}")
    whole = opened(description, _SEAL)
    if _SEAL not in description:
        raise InputError(
            f"{path}: has no seal ({_SEAL}), so nobody knows whether it is as it was saved; {_MEND}"
        )
    if whole is None:
        raise InputError(f"{path}: not the description that was saved (SHA-256 differs); {_MEND}")
    return whole


def load_into(module: nn.Module, state: Mapping[str, torch.Tensor], prefix: str, path: Path) -> None:
    """Load the tensors whose names begin with `prefix` into `module`, all of them and nothing else.

    Raises:
        InputError: names, shapes or kinds of numbers differ; the line names `path` and the first of them, or what
            stands before all names.
    """
    part = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    want = module.state_dict()
    before = in_the_way(state, want)
    if before and before != prefix and not set(part) & set(want):
        raise InputError(
            f"{path}: its tensors stand under {before!r}, not {prefix!r}; save them by these names"
        )
    odd = sorted(set(part) ^ set(want)) or sorted(n for n in want if want[n].shape != part[n].shape)
    if odd:
        raise InputError(
            f"{path}: does not fit {type(module).__name__}: {prefix}{odd[0]} is missing, extra or misshapen"
        )
    kinds = sorted(name for name in want if not _same_kind(want[name].dtype, part[name].dtype))
    if kinds:
        its, right = part[kinds[0]].dtype, want[kinds[0]].dtype
        raise InputError(f"{path}: {prefix}{kinds[0]} holds {its}, the network has {right} there; save it so")
    module.load_state_dict(part)


def _same_kind(one: torch.dtype, other: torch.dtype) -> bool:
    """Whether numbers of the second can stand for the first; fractions are rounded to the network's own."""
    return one == other or (one.is_floating_point and other.is_floating_point)
