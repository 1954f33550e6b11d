from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

from histo_monai.models.checkpoint import load_into, load_model, save_model


def test_a_model_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    state = {f"part.{name}": value for name, value in network.state_dict().items()}
    save_model(tmp_path / "m.safetensors", state, {"kind": "test", "mpps": [1.0, 2.0]})
    loaded, description = load_model(tmp_path / "m.safetensors")
    assert description["mpps"] == [1.0, 2.0]
    fresh = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    load_into(fresh, loaded, "part.", tmp_path / "m.safetensors")
    for name, value in network.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)


def test_bytes_are_a_function_of_the_tensors_alone(tmp_path: Path) -> None:
    state = {"a": torch.arange(4.0), "b": torch.ones(2, 3)}
    save_model(tmp_path / "x.safetensors", state, {"commit": "one"})
    save_model(tmp_path / "y.safetensors", {k: v.clone() for k, v in state.items()}, {"commit": "two"})
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "y.safetensors").read_bytes()


def test_description_holds_the_digest_of_sha256sum(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, {"a": torch.ones(2)}, {"kind": "test"})
    described = json.loads((tmp_path / "m.json").read_text())
    assert described["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_loaded_description_can_be_passed_on_to_another_model(tmp_path: Path) -> None:
    teacher, student = tmp_path / "teacher.safetensors", tmp_path / "student.safetensors"
    save_model(teacher, {"a": torch.zeros(2)}, {"kind": "test", "mpps": (0.1, 1e-7), "µm": None})
    save_model(student, {"a": torch.ones(2)}, load_model(teacher)[1])
    state, description = load_model(student)
    assert torch.equal(state["a"], torch.ones(2))
    assert description == {"kind": "test", "mpps": [0.1, 1e-7], "µm": None, "format": 3}


@pytest.mark.parametrize(
    ("suffix", "line"),
    [
        (
            ".safetensors",
            r"^\S*/m\.safetensors: SHA-256 differs from m\.json.*pull.*docs/remote\.md",
        ),
        (
            ".json",
            r"^\S*/m\.json: (changed after saving|no seal|not JSON|not UTF-8|format |expected)",
        ),
    ],
)
def test_one_changed_byte_anywhere_is_refused_with_the_name_of_the_file(
    suffix: str, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, {"a": torch.arange(6.0), "b": torch.ones(2, 3)}, {"mpp": 0.5, "labels": ["tumor"]})
    file = path.with_suffix(suffix)
    whole = file.read_bytes()
    for place in range(len(whole)):  # the length of the header, the header, both tensors; all of the JSON
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=line):
            load_model(path)
    for odd in (whole[:-3], whole + b"\0", b""):
        file.write_bytes(odd)
        with pytest.raises(ValueError, match=line):
            load_model(path)
    file.write_bytes(whole)
    assert set(load_model(path)[0]) == {"a", "b"}


def test_the_description_of_another_model_is_refused(tmp_path: Path) -> None:
    for name, value in (("one", 1.0), ("two", 2.0)):
        save_model(tmp_path / f"{name}.safetensors", {"a": torch.full((2,), value)}, {})
    shutil.copy(tmp_path / "one.json", tmp_path / "two.json")
    with pytest.raises(ValueError, match=r"two\.safetensors: SHA-256 differs from two\.json"):
        load_model(tmp_path / "two.safetensors")


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ({"format": 99}, "format 99.* reads 3.*update histo_monai"),
        ({"format": 2}, "format 2.* reads 3.*run the stage"),
        ({}, "format None.* reads 3.*run the stage"),
        ({"format": 3}, "no seal"),
        ([2], "expected an object with keys, got list"),
    ],
)
def test_a_description_of_another_form_is_refused(description: object, line: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_model(path, {"a": torch.ones(2)}, {})
    (tmp_path / "m.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=rf"m\.json: {line}"):
        load_model(path)


def test_what_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(ValueError, match=r"m\.safetensors: no such model"):
        load_model(path)
    path.write_bytes(b"tensors")
    with pytest.raises(ValueError, match=r"m\.json: cannot be read .*Fix: remove both"):
        load_model(path)
    monkeypatch.setattr(
        "safetensors.torch.save_file", lambda _tensors, path, **_options: path.write_bytes(b"not tensors")
    )
    save_model(path, {}, {})
    with pytest.raises(ValueError, match=r"m\.safetensors: not a safetensors file"):
        load_model(path)


@pytest.mark.parametrize(
    "state", [{"p.weight": torch.ones(2, 3)}, {"p.weight": torch.ones(2, 4), "p.bias": torch.ones(2)}]
)
def test_a_state_that_does_not_fit_is_refused(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"m\.safetensors: does not fit Linear"):
        load_into(nn.Linear(3, 2), state, "p.", tmp_path / "m.safetensors")
