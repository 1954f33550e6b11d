from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from histo_monai.models.encoder import build_encoder
from histo_monai.models.heads.pairs import OrderHead, PairMLP
from histo_monai.models.task_model import TaskModel
from histo_monai.pretraining.momentum import Projector


def _sizes(module: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in module.modules() if isinstance(m, nn.Linear)]


def test_layers_have_the_sizes_of_the_paper() -> None:
    assert _sizes(PairMLP(512)) == [(1024, 512), (512, 256)]
    assert _sizes(OrderHead()) == [(768, 128), (128, 6)]


def test_encoder_gives_512_features_at_any_size_and_normalizes_itself() -> None:
    encoder = build_encoder(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)).eval()
    patches = torch.rand(2, 3, 64, 64)
    by_hand = torch.stack(
        [(patches[:, c] - m) / s for c, (m, s) in enumerate([(0.1, 0.5), (0.2, 0.6), (0.3, 0.7)])], 1
    )
    torch.testing.assert_close(encoder(patches), encoder.trunk(by_hand))
    assert encoder(torch.rand(2, 3, 96, 96)).shape == (2, 512)


def test_order_head_is_the_literal_three_branch_network() -> None:
    torch.manual_seed(0)
    pair_mlp, head = PairMLP(512).double(), OrderHead().double()
    a, b, c = torch.rand(3, 4, 512, dtype=torch.float64).unbind()
    pairs = [pair_mlp.layers(torch.cat(pair, 1)) for pair in ((a, b), (a, c), (b, c))]
    literal = head.layers(torch.cat(pairs, 1))
    torch.testing.assert_close(head(torch.stack([a, b, c], 1), pair_mlp), literal)


@pytest.mark.parametrize("head", ["pair", "linear"])
def test_outputs_keep_their_digits_under_autocast(head: str) -> None:
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), head, 2).eval()
    patches = torch.rand(6, 3, 64, 64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        features, outputs = model.encoder(patches), model(patches)
    assert features.dtype == torch.bfloat16  # so the comparison can fail
    assert outputs.dtype == torch.float32
    exact = copy.deepcopy(model.head).double()(features.double())
    torch.testing.assert_close(outputs.double(), exact, rtol=1e-5, atol=1e-6)  # bfloat16 is wrong by 4e-3


def test_heads_of_pretraining_keep_their_digits_under_autocast() -> None:
    torch.manual_seed(0)
    pair_mlp, head, features = PairMLP(512), OrderHead(), torch.rand(4, 3, 512).bfloat16()
    exact = copy.deepcopy(head).double()(features.double(), copy.deepcopy(pair_mlp).double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        orders = head(features, pair_mlp)
        points = Projector(build_encoder()).eval()(torch.rand(2, 3, 64, 64))
    assert orders.dtype == points.dtype == torch.float32
    torch.testing.assert_close(orders.double(), exact, rtol=1e-5, atol=1e-6)


def test_gradients_of_a_head_reach_the_trunk_under_autocast() -> None:
    torch.manual_seed(0)
    model = TaskModel(build_encoder(), "pair", 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.rand(4, 3, 64, 64)).square().mean()
    loss.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    assert model.encoder.trunk.conv1.weight.grad.abs().max() > 0
