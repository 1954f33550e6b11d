from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.models.shared_backbone import SharedBackbone, folded
from histo_monai.models.task_model import TaskModel


def _model(head: str, seed: int) -> TaskModel:
    """A model whose batch-norms have seen images: their statistics, scales and shifts are not those of the start."""
    torch.manual_seed(seed)
    model = TaskModel(build_encoder(), head, 3)
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.uniform_(norm.weight, 0.5, 1.5)
        torch.nn.init.uniform_(norm.bias, -0.5, 0.5)
    with torch.no_grad():
        model(torch.rand(8, 3, 64, 64))
    return model


@pytest.fixture(scope="module")
def patches() -> torch.Tensor:
    return torch.rand(5, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def finetuned() -> TaskModel:
    return _model("pair", 0)


@pytest.fixture(scope="module")
def student(finetuned: TaskModel) -> TaskModel:
    """The trunk of the fine-tuned model, another head."""
    model = copy.deepcopy(finetuned)
    with torch.no_grad():
        model.head.linear.weight.neg_()
    return model


def test_every_model_gives_what_it_gives_alone(
    finetuned: TaskModel, student: TaskModel, patches: torch.Tensor
) -> None:
    models = {"finetuned": finetuned, "student": student, "other.one": _model("linear", 1)}
    with torch.no_grad():
        trunk = SharedBackbone(models)(patches)
        assert list(trunk) == list(models)
        for name, model in models.items():
            torch.testing.assert_close(trunk[name], model.eval()(patches), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(trunk["finetuned"], trunk["student"], atol=1e-3)


def test_a_trunk_runs_once_for_the_models_that_share_it(
    finetuned: TaskModel, student: TaskModel, patches: torch.Tensor
) -> None:
    shared = SharedBackbone({"a": finetuned, "b": student, "c": _model("pair", 1), "d": finetuned})
    runs: list[int] = []
    for number, trunk in enumerate(shared.backbones):
        trunk.register_forward_hook(lambda *_, number=number: runs.append(number))
    features = shared.features(patches)
    assert runs == [0, 1]
    assert features["a"] is features["b"] is features["d"]
    assert features["c"].shape == (5, 512)


def test_one_tensor_that_differs_makes_another_trunk(finetuned: TaskModel) -> None:
    other = copy.deepcopy(finetuned)
    other.encoder.trunk.layer4[1].bn2.running_var[7] *= 1.001
    assert len(SharedBackbone({"a": finetuned, "b": other}).backbones) == 2


def test_the_models_given_stay_as_they_were(finetuned: TaskModel, patches: torch.Tensor) -> None:
    model = copy.deepcopy(finetuned).train()
    before = copy.deepcopy(model.state_dict())
    shared = SharedBackbone({"a": model})
    shared(patches)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(parameter.requires_grad for parameter in shared.parameters())


def test_folding_leaves_no_batchnorm_and_is_exact_but_for_rounding(
    finetuned: TaskModel, patches: torch.Tensor
) -> None:
    encoder = copy.deepcopy(finetuned.encoder).double().eval()
    one = folded(encoder)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in one.modules())
    with torch.no_grad():
        torch.testing.assert_close(one(patches.double()), encoder(patches.double()), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"name": "resnet18"}, {"name": "resnet18", "side_px": 96}),
        ({"name": "resnet18"}, {"name": "rsp-resnet18"}),
        ({"name": "test_vit"}, {"name": "test_vit", "arguments": {"act_layer": "relu"}}),
    ],
)
def test_equal_tensors_in_another_architecture_make_another_backbone(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    models = {"a": TaskModel(build_encoder(img_px=32, **one), "linear", 2)}
    models["b"] = TaskModel(build_encoder(img_px=32, **other), "linear", 2)
    models["b"].encoder.normalize_by((0.5,) * 3, (0.5,) * 3)
    models["b"].load_state_dict(models["a"].state_dict())
    shared = SharedBackbone(models)
    assert len(shared.backbones) == 2
    patches = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        for name, model in models.items():
            torch.testing.assert_close(shared(patches)[name], model.eval()(patches), rtol=1e-4, atol=1e-4)
    same = copy.deepcopy(models["b"])
    assert len(SharedBackbone({"a": models["b"], "b": same}).backbones) == 1
