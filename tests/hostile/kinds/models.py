"""Models: bytes that changed, descriptions that lie, and seals made anew: the seal has no key."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from histo_monai.models.checkpoint import load_model, save_model
from tests.hostile.case import EITHER, Case
from tests.hostile.project import MAP, RUN, STUDENT, write_text

KIND = "models"
JSON = STUDENT.with_suffix(".json")
FRESH = (*MAP[:-1], "new")
State = dict[str, torch.Tensor]


def _bytes(path: Path, change: Callable[[bytes], bytes]) -> Callable[[], None]:
    return lambda: write_text(path, change(path.read_bytes()))


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _resealed(path: Path, **changes: Any) -> Callable[[], None]:
    """A description that says something else, with digests that hold; None removes a key."""

    def change() -> None:
        state, description = load_model(path)
        changed = {name: value for name, value in (description | changes).items() if value is not ...}
        _save(path, state, changed)

    return change


def _retrained(path: Path, change_state: Callable[[State], State]) -> Callable[[], None]:
    def change() -> None:
        state, description = load_model(path)
        _save(path, change_state(state), description)

    return change


def _save(path: Path, state: State, description: Mapping[str, Any]) -> None:
    kept = {name: value for name, value in description.items() if name not in ("format", "sha256")}
    for one in (path, path.with_suffix(".json")):
        one.unlink()
    save_model(path, state, kept)


def _first_weight(value: float) -> Callable[[State], State]:
    def change(state: State) -> State:
        name = next(name for name in state if name.endswith("conv1.weight"))
        weights = state[name].clone()
        weights.view(-1)[0] = value
        return state | {name: weights}

    return change


def _instead(make: Callable[[Path], object]) -> Callable[[], None]:
    def change() -> None:
        STUDENT.unlink()
        make(STUDENT)

    return change


BROKEN: dict[str, Callable[[], object]] = {
    "gone": STUDENT.unlink,
    "empty": _bytes(STUDENT, lambda data: b""),
    "half": _bytes(STUDENT, lambda data: data[: len(data) // 2]),
    "one bit of the weights": _bytes(STUDENT, lambda data: _flipped(data, len(data) // 2)),
    "one bit of the header": _bytes(STUDENT, lambda data: _flipped(data, 20)),
    "a byte too many": _bytes(STUDENT, lambda data: data + b"\0"),
    "a header of 10^18 bytes": _bytes(STUDENT, lambda data: struct.pack("<Q", 10**18) + data[8:]),
    "a pickle that runs code": _bytes(STUDENT, lambda data: pickle.dumps(_Runs())),
    "a folder": _instead(Path.mkdir),
    "a FIFO": _instead(os.mkfifo),
    "a device without end": _instead(lambda path: path.symlink_to("/dev/zero")),
    "without description": JSON.unlink,
    "an empty description": _bytes(JSON, lambda data: b""),
    "a description that is a list": _bytes(JSON, lambda data: b"[]"),
    "a description of 100,000 brackets": _bytes(JSON, lambda data: b"[" * 100_000),
    "a description that is no text": _bytes(JSON, lambda data: b"\xff\xfe" * 99),
    "one word of the description": _bytes(JSON, lambda data: data.replace(b"random", b"RANDOM", 1)),
    "the description of another": partial(
        lambda: (JSON.unlink(), shutil.copy("data/models/random-0/encoder.json", JSON))
    ),
    "a format from the future": _bytes(JSON, lambda data: data.replace(b'"format": 3', b'"format": 99')),
    "a format in words": _bytes(JSON, lambda data: data.replace(b'"format": 3', b'"format": "two"')),
    "a device as description": lambda: (JSON.unlink(), JSON.symlink_to("/dev/zero")),
}


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch owned",))


LIES: dict[str, dict[str, Any]] = {
    "an encoder": {"kind": "encoder"},
    "no kind": {"kind": ...},
    "no classes at all": {"classes": ...},
    "a class twice": {"classes": ["tumor", "tumor"]},
    "one class": {"classes": ["tumor"]},
    "three classes for two outputs": {"classes": ["normal", "tumor", "cyst"]},
    "classes that are a text": {"classes": "tumor"},
    "classes that are numbers": {"classes": [1, 2]},
    "a head nobody knows": {"head": "transformer"},
    "no head": {"head": ...},
    "patches of 0": {"patch_px": 0},
    "patches of -32": {"patch_px": -32},
    "patches of text": {"patch_px": "32"},
    "patches of 10^6": {"patch_px": 10**6},
    "patches of 32.5": {"patch_px": 32.5},
    "no patches": {"patch_px": ...},
    "µm/px of 0": {"mpp": 0.0},
    "negative µm/px": {"mpp": -1.0},
    "µm/px of nan": {"mpp": float("nan")},
    "infinite µm/px": {"mpp": float("inf")},
    "µm/px of text": {"mpp": "one"},
    "no µm/px": {"mpp": None},
    "a class of an escape sequence": {"classes": ["\x1b[2Jnormal", "normal"]},
}
WEIGHTS: dict[str, Callable[[State], State]] = {
    "a weight of nan": _first_weight(float("nan")),
    "an infinite weight": _first_weight(float("inf")),
    "a tensor too few": lambda state: dict(list(state.items())[1:]),
    "a tensor too many": lambda state: state | {"more": torch.zeros(3)},
    "a tensor of another shape": lambda state: state | {"head.linear.bias": torch.zeros(3)},
    "whole numbers": lambda state: {name: tensor.to(torch.int32) for name, tensor in state.items()},
    "no tensor at all": lambda state: {},
}


def cases() -> Iterator[Case]:
    """All of the kind."""
    for name, prepare in BROKEN.items():
        yield Case(KIND, name, FRESH, prepare, ("model",), state="done")
    for name, changes in LIES.items():
        yield Case(
            KIND, f"sealed anew: {name}", FRESH, _resealed(STUDENT, **changes), ("model",), state="done"
        )
    for name, change in WEIGHTS.items():
        yield Case(
            KIND,
            f"sealed anew: {name}",
            FRESH,
            _retrained(STUDENT, change),
            ("model",),
            state="done",
            leaves=("project/new*",),
        )
    encoder = Path("data/models/random-0/encoder.safetensors")
    yield Case(
        KIND,
        "an encoder to map with",
        (*FRESH[:3], str(encoder), *FRESH[4:]),
        mentions=("encoder",),
        state="done",
    )
    for name, changes in (
        ("µm/px finer than any", {"mpps": [0.0, 0.0, 0.0]}),
        ("a head nobody knows", {"head": "x"}),
    ):
        code = EITHER if "finer" in name else 1
        yield Case(
            KIND, f"an encoder sealed anew: {name}", ("finetune", *RUN), _resealed(encoder, **changes), ("encoder",),
            code=code, state="done",
        )  # fmt: skip
    for stage in ("evaluate", "heatmap", "suggest"):
        yield Case(
            KIND, f"a student of other patches for {stage}", (stage, *RUN), _resealed(STUDENT, patch_px=48),
            ("student",),
            state="done", leaves=("project/data/checkpoints*",),
        )  # fmt: skip
        yield Case(
            KIND, f"a student of other classes for {stage}", (stage, *RUN), _resealed(STUDENT, classes=["a", "b"]),
            ("student",), state="done", leaves=("project/data/checkpoints*",),
        )  # fmt: skip
