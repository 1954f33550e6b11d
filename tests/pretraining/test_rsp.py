from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from histo_monai.models.encoder import build_encoder
from histo_monai.models.start import EncoderStart
from histo_monai.pretraining.orders import ORDERS, RSPNetwork
from histo_monai.pretraining.random import Random
from histo_monai.pretraining.rsp import RSP
from histo_monai.pretraining.settings import LookaheadSettings, PretextSettings, RSPSettings
from histo_monai.transforms.distributions import Uniform
from histo_monai.transforms.operations.noise import Noise
from histo_monai.utils.randomness import Step

ARGUMENTS = {
    "start": EncoderStart(),
    "patch_px": 32,
    "mpps": (1.0, 2.0, 4.0),
    "augmentation_prob": 0.5,
    "settings": RSPSettings(
        epochs=1,
        batch_size=8,
        lr=0.01,
        lr_from_weights=1e-4,
        warmup=None,
        momentum=0.9,
        weight_decay=1e-4,
        lookahead=LookaheadSettings(steps=5, slow_step=0.5),
    ),
}


def _patches(n: int) -> torch.Tensor:
    return torch.randint(
        0, 256, (n, 3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(n)
    )


def test_orders_are_all_six() -> None:
    assert sorted(ORDERS) == sorted(itertools.permutations(range(3)))


def test_ordering_features_equals_ordering_patches() -> None:
    torch.manual_seed(0)
    network = RSPNetwork(build_encoder()).double().eval()
    views = torch.rand(2, 3, 3, 32, 32, dtype=torch.float64)
    logits = network(views, torch.arange(6).expand(2, -1))
    for k, order in enumerate(ORDERS):
        shown = views[:, list(order)]
        features = network.encoder(shown.flatten(0, 1)).unflatten(0, (2, 3))
        torch.testing.assert_close(logits[:, k], network.head(features, network.pair_mlp))


def test_training_shows_each_triple_in_one_order_and_all_orders_are_drawn_evenly() -> None:
    rsp = RSP(**ARGUMENTS)
    drawn = [rsp.training_task(_patches(64), torch.arange(64), Step(0, 1, i)).targets for i in range(1, 41)]
    assert drawn[0].shape == (64, 1)
    counts = np.bincount(torch.cat(drawn).flatten().numpy(), minlength=6)
    expected = counts.sum() / 6
    assert ((counts - expected) ** 2 / expected).sum() < 20.5  # chi-squared, 5 degrees of freedom, p = 0.001


def test_orders_and_views_change_with_the_epoch_and_repeat_with_the_step() -> None:
    rsp = RSP(**ARGUMENTS)
    first, again, later = (
        rsp.training_task(_patches(16), torch.arange(16), Step(3, e, i)) for e, i in ((1, 1), (1, 1), (2, 9))
    )
    assert torch.equal(first.inputs[0], again.inputs[0])
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.targets, later.targets)
    assert not torch.equal(first.inputs[0], later.inputs[0])


def test_two_processes_see_the_orders_and_views_of_one() -> None:
    rsp = RSP(**ARGUMENTS)
    rsp._augment.operations = [  # the noise alone has a seed per process
        Noise(Uniform(0.0, 0.0)) if isinstance(operation, Noise) else operation
        for operation in rsp._augment.operations
    ]
    patches = _patches(8)
    whole = rsp.training_task(patches, torch.arange(8), Step(0, 1, 1))
    rows = torch.arange(8).chunk(2)
    parts = [rsp.training_task(patches[rows[r]], rows[r], Step(0, 1, 1, r, 2)) for r in range(2)]
    assert torch.equal(whole.targets, torch.cat([part.targets for part in parts]))
    torch.testing.assert_close(whole.inputs[0], torch.cat([part.inputs[0] for part in parts]))


def test_loss_and_accuracy_are_their_definitions() -> None:
    rsp = RSP(**ARGUMENTS)
    task = rsp.validation_task(_patches(4), torch.arange(4))
    outputs = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(0))
    measured = rsp.measure(outputs, task)
    for i in range(4):
        losses = [F.cross_entropy(outputs[i, k], torch.tensor(k)).item() for k in range(6)]
        right = [float(outputs[i, k].argmax() == k) for k in range(6)]
        assert measured["loss"][i].item() == pytest.approx(np.mean(losses), rel=1e-5)
        assert measured["accuracy"][i].item() == pytest.approx(np.mean(right))


def test_validation_does_not_depend_on_chance() -> None:
    rsp = RSP(**ARGUMENTS)
    first, second = (
        rsp.validation_task(_patches(3), torch.arange(3)),
        rsp.validation_task(_patches(3), torch.arange(3)),
    )
    assert torch.equal(first.inputs[0], second.inputs[0])
    assert first.targets.tolist() == [[0, 1, 2, 3, 4, 5]] * 3


def test_random_is_the_initialization_of_rsp() -> None:
    torch.manual_seed(5)
    rsp = RSP(**ARGUMENTS)
    torch.manual_seed(5)
    random = Random(**{**ARGUMENTS, "settings": PretextSettings()})
    assert random.epochs == 0
    for name, value in rsp.encoder_state().items():
        assert torch.equal(random.encoder_state()[name], value)


def test_encoder_state_keeps_trunk_and_pair_mlp_and_drops_the_head() -> None:
    names = set(RSP(**ARGUMENTS).encoder_state())
    assert {name.split(".")[0] for name in names} == {"encoder", "pair_mlp"}
    assert {"encoder.mean", "encoder.std", "encoder.trunk.conv1.weight", "pair_mlp.layers.2.bias"} <= names


def test_other_than_three_resolutions_are_refused() -> None:
    with pytest.raises(ValueError, match="three resolutions"):
        RSP(**{**ARGUMENTS, "mpps": (1.0, 2.0)})


def test_the_picture_of_right_predictions_differs_from_the_picture_of_wrong_ones() -> None:
    rsp = RSP(**ARGUMENTS)
    task = rsp.validation_task(_patches(4), torch.arange(4))
    right = torch.eye(6).expand(4, -1, -1)
    good, bad = rsp.picture(right, task), rsp.picture(-right, task)
    assert good.dtype == np.uint8
    assert good.ndim == 3
    assert (good != bad).any()
