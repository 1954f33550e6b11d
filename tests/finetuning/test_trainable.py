"""Modes of the fine-tuning: what does not train keeps its bytes, and merged adapters are a plain network."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import nn

from histo_monai.finetuning.trainable import RANK, FixedStatistics, Mode, add_adapters, freeze, last_stage
from histo_monai.finetuning.trainer import Tuning
from histo_monai.models.encoder import build_encoder
from histo_monai.models.layers import merged_state
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.finetuning import tuning_of
from histo_monai.pipeline.params import load_params
from histo_monai.pipeline.params.sections import FinetuneRecipe
from histo_monai.training.schedule import parameter_groups
from tests.conftest import ROOT
from tests.finetuning.test_trainer import _finetune
from tests.waves import SIDE, WaveTask

VIT, RESNET = "test_vit", "resnet18"


def _model(name: str, task: WaveTask | None = None) -> TaskModel:
    torch.manual_seed(0)
    return TaskModel(build_encoder(name, SIDE), "linear", task.num_outputs if task else 2)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        (RESNET, ["layer4"]),
        (VIT, ["blocks.5", "norm"]),
        ("efficientnet_lite0", ["blocks.6", "conv_head", "bn2"]),
        ("convnext_atto", ["stages.3", "head"]),
    ],
)
def test_the_last_stage_is_that_of_the_architecture(name: str, last: list[str]) -> None:
    trunk = _model(name).encoder.trunk
    names = {id(module): path for path, module in trunk.named_modules()}
    assert [names[id(part)] for part in last_stage(trunk)] == last


@pytest.mark.parametrize("average", [None, 0.9])
@pytest.mark.parametrize(
    ("name", "mode", "trained"),
    [
        (RESNET, "last", ("layer4.",)),
        (RESNET, "adapters", ("layer4.", "bn", "downsample.1.")),
        (VIT, "last", ("blocks.5.", "norm.")),
        (VIT, "adapters", ("attn.qkv.weight", "attn.proj.weight", "mlp.fc1.weight", "mlp.fc2.weight")),
    ],
)
def test_only_what_the_mode_names_changes(
    wave_task: Callable[..., WaveTask], name: str, mode: Mode, trained: tuple[str, ...], average: float | None
) -> None:
    task = wave_task(16)
    model = _model(name, task)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    _finetune(model, task, epochs=1, lr=0.1, tuning=Tuning(ema_decay=average, mode=mode))
    after = merged_state(model)
    assert after.keys() == before.keys()
    for key, value in after.items():
        is_statistic = "running_" in key or "num_batches" in key
        if key.startswith("encoder.trunk.") and not is_statistic:
            is_trained = any(part in key for part in trained)
            assert torch.equal(value, before[key]) != is_trained, key
    assert not torch.equal(after["head.linear.weight"], before["head.linear.weight"])


@pytest.mark.parametrize("keeps", [True, False])
def test_frozen_batchnorms_keep_their_statistics_where_asked(
    wave_task: Callable[..., WaveTask], keeps: bool
) -> None:
    task = wave_task(16)
    model = _model(RESNET, task)
    before = {key: value.clone() for key, value in model.state_dict().items() if "running_" in key}
    fixed: FixedStatistics = "frozen" if keeps else "none"
    _finetune(model, task, epochs=1, tuning=Tuning(ema_decay=0.9, mode="last", fixed_statistics=fixed))
    after = model.state_dict()
    for key, value in before.items():
        is_trained = ".layer4." in key
        assert torch.equal(after[key], value) == (keeps and not is_trained), key


@pytest.mark.parametrize("mode", ["all", "last", "adapters"])
def test_batchnorms_of_given_weights_keep_their_statistics_while_they_train(
    wave_task: Callable[..., WaveTask], mode: Mode
) -> None:
    task = wave_task(16)
    model = _model(RESNET, task)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    tuning = Tuning(ema_decay=0.9, mode=mode, fixed_statistics="all", interpolation_weights=(0.0, 0.5))
    _finetune(model, task, epochs=1, lr=0.1, tuning=tuning)
    after = model.state_dict()
    for key, value in before.items():
        is_statistic = "running_" in key or "num_batches" in key
        assert not is_statistic or torch.equal(after[key], value), key
    trained = "encoder.trunk.layer4.1.bn2.weight"
    assert not torch.equal(after[trained], before[trained])


@pytest.mark.parametrize(
    ("num", "mode", "has_weights", "fixed"),
    [
        (None, "all", True, "all"),
        (None, "last", True, "all"),
        (None, "all", False, "none"),
        (None, "last", False, "none"),
        (1024, "all", True, "none"),
        (0, "all", True, "none"),
        (0, "last", True, "frozen"),
        (0, "adapters", False, "frozen"),
    ],
)
def test_params_state_which_batchnorms_keep_their_statistics(
    num: int | None, mode: Mode, has_weights: bool, fixed: FixedStatistics
) -> None:
    recipe = load_params(ROOT / "params.yaml").finetune_section("two_classes")
    assert isinstance(recipe, FinetuneRecipe)
    assert recipe.batchnorm_patches is None
    section = dataclasses.replace(recipe, batchnorm_patches=num)
    assert tuning_of(section, mode, has_weights=has_weights).fixed_statistics == fixed


def test_adapters_change_weights_by_few_ranks(wave_task: Callable[..., WaveTask]) -> None:
    task = wave_task(16)
    model = _model(VIT, task)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    _finetune(model, task, epochs=2, lr=0.1, tuning=Tuning(mode="adapters"))
    for key, value in merged_state(model).items():
        if "blocks." in key and value.ndim == 2:
            change = (value - before[key]).double()
            values = torch.linalg.svdvals(change)
            assert values[0] > 0, key
            assert (values[RANK:] < 1e-4 * values[0]).all(), key


def test_adapters_start_from_the_network_and_merge_into_the_sum_of_both() -> None:
    model = _model(VIT).eval()
    plain = copy.deepcopy(model)
    patches = torch.rand(2, 3, SIDE, SIDE)
    add_adapters(model, "adapters", seed=0)
    freeze(model, "adapters")
    with torch.no_grad():
        assert torch.equal(model(patches), plain(patches))
        layer = model.encoder.trunk.blocks[0].mlp.fc1
        layer.lora_up.normal_(generator=torch.Generator().manual_seed(0))
        rows = torch.rand(3, layer.in_features)
        by_hand = rows @ (layer.weight + layer.lora_up @ layer.lora_down).T + layer.bias
        torch.testing.assert_close(layer(rows), by_hand)
        adapted = model(patches)
        assert not torch.allclose(adapted, plain(patches))
        plain.load_state_dict(merged_state(model))
        torch.testing.assert_close(plain(patches), adapted)


def test_the_optimizer_has_what_trains_alone() -> None:
    model = _model(VIT)
    add_adapters(model, "adapters", seed=0)
    freeze(model, "adapters")
    sizes = [
        sum(part.numel() for part in group["params"])
        for group in parameter_groups(model, model.encoder, lr=1e-3, backbone_lr=5e-4)
    ]
    of_adapters = sum(
        RANK * (layer.in_features + layer.out_features)
        for layer in model.encoder.trunk.blocks.modules()
        if isinstance(layer, nn.Linear)
    )
    assert sizes == [sum(part.numel() for part in model.head.parameters()), of_adapters]
