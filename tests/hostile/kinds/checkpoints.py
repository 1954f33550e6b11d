"""Checkpoints of others: what torch saves besides the state dict that this project would."""

from __future__ import annotations

import collections
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import nn

from histo_monai.models.checkpoint import load_model
from tests.hostile.case import ACCEPTED, Case
from tests.hostile.project import STUDENT, write_text

KIND = "checkpoints of others"
SOURCE = Path("weights.pt")
IMPORT = ("import", str(SOURCE), "--like", str(STUDENT), "--output", "imported")
FIRST = "encoder.trunk.conv1.weight"
State = dict[str, Any]


def _saved(change: Callable[[State], Any], *, old: bool = False) -> Callable[[], None]:
    """A checkpoint made from the student's tensors."""

    def make() -> None:
        with warnings.catch_warnings(action="ignore"):
            content = change(load_model(STUDENT)[0])
            torch.save(content, SOURCE, _use_new_zipfile_serialization=not old)

    return make


def _first(make: Callable[[torch.Tensor], Any]) -> Callable[[State], State]:
    """One tensor is another."""
    return lambda state: state | {FIRST: make(state[FIRST])}


def _each(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[State], State]:
    return lambda state: {name: make(tensor) for name, tensor in state.items()}


def _beside(value: Any) -> Callable[[State], Any]:
    return lambda state: {"state_dict": state, "best": value}


def _under(prefix: str) -> Callable[[State], State]:
    return lambda state: {prefix + name: tensor for name, tensor in state.items()}


def _one_buffer(state: State) -> State:
    """Views of one storage, as a flattened optimizer leaves them."""
    floats = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    parts = torch.cat([tensor.flatten() for tensor in floats.values()]).split(
        [tensor.numel() for tensor in floats.values()]
    )
    return state | {name: part.view_as(floats[name]) for name, part in zip(floats, parts, strict=True)}


def _two_names(state: State) -> State:
    names = [name for name in state if name.endswith("num_batches_tracked")]
    return state | dict.fromkeys(names, state[names[0]])


ORDINARY: dict[str, Callable[[State], Any]] = {
    "a scalar of numpy": _beside(np.float64(1)),
    "as it is": lambda state: state,
    "views of one buffer": _one_buffer,
    "two names of one storage": _two_names,
    "parameters": lambda state: {
        name: nn.Parameter(tensor, requires_grad=tensor.is_floating_point()) for name, tensor in state.items()
    },
    "float16": _each(lambda tensor: tensor.half() if tensor.is_floating_point() else tensor),
    "bfloat16": _each(lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor),
    "float64": _each(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor),
    "channels last": _each(
        lambda tensor: tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
    ),
    "an ordered dict": lambda state: collections.OrderedDict(state),
    "below module": _under("module."),
    "below state_dict, with an epoch": lambda state: {"state_dict": state, "epoch": 3},
}
ODD: dict[str, tuple[Callable[[State], Any], tuple[str, ...]]] = {
    "sparse": (_first(lambda x: x.to_sparse()), (FIRST, "sparse")),
    "compressed rows": (_first(lambda x: x.flatten(1).to_sparse_csr()), (FIRST, "sparse_csr")),
    "quantized": (_first(lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)), (FIRST, "qint8")),
    "nested": (_first(lambda x: torch.nested.nested_tensor([x, x])), (FIRST, "nested")),
    "without memory": (_first(lambda x: x.to("meta")), (FIRST, "meta")),
    "complex": (_first(lambda x: x.to(torch.complex64)), (FIRST, "complex64")),
    "float8": (_first(lambda x: x.to(torch.float8_e4m3fn)), (FIRST, "float8")),
    "uint16": (_first(lambda x: x.abs().to(torch.uint16)), (FIRST, "uint16")),
    "int8": (_first(lambda x: x.to(torch.int8)), (FIRST, "int8")),
    "int64": (_first(lambda x: x.to(torch.int64)), (FIRST, "int64")),
    "truths": (_first(lambda x: x > 0), (FIRST, "bool")),
    "all int8": (_each(lambda x: x.to(torch.int8)), ("int8",)),
    "one number for 10^13": (_first(lambda x: torch.ones(1).expand(10**13)), ("bytes",)),
    "one number for 10^9, sixteen times": (
        lambda state: dict.fromkeys([f"{i}" for i in range(16)], torch.ones(1).expand(10**9)),
        ("bytes",),
    ),
    "another shape": (_first(lambda x: x[:, :, :3]), (FIRST,)),
    "nan": (_first(lambda x: x * float("nan")), (FIRST, "NaN")),
    "no tensors": (lambda state: {"epoch": 1}, ("no tensors",)),
    "a list": (lambda state: list(state.values()), ("no tensors",)),
    "one tensor": (lambda state: state[FIRST], ("no tensors",)),
    "a tensor missing": (lambda state: {k: v for k, v in state.items() if k != FIRST}, (FIRST,)),
    "a tensor too many": (lambda state: state | {"more": torch.zeros(2)}, ("more",)),
    "as torch compiles it": (_under("_orig_mod."), ("_orig_mod.",)),
    "below model.resnet": (_under("model.resnet."), ("resnet.",)),
    "below words with an escape": (_under("\x1b[2J."), (r"\x1b[2J.",)),
    "by numbers": (lambda state: dict(enumerate(state.values())), ("missing",)),
    "an array of numpy": (_beside(np.zeros(3)), ("numpy",)),
    "a path": (_beside(Path("x")), ("pathlib",)),
    "a module": (_beside(nn.Linear(2, 2)), ("torch.nn.modules.linear.Linear",)),
    "a function": (_beside(print), ("print",)),
    "a default dict": (_beside(collections.defaultdict(list)), ("defaultdict",)),
}


