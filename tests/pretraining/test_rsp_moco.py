from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from histo_monai.models.checkpoint import save_model
from histo_monai.models.heads.task import LinearHead
from histo_monai.models.start import EncoderStart
from histo_monai.models.task_model import from_encoder
from histo_monai.pretraining.protocol import Task
from histo_monai.pretraining.rsp import RSP
from histo_monai.pretraining.rsp_moco import RSPMoCo
from histo_monai.pretraining.settings import LookaheadSettings, RSPMoCoSettings
from histo_monai.pretraining.trainer import training_step
from histo_monai.utils.randomness import Step

CPU = torch.device("cpu")
SETTINGS = RSPMoCoSettings(
    epochs=1,
    batch_size=4,
    lr=0.01,
    lr_from_weights=1e-4,
    warmup=None,
    momentum=0.9,
    weight_decay=1e-4,
    lookahead=LookaheadSettings(steps=2, slow_step=0.5),
    contrast=0.5,
    queue_size=6,
    key_momentum=0.9,
    temperature=0.2,
)
COMMON: dict[str, Any] = {
    "start": EncoderStart(),
    "patch_px": 32,
    "mpps": (1.0, 2.0, 4.0),
    "augmentation_prob": 0.5,
    "settings": SETTINGS,
}


@pytest.fixture
def both() -> RSPMoCo:
    torch.manual_seed(0)
    return RSPMoCo(**COMMON)


def _patches(num: int) -> torch.Tensor:
    return torch.randint(
        0, 256, (num, 3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(num)
    )


def _task(both: RSPMoCo, iteration: int) -> Task:
    rows = torch.arange(4) + iteration % 3
    return both.training_task(_patches(7)[rows], rows, Step(0, 1, iteration))


def test_the_orders_are_those_of_rsp_and_the_queries_see_its_finest_view(both: RSPMoCo) -> None:
    torch.manual_seed(0)
    rsp = RSP(**COMMON)
    both.network.train()
    task, alone = (
        _task(both, 1),
        rsp.training_task(_patches(7)[torch.arange(4) + 1], torch.arange(4), Step(0, 1, 1)),
    )
    for seen, expected in zip(task.inputs, alone.inputs, strict=False):
        assert torch.equal(seen, expected)
    assert torch.equal(task.targets, torch.cat([alone.targets, torch.arange(4).unsqueeze(1) + 1], dim=1))
    outputs = both.network(*task.inputs)
    torch.testing.assert_close(outputs.orders, rsp.network.train()(*alone.inputs))
    features = both.network.ordering.features(task.inputs[0])[:, 0]
    torch.testing.assert_close(outputs.queries, F.normalize(both.network.projection(features), dim=1))


def test_losses_are_those_of_a_naive_loop_over_steps_samples_and_keys(both: RSPMoCo) -> None:
    network = both.network.train()
    optimizer = both.optimizer(network)
    held: list[tuple[int, torch.Tensor]] = []
    slow = copy.deepcopy((network.ordering.encoder, network.projection))
    for iteration in range(1, 6):
        task = _task(both, iteration)
        views, orders, others = task.inputs
        rows = task.targets[:, -1].tolist()
        before = copy.deepcopy(network)
        measured = training_step(both, network, optimizer, task, CPU)
        with torch.no_grad():
            logits = before.ordering(views, orders)[:, 0]
            features = before.ordering.encoder(views.flatten(0, 1)).view(4, 3, -1)
            keys = F.normalize(slow[1](slow[0].eval()(others)), dim=1)
            for i, row in enumerate(rows):
                query = F.normalize(before.projection(features[i, 0]), dim=0)
                scores = [query @ keys[i], *(query @ key for of, key in held if of != row)]
                contrast = -torch.stack(scores).div(SETTINGS.temperature).log_softmax(0)[0]
                ordered = -logits[i].log_softmax(0)[orders[i, 0]]
                torch.testing.assert_close(measured["contrast"][i], contrast, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(
                    measured["loss"][i], ordered + 0.5 * contrast, rtol=1e-4, atol=1e-5
                )
            held = [*held, *zip(rows, keys, strict=True)][-SETTINGS.queue_size :]
            for behind, ahead in zip(slow, (network.ordering.encoder, network.projection), strict=True):
                state = ahead.state_dict()
                for name, value in behind.state_dict().items():
                    moved = 0.9 * value + 0.1 * state[name] if value.is_floating_point() else state[name]
                    value.copy_(moved)


def test_nothing_but_the_average_moves_the_key_network(both: RSPMoCo) -> None:
    network = both.network.train()
    assert not network.key_encoder.training
    task = _task(both, 1)
    outputs = network(*task.inputs)
    both.measure(outputs, task)["loss"].mean().backward()
    assert not outputs.keys.requires_grad
    assert all(
        p.grad is None for part in (network.key_encoder, network.key_projection) for p in part.parameters()
    )
    assert all(p.grad is not None for p in network.ordering.parameters())
    assert network.projection.weight.grad is not None
    trained = {id(p) for group in both.optimizer(network).param_groups for p in group["params"]}
    assert not trained & {id(p) for p in network.key_encoder.parameters()}


def test_validation_is_the_same_every_time_and_a_batch_of_one_key_is_never_nearest(both: RSPMoCo) -> None:
    network = both.network.eval()
    rows = torch.tensor([0, 0, 0])
    tasks = [both.validation_task(_patches(3), rows) for _ in range(2)]
    for first, second in zip(tasks[0].inputs, tasks[1].inputs, strict=True):
        assert torch.equal(first, second)
    with torch.no_grad():
        measured = both.measure(network(*tasks[0].inputs), tasks[0])
    assert tasks[0].targets.shape == (3, 7)
    assert set(measured) == set(both.MEASURES)
    assert measured["contrast"].abs().max() == 0  # no key of another sample to be told from
    assert both.picture(network(*tasks[0].inputs), tasks[0]).dtype.name == "uint8"


def test_fine_tuning_starts_from_the_trunk_with_a_linear_head(both: RSPMoCo, tmp_path: Path) -> None:
    about = {"kind": "encoder", "method": "rsp_moco", "source": "", "corpus": ""}
    save_model(tmp_path / "encoder.safetensors", both.encoder_state(), {**about, **both.description()})
    model, _ = from_encoder(tmp_path / "encoder.safetensors", 2)
    assert isinstance(model.head, LinearHead)
    for name, value in model.encoder.state_dict().items():
        assert torch.equal(value, both.network.ordering.encoder.state_dict()[name])
