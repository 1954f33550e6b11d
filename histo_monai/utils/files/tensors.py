"""Read tensors by name from weight files, without running code and within the file's own size.

The reader accepts dense CPU tensors of the dtypes in `KINDS`. It copies tensors that share a storage or view a buffer.
It refuses other tensors and names them: sparse, quantized, nested, complex, float8, and "meta" tensors, which have no
memory.
"""

from __future__ import annotations

import argparse
import re
import unicodedata
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage.reading import check_regular

Tensors = dict[str, torch.Tensor]

PICKLED = (".pt", ".pth", ".ckpt", ".tar", ".bin")
KINDS = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
)
"""Accepted dtypes; the caller checks that a tensor's dtype fits the network."""

_NESTED = ("teacher", "state_dict", "model_state_dict", "model")
"""Keys under which checkpoints store the tensors; the reader uses the first that exists."""
_MOST_COPIES = 4
"""Largest ratio of the tensors' bytes to the file's bytes: several names may share one storage."""
_NUMBER: Any = np.float64(0).__reduce__()[0]
_PLAIN = (
    *(
        argparse.Namespace,
        np.dtype,
        *(type(np.dtype(kind)) for kind in ("f2", "f4", "f8", "i4", "i8", "u1", "?")),
    ),
    *(_NUMBER, (_NUMBER, "numpy.core.multiarray.scalar")),
)
"""Classes beside tensors that run no code: settings, and numbers of numpy under its new and its old module name."""
_GLOBAL = re.compile(r"GLOBAL (\S+)")
_SHOWN = 5


def check_file(path: Path) -> None:
    """Refuse a path that cannot be a file of weights, before reading it.

    Raises:
        InputError: the file is missing, no regular file, or has another suffix than `.safetensors` and `PICKLED`.
    """
    if path.suffix not in (".safetensors", *PICKLED):
        raise InputError(
            f"{path}: not a weights file. Fix: use .safetensors ({', '.join(PICKLED)} if you must)."
        )
    try:
        check_regular(path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}). Fix: put the file of encoder.weights there, or set it to null."
        ) from None


def read_tensors(path: Path) -> Tensors:
    """All tensors of a weight file, by name, in separate memory.

    Args:
        path: `.safetensors`, or one of `PICKLED`, which torch reads with `weights_only`; only `argparse.Namespace`,
            common in checkpoints, is also accepted.

    Raises:
        InputError: An error of `check_file`; or the file is cut off, contains code, no tensors or refused tensors, or
            unpacks to more bytes than allowed.
    """
    check_file(path)
    tensors = _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
    if not tensors:
        raise InputError(f"{path}: holds no tensors by name. Fix: save the state_dict of the network.")
    _check_kinds(tensors, path)
    return _apart(tensors)


def in_the_way(names: Iterable[str], wanted: Iterable[str]) -> str:
    """The prefix of most wanted names in a file, such as `_orig_mod.`; empty if there is none."""
    wanted = set(wanted)
    before: Counter[str] = Counter()
    for name in names:
        starts = [0, *(match.end() for match in re.finditer(r"\.", name))]
        before.update(name[:start] for start in starts if name[start:] in wanted)
    prefix, count = max(before.items(), key=lambda item: (item[1], -len(item[0])), default=("", 0))
    return prefix if 2 * count > len(wanted) else ""


def one_line(error: BaseException) -> str:
    """The message of a library's error, without line breaks and terminal codes."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    plain = "".join(" " if unicodedata.category(sign)[0] == "C" else sign for sign in text)
    return " ".join(plain.split())[:160] or type(error).__name__


def _safetensors(path: Path) -> Tensors:
    try:
        return safetensors.torch.load_file(path)
    except safetensors.SafetensorError as error:
        raise InputError(
            f"{path}: not a whole safetensors file ({one_line(error)}). Fix: fetch it again."
        ) from None


def _pickled(path: Path) -> Tensors:
    _check_unpacked(path)
    try:
        with torch.serialization.safe_globals([*_PLAIN]), warnings.catch_warnings(action="ignore"):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle can raise any error
        code = _GLOBAL.search(str(error))
        if code:
            raise InputError(
                f"{path}: holds {code[1][:160]} beside its tensors, which is code and is never run. Fix: if you trust "
                "the file, save its state_dict alone, as .safetensors."
            ) from None
        raise InputError(
            f"{path}: not a whole file of tensors, or it holds code, which is never run ({one_line(error)}). "
            "Fix: fetch it again, or save its state_dict as .safetensors if you trust it."
        ) from None
    for _ in _NESTED:
        inner = [key for key in _NESTED if isinstance(content, Mapping) and _is_tree(content.get(key))]
        if inner:
            content = content[inner[0]]
    if not isinstance(content, Mapping):
        return {}
    return {str(name): value.detach() for name, value in content.items() if isinstance(value, torch.Tensor)}


def _is_tree(value: Any) -> bool:
    return isinstance(value, Mapping)


def _check_unpacked(path: Path) -> None:
    """Refuse an archive that unpacks to more than its size, before reading it; torch compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise InputError(
            f"{path}: not a whole file of tensors ({one_line(error)}). Fix: fetch it again."
        ) from None
    num_bytes, size = sum(member.file_size for member in members), path.stat().st_size
    if num_bytes > size or any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise InputError(
            f"{path}: a packed archive, whose {size} bytes unpack to {num_bytes}. Fix: save the state_dict again with "
            "torch.save, which packs nothing."
        )


def _check_kinds(tensors: Tensors, path: Path) -> None:
    """Refuse tensors without data, of unknown dtypes, or of far more bytes than the file has."""
    odd = [f"{name} ({what})" for name, tensor in tensors.items() if (what := _oddity(tensor))]
    if odd:
        more = f" and {len(odd) - _SHOWN} more" if len(odd) > _SHOWN else ""
        raise InputError(
            f"{path}: cannot be read: {', '.join(odd[:_SHOWN])}{more}. Fix: save dense tensors on the CPU, weights as "
            "float16, bfloat16, float32 or float64 (to_dense(), dequantize(), float())."
        )
    num_bytes, size = sum(tensor.nbytes for tensor in tensors.values()), path.stat().st_size
    if num_bytes > _MOST_COPIES * size:
        raise InputError(
            f"{path}: its tensors have {num_bytes} bytes, the file {size}: they repeat data. Fix: save copies "
            "(contiguous())."
        )


def _oddity(tensor: torch.Tensor) -> str:
    """The reason to refuse a tensor; empty if it is accepted."""
    if type(tensor) is not torch.Tensor:
        return type(tensor).__name__
    if tensor.is_nested:
        return "nested"
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.")
    if tensor.device.type != "cpu":
        return f"on the device {tensor.device.type}, without numbers"
    return "" if tensor.dtype in KINDS else str(tensor.dtype).removeprefix("torch.")


def _apart(tensors: Tensors) -> Tensors:
    """Tensors that share no storage; copies only tensors that share or view one."""
    storages = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())

    def is_alone(tensor: torch.Tensor) -> bool:
        storage = tensor.untyped_storage()
        return storages[storage.data_ptr()] == 1 and storage.nbytes() == tensor.nbytes

    return {
        name: tensor if is_alone(tensor) and not tensor.is_neg() else tensor.clone().contiguous()
        for name, tensor in tensors.items()
    }