def _packed(num_mib: int) -> None:
    """A member that unpacks to far more than the file has."""
    torch.save({FIRST: torch.zeros(4)}, SOURCE)
    with zipfile.ZipFile(SOURCE) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(SOURCE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            with archive.open(name, "w", force_zip64=True) as member:
                for _ in range(num_mib if name.endswith("/data/0") else 0):
                    member.write(bytes(2**20))
                member.write(content)


def _overlapping() -> None:
    with zipfile.ZipFile(SOURCE, "w") as archive:
        archive.writestr("weights/data.pkl", b"x" * 2**20)
        archive.filelist += [archive.filelist[0]] * 1000


def _cut() -> None:
    _saved(lambda state: state)()
    write_text(SOURCE, SOURCE.read_bytes()[:-1000])


def _as_safetensors(tensor: torch.Tensor) -> Callable[[], None]:
    def make() -> None:
        state = load_model(STUDENT)[0] | {FIRST: tensor}
        safetensors.torch.save_file(state, "weights.safetensors")

    return make


def cases() -> Iterator[Case]:
    """All of the kind."""
    done = partial(Case, state="done")
    for name, change in ORDINARY.items():
        for old in (False, True):
            title = f"{name}{', as torch 1.5 wrote it' if old else ''}"
            yield done(KIND, title, IMPORT, _saved(change, old=old), code=ACCEPTED, check=_imported)
    for name, (change, mentions) in ODD.items():
        yield done(KIND, name, IMPORT, _saved(change), ("weights.pt", *mentions))
    for name in ("sparse", "quantized", "without memory", "complex", "int8", "a path"):
        change, mentions = ODD[name]
        title = f"{name}, as torch 1.5 wrote it"
        yield done(KIND, title, IMPORT, _saved(change, old=True), ("weights.pt", *mentions))
    files: dict[str, Callable[[], object]] = {
        "a member of 512 MB in a few hundred kB": partial(_packed, 512),
        "members that lie over each other": _overlapping,
        "cut off": _cut,
        "empty": lambda: write_text(SOURCE, b""),
        "a zip of nothing": lambda: zipfile.ZipFile(SOURCE, "w").close(),
    }
    for name, make in files.items():
        yield done(KIND, name, IMPORT, make, ("weights.pt",))
    for kind in (torch.int8, torch.bool, torch.float8_e5m2, torch.complex64, torch.int64):
        yield done(
            KIND,
            f"safetensors of {kind}",
            ("import", "weights.safetensors", *IMPORT[2:]),
            _as_safetensors(torch.ones(64, 3, 7, 7).to(kind)),
            ("weights.safetensors", FIRST),
        )


def _imported() -> None:
    """It is the student, within the precision of the kind of numbers that came."""
    wanted, found = load_model(STUDENT)[0], load_model("imported/model.safetensors")[0]
    assert set(wanted) == set(found)
    names = [name for name in wanted if wanted[name].is_floating_point()]
    pairs = ((wanted[name].float(), found[name].float()) for name in names)
    assert all(torch.allclose(*pair, rtol=1e-2, atol=1e-2) for pair in pairs)
