from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from histo_monai.models.checkpoint import save_model
from histo_monai.models.encoder import Encoder, build_encoder
from histo_monai.models.heads.pairs import PairMLP
from histo_monai.models.heads.task import LinearHead, PairHead
from histo_monai.models.task_model import TaskModel, from_encoder, from_task_model
from histo_monai.models.teacher_student import TeacherStudent

ENCODER = {
    "kind": "encoder",
    "method": "rsp",
    "head": "pair",
    "architecture": "resnet18",
    "mpps": [1.0, 2.0, 4.0],
    "patch_px": 64,
    "encoder": build_encoder().description(architecture="", head="", patch_px=64, mpps=[])["encoder"],
    "source": "phantom",
    "corpus": "camelyon16",
}


class ThreeBranches(nn.Module):
    """The paper's network, literally: three passes of the trunk over the same image, three pairs, one linear layer."""

    def __init__(self, encoder: Encoder, head: PairHead) -> None:
        super().__init__()
        self.encoder, self.pair_mlp, self.linear = encoder, head.pair_mlp, head.linear

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        first, second, third = (self.encoder(patches) for _ in range(3))
        pairs = [self.pair_mlp(*pair) for pair in ((first, second), (first, third), (second, third))]
        return self.linear(torch.cat(pairs, dim=-1))


@pytest.mark.parametrize("training", [True, False])
def test_single_pass_has_outputs_and_gradients_of_three_branches(training: bool) -> None:
    torch.manual_seed(0)
    single = TaskModel(build_encoder(), "pair", 9).double()
    literal = ThreeBranches(*copy.deepcopy((single.encoder, single.head)))
    single.train(training)
    literal.train(training)
    patches, targets = torch.rand(4, 3, 40, 40, dtype=torch.float64), torch.tensor([0, 3, 8, 3])
    for model in (single, literal):
        nn.functional.cross_entropy(model(patches), targets).backward()
    torch.testing.assert_close(single(patches), literal(patches), rtol=1e-10, atol=1e-12)
    other = {name.replace("head.", ""): p.grad for name, p in single.named_parameters()}
    for name, parameter in literal.named_parameters():
        torch.testing.assert_close(other[name], parameter.grad, rtol=1e-8, atol=1e-12)


def _write_encoder(path: Path, head: str, parts: dict[str, nn.Module]) -> None:
    state = {f"{part}.{name}": x for part, module in parts.items() for name, x in module.state_dict().items()}
    save_model(path, state, {**ENCODER, "head": head})


def test_all_that_pretraining_saved_is_loaded_and_only_that(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder, pair_mlp = build_encoder(), PairMLP(512)
    _write_encoder(tmp_path / "encoder.safetensors", "pair", {"encoder": encoder, "pair_mlp": pair_mlp})
    first, second = (from_encoder(tmp_path / "encoder.safetensors", 3)[0] for _ in range(2))
    for model in (first, second):
        for kept, given in ((model.encoder, encoder), (model.head.pair_mlp, pair_mlp)):
            for name, value in given.state_dict().items():
                torch.testing.assert_close(kept.state_dict()[name], value, rtol=0, atol=0)
    assert not torch.equal(first.head.linear.weight, second.head.linear.weight)


def test_a_method_without_pairs_gets_one_linear_layer(tmp_path: Path) -> None:
    _write_encoder(tmp_path / "encoder.safetensors", "linear", {"encoder": build_encoder()})
    model, _ = from_encoder(tmp_path / "encoder.safetensors", 1)
    assert isinstance(model.head, LinearHead)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 1)


def test_files_that_are_no_model_of_the_right_kind_are_refused(tmp_path: Path) -> None:
    _write_encoder(tmp_path / "encoder.safetensors", "unheard of", {"encoder": build_encoder()})
    with pytest.raises(ValueError, match="not an encoder to fine-tune"):
        from_encoder(tmp_path / "encoder.safetensors", 2)
    with pytest.raises(ValueError, match=r"an encoder, not a fine-tuned model.*model\.safetensors"):
        from_task_model(tmp_path / "encoder.safetensors")
    with pytest.raises(ValueError, match="no such model"):
        from_encoder(tmp_path / "nothing.safetensors", 2)


