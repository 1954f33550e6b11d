"""Frozen weights are in memory once: in start, average, interpolation and models of folds; checkpoints lack them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from histo_monai.finetuning import trainer
from histo_monai.finetuning.trainable import RANK, add_adapters, freeze
from histo_monai.finetuning.trainer import FinetuneResult, Tuning
from histo_monai.models.checkpoint import load_into, load_model, save_model
from histo_monai.models.encoder import build_encoder
from histo_monai.models.layers import LowRankLinear, merged_state
from histo_monai.models.sharing.folds import WholeModel, adapters_alone
from histo_monai.models.task_model import TaskModel, from_encoder, from_task_model
from histo_monai.training import device as device_module
from histo_monai.training.fit import Records
from histo_monai.training.interpolation import Interpolation
from histo_monai.training.resume import ResumePoint
from histo_monai.utils.errors import InputError
from tests.finetuning.test_trainer import _finetune
from tests.waves import SIDE, WaveTask

TaskBuilder = Callable[..., WaveTask]
VIT = "test_vit"
KNOWN = {"method": "random", "seed": 0, "source": "raw", "corpus": "own"}
AVERAGED = Tuning(ema_decay=0.5, mode="adapters", interpolation_weights=(0.0, 0.5, 1.0))


def _encoder_file(folder: Path) -> Path:
    torch.manual_seed(0)
    encoder = build_encoder(VIT, SIDE)
    path = folder / "encoder.safetensors"
    state = {f"encoder.{name}": tensor for name, tensor in encoder.state_dict().items()}
    about = encoder.description(architecture="vit", head="linear", patch_px=SIDE, mpps=[1.0])
    save_model(path, state, {"kind": "encoder", **KNOWN, **about})
    return path


def _train(model: TaskModel, task: WaveTask, tuning: Tuning, **changes: Any) -> FinetuneResult:
    return _finetune(model, task, tuning=tuning, **{"epochs": 2, "lr": 0.1, **changes})


def _file_of(model: TaskModel, folder: Path, task: WaveTask) -> Path:
    about = model.encoder.description(architecture="vit", head="linear", patch_px=SIDE, mpps=[1.0])
    path = folder / "model.safetensors"
    known = {"kind": "task model", "classes": task.classes, "mpp": 1.0}
    save_model(path, merged_state(model), {**KNOWN, **about, **known})
    return path


@pytest.mark.parametrize("mode", ["last", "adapters"])
def test_frozen_weights_of_all_trainings_have_one_place(
    wave_task: TaskBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any
) -> None:
    task, path = wave_task(8), _encoder_file(tmp_path)
    content = load_model(path)
    networks: list[nn.Module] = []

    class Noted(Interpolation):
        def __init__(self, model: nn.Module, start: nn.Module, finish: Callable[[], None]) -> None:
            networks.extend((model, start))
            super().__init__(model, start, finish)

    class Pair(trainer.StudentAndAverage[TaskModel]):
        def __init__(self, model: TaskModel, decay: float) -> None:
            super().__init__(model, decay)
            networks.extend((self.student, self.average))

    monkeypatch.setattr(trainer, "Interpolation", Noted)
    monkeypatch.setattr(trainer, "StudentAndAverage", Pair)
    for _ in range(2):  # two folds
        model, _ = from_encoder(path, task.num_outputs, content)
        _train(model, task, Tuning(ema_decay=0.5, mode=mode, interpolation_weights=(0.0, 0.5, 1.0)))
    assert len(networks) == 8
    frozen = [name for name in content[0] if ".blocks.0." in name or "patch_embed" in name]
    assert len(frozen) > 10
    for name in frozen:
        places = {network.get_parameter(name).data_ptr() for network in networks}
        assert places == {content[0][name].data_ptr()}, name
    for name, tensor in load_model(path)[0].items():
        assert torch.equal(content[0][name], tensor), name
    heads = {network.get_parameter("head.linear.weight").data_ptr() for network in networks}
    assert len(heads) == 6  # the average is the model of the interpolation


def test_a_checkpoint_holds_what_trains_alone(
    wave_task: TaskBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, path = wave_task(8), _encoder_file(tmp_path)
    sizes: list[int] = []
    save = ResumePoint.save

    def note(point: ResumePoint, engine: Any) -> None:
        save(point, engine)
        sizes.append((tmp_path / "state.pt").stat().st_size)

    monkeypatch.setattr(ResumePoint, "save", note)
    model, _ = from_encoder(path, task.num_outputs)
    _train(model, task, AVERAGED, records=Records(resume=tmp_path / "state.pt", fingerprint="x"))
    trained = sum(
        RANK * (layer.in_features + layer.out_features)
        for layer in model.modules()
        if isinstance(layer, LowRankLinear)
    )
    whole = sum(tensor.nbytes for tensor in load_model(path)[0].values())
    # student, average and momentum in float32; names and pickle take the rest
    assert 3 * 4 * trained < max(sizes) < 3 * 4 * trained + whole / 4


def test_a_killed_training_of_adapters_goes_on_to_the_same_weights(
    wave_task: TaskBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, path = wave_task(8), _encoder_file(tmp_path)
    content = load_model(path)
    whole, killed, resumed = (from_encoder(path, task.num_outputs, content)[0] for _ in range(3))
    resumed.head.load_state_dict(whole.head.state_dict())
    killed.head.load_state_dict(whole.head.state_dict())
    records = Records(resume=tmp_path / "state.pt", fingerprint="x")
    _train(whole, task, AVERAGED, epochs=3)
    save = ResumePoint.save

    def save_and_end(point: ResumePoint, engine: Any) -> None:
        save(point, engine)
        if engine.state.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ResumePoint, "save", save_and_end)
    with pytest.raises(KeyboardInterrupt):
        _train(killed, task, AVERAGED, epochs=3, records=records)
    monkeypatch.setattr(ResumePoint, "save", save)
    _train(resumed, task, AVERAGED, epochs=3, records=records)
    state = merged_state(resumed)
    for name, value in merged_state(whole).items():
        assert torch.equal(value, state[name]), name


def test_interpolation_scales_the_product_of_adapters(wave_task: TaskBuilder, tmp_path: Path) -> None:
    task, path = wave_task(8), _encoder_file(tmp_path)
    model, _ = from_encoder(path, task.num_outputs)
    given = {name: value.clone() for name, value in model.encoder.state_dict().items()}
    between = _train(model, task, AVERAGED).interpolation
    assert between is not None
    states = {}
    for weight in (0.0, 0.3, 1.0):
        between.move(weight)
        states[weight] = merged_state(model)
    for name, value in given.items():
        assert torch.equal(states[1.0][f"encoder.{name}"], value), name
        expected = 0.7 * states[0.0][f"encoder.{name}"] + 0.3 * value
        torch.testing.assert_close(states[0.3][f"encoder.{name}"], expected, rtol=1e-5, atol=1e-6)
    assert any(not torch.equal(states[0.3][name], states[0.0][name]) for name in states[0.0])


def test_the_file_of_a_fold_with_adapters_holds_its_difference(
    wave_task: TaskBuilder, tmp_path: Path
) -> None:
    task, path = wave_task(8), _encoder_file(tmp_path)
    content = load_model(path)
    whole, of_fold = (from_encoder(path, task.num_outputs, content)[0] for _ in range(2))
    for seed, model in enumerate((whole, of_fold)):
        add_adapters(model, "adapters", seed)
        freeze(model, "adapters")
        for layer in model.modules():
            if isinstance(layer, LowRankLinear):
                layer.lora_up.data.normal_(std=0.1, generator=torch.Generator().manual_seed(seed))
    saved = _file_of(whole, tmp_path, task)
    (tmp_path / "folds").mkdir()
    state, beside = adapters_alone(of_fold, whole, saved)
    target = tmp_path / "folds" / "without-0.safetensors"
    save_model(target, state, {**load_model(saved)[1], **beside})
    assert target.stat().st_size < saved.stat().st_size / 2
    expected = merged_state(of_fold)
    shared = WholeModel.read(saved, dict)
    for model in (from_task_model(target)[0], from_task_model(target, shared)[0]):
        merged = merged_state(model)
        assert merged.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(merged[name], value, rtol=1e-5, atol=1e-6)
    light, again = from_task_model(target, shared)[0], from_task_model(saved, shared)[0]
    name = "encoder.trunk.blocks.0.mlp.fc1.weight"
    places = {network.get_parameter(name).data_ptr() for network in (light, again)}
    assert places == {shared.state[name].data_ptr()}
    assert light.head.linear.weight.data_ptr() != again.head.linear.weight.data_ptr()


@pytest.mark.parametrize(("name", "as_on_gpu"), [("resnet18", True), ("test_efficientnet", False)])
def test_convolutions_stay_shared_in_channels_last(
    name: str, as_on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if as_on_gpu:
        monkeypatch.setattr(device_module, "_wants_channels_last", lambda device, weights=(): True)
    cpu = torch.device("cpu")
    models = [TaskModel(build_encoder(name, SIDE), "linear", 2) for _ in range(2)]
    state = device_module.tensors_on(models[0].state_dict(), cpu)
    for model in models:
        load_into(model, dict(state), "", Path("model"), shares_memory=True)
        device_module.to_device(model, cpu)
    places = [{name: part.data_ptr() for name, part in model.named_parameters()} for model in models]
    assert places[0] == places[1]
    convolutions = [name for name, part in models[0].named_parameters() if part.ndim == 4]
    assert convolutions
    for name in convolutions:
        assert state[name].is_contiguous(memory_format=torch.channels_last)
        assert places[0][name] == state[name].data_ptr()


def test_a_model_that_is_no_part_of_another_must_be_whole(wave_task: TaskBuilder, tmp_path: Path) -> None:
    task = wave_task(8)
    whole = from_encoder(_encoder_file(tmp_path), task.num_outputs)[0]
    saved = _file_of(whole, tmp_path, task)
    state, about = load_model(saved)
    del state["encoder.trunk.blocks.0.norm1.weight"]
    other = tmp_path / "other.safetensors"
    save_model(other, state, about)
    for shared in (None, WholeModel.read(saved, dict)):
        with pytest.raises(InputError, match="other"):
            from_task_model(other, shared)


def test_layers_whose_weights_are_read_without_a_call_have_no_adapter(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments = {"depth": 1, "embed_dim": 24, "num_heads": 2}
    encoder = build_encoder("beit_base_patch16_224", SIDE, arguments=arguments)
    add_adapters(TaskModel(encoder, "linear", 2), "adapters", seed=0)
    block = encoder.trunk.blocks[0]
    assert type(block.attn.qkv) is nn.Linear
    assert all(isinstance(layer, LowRankLinear) for layer in (block.attn.proj, block.mlp.fc1, block.mlp.fc2))
    assert "1 of 4 linear layers" in caplog.text
