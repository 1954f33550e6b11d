from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from histo_monai.networks import load_into, load_model, save_model


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


def test_what_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.safetensors: no such model"):
        load_model(tmp_path / "gone.safetensors")
    path = tmp_path / "m.safetensors"
    save_model(path, {"a": torch.ones(2)}, {})
    (tmp_path / "m.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        load_model(path)
    (tmp_path / "m.json").unlink()
    with pytest.raises(ValueError, match=r"m\.json: the description"):
        load_model(path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ValueError, match="not a safetensors file"):
        load_model(path)


@pytest.mark.parametrize(
    "state", [{"p.weight": torch.ones(2, 3)}, {"p.weight": torch.ones(2, 4), "p.bias": torch.ones(2)}]
)
def test_a_state_that_does_not_fit_is_refused(state: dict[str, torch.Tensor], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"m\.safetensors: does not fit Linear"):
        load_into(nn.Linear(3, 2), state, "p.", tmp_path / "m.safetensors")