def test_training_mode_reaches_the_student_alone() -> None:
    pair = TeacherStudent(TaskModel(build_encoder(), "pair", 2)).train()
    assert pair.student.training
    assert not any(module.training for part in (pair.encoder, pair.teacher) for module in part.modules())
    trained = {name for name, parameter in pair.named_parameters() if parameter.requires_grad}
    assert trained == {f"student.{name}" for name, _ in pair.student.named_parameters()}


def test_replacing_the_teacher_copies_and_does_not_share() -> None:
    pair = TeacherStudent(TaskModel(build_encoder(), "linear", 2))
    with torch.no_grad():
        pair.student.linear.weight.add_(1.0)
    assert not torch.equal(pair.teacher.linear.weight, pair.student.linear.weight)
    pair.replace_teacher()
    assert torch.equal(pair.teacher.linear.weight, pair.student.linear.weight)
    assert pair.teacher.linear.weight.data_ptr() != pair.student.linear.weight.data_ptr()


TASK = {
    **ENCODER,
    "kind": "task model",
    "head": "linear",
    "classes": ["normal", "tumor"],
    "patch_px": 64,
    "mpp": 1.0,
}
NAN, INFINITY = float("nan"), float("inf")


@pytest.fixture(scope="module")
def task_model() -> dict[str, torch.Tensor]:
    return TaskModel(build_encoder(), "linear", 2).state_dict()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            ("classes", value)
            for value in ([], ["a", "a"], ["a", ""], ["a", " "], ["a", 1], [["a"], "b"], "ab", {}, 2)
        ),
        *(("patch_px", value) for value in (0, -64, "64", 64.0, True, None, 10**9, [64])),
        *(("mpp", value) for value in (NAN, INFINITY, 0, -0.5, "0.5", True, [0.5])),
        *(("head", value) for value in ("unheard of", None, ["linear"], 1)),
        *(("kind", value) for value in ("encoder", None, 1, {})),
    ],
)
def test_a_description_that_lies_is_one_line_and_nothing_is_built_from_it(
    key: str, value: object, task_model: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, task_model, {**TASK, key: value})
    with pytest.raises(
        ValueError,
        match=r"model\.(json|safetensors): (\w+ is .*, expected|not a fine-tuned|an encoder,)",
    ) as caught:
        from_task_model(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", [key for key in TASK if key != "kind"])
def test_a_key_that_a_model_lacks_is_named(
    key: str, task_model: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, task_model, {name: value for name, value in TASK.items() if name != key})
    with pytest.raises(ValueError, match=f"{key} is nothing, expected|not a fine-tuned model"):
        from_task_model(path)


@pytest.mark.parametrize("classes", [None, ["a"], ["normal", "tumor", "stroma"]])
def test_a_model_of_another_number_of_outputs_than_its_classes_is_refused(
    classes: list[str] | None, task_model: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    save_model(path, task_model, {**TASK, "classes": classes})
    with pytest.raises(ValueError, match="does not fit TaskModel"):
        from_task_model(path)


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
def test_weights_that_are_no_numbers_are_refused_by_name(
    value: float, task_model: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    state = {name: tensor.clone() for name, tensor in task_model.items()}
    state["head.linear.bias"][1] = value
    save_model(path, state, TASK)
    with pytest.raises(ValueError, match=r"model\.safetensors: head\.linear\.bias holds NaN or infinity"):
        from_task_model(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("mpps", []), ("mpps", [1.0, NAN]), ("mpps", "1"), ("encoder", None), ("source", ...)],
)
def test_an_encoder_that_lies_is_one_line(key: str, value: object, tmp_path: Path) -> None:
    described = {name: x for name, x in {**ENCODER, key: value}.items() if x is not ...}
    save_model(tmp_path / "encoder.safetensors", {}, described)
    with pytest.raises(ValueError, match=rf"encoder\.json: {key}(\.name)? is .*, expected"):
        from_encoder(tmp_path / "encoder.safetensors", 2)


def test_a_part_that_no_head_has_is_refused(tmp_path: Path) -> None:
    _write_encoder(
        tmp_path / "encoder.safetensors", "linear", {"encoder": build_encoder(), "forward": nn.Linear(1, 1)}
    )
    with pytest.raises(ValueError, match="head 'linear' has no forward"):
        from_encoder(tmp_path / "encoder.safetensors", 2)
