from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from histo_monai.data.tables.tasks import split_rows
from histo_monai.models.encoder import build_encoder
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.environment import read_environment
from histo_monai.training.prediction import predict, take_statistics
from histo_monai.training.ranks import run_in_ranks
from tests.devices import ComputeIn
from tests.waves import WaveTask


def test_statistics_are_means_over_the_batches_of_what_each_layer_sees(
    wave_task: Callable[..., WaveTask],
) -> None:
    task = wave_task(16)
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", task.num_outputs)
    norms = {name: child for name, child in model.named_modules() if isinstance(child, nn.BatchNorm2d)}
    for norm in norms.values():  # of another training
        norm.running_mean.fill_(3.0)
        norm.num_batches_tracked.fill_(99)
    weights = {name: value.clone() for name, value in model.named_parameters()}
    labeled = task.shuffled(split_rows(task.patches, "train"), 8, seed=0, purpose="statistics", num_batches=2)
    seen: dict[str, list[torch.Tensor]] = {name: [] for name in norms}
    hooks = [
        norm.register_forward_pre_hook(lambda _, args, name=name: seen[name].append(args[0].detach()))
        for name, norm in norms.items()
    ]
    model.eval()
    take_statistics(model, task, labeled)
    assert not model.training
    for hook in hooks:
        hook.remove()
    for name, norm in norms.items():
        assert len(seen[name]) == 2
        mean = torch.stack([x.double().mean((0, 2, 3)) for x in seen[name]]).mean(0)
        variance = torch.stack([x.double().var((0, 2, 3)) for x in seen[name]]).mean(0)
        torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norm.running_var.double(), variance, rtol=1e-4, atol=1e-5)
        assert norm.momentum == 0.1
    for name, value in model.named_parameters():
        assert torch.equal(value, weights[name]), name
    plain = next(iter(labeled.loader))[0].squeeze(1).float() / 255
    with torch.no_grad():
        first = model.encoder.trunk.conv1((plain - model.encoder.mean) / model.encoder.std)
    torch.testing.assert_close(seen["encoder.trunk.bn1"][0], first)


def test_predictions_on_the_device_that_the_environment_names_are_float32(
    wave_task: Callable[..., WaveTask],
    device: torch.device,
    compute_in: ComputeIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The network computes in bfloat16; what is made of its outputs does not."""
    monkeypatch.setenv("HISTO_MONAI_DEVICE", str(device))
    environment = read_environment()
    assert (environment.device, environment.ranks) == (device, 1)
    task = wave_task(16)
    loader = task.in_order(split_rows(task.patches, "validation"), 8).loader
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "linear", task.num_outputs)
    expected = predict(model, task, loader)
    compute_in(torch.bfloat16)
    found: list[torch.Tensor] = []

    def work(named: torch.device) -> None:
        task.device = named
        found.append(predict(model, task, loader))
        assert next(model.parameters()).device == device

    run_in_ranks(work, device=environment.device, ranks=environment.ranks, timeout_s=60)
    assert (found[0].dtype, found[0].device.type) == (torch.float32, "cpu")
    torch.testing.assert_close(found[0].sum(dim=1), torch.ones(len(expected)), rtol=0, atol=1e-6)
    assert (found[0] != found[0].bfloat16().float()).any()
    torch.testing.assert_close(found[0], expected, rtol=0, atol=0.02)
    assert not torch.equal(found[0], expected)  # bfloat16 it was
