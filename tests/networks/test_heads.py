from __future__ import annotations

import torch
from torch import nn

from histo_monai.networks.encoder import Encoder
from histo_monai.networks.heads import OrderHead, PairMLP


def _sizes(module: nn.Module) -> list[tuple[int, int]]:
    return [(m.in_features, m.out_features) for m in module.modules() if isinstance(m, nn.Linear)]


def test_layers_have_the_sizes_of_the_paper() -> None:
    assert _sizes(PairMLP()) == [(1024, 512), (512, 256)]
    assert _sizes(OrderHead()) == [(768, 128), (128, 6)]


def test_encoder_gives_512_features_at_any_size_and_normalises_itself() -> None:
    encoder = Encoder(mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7)).eval()
    patches = torch.rand(2, 3, 64, 64)
    by_hand = torch.stack(
        [(patches[:, c] - m) / s for c, (m, s) in enumerate([(0.1, 0.5), (0.2, 0.6), (0.3, 0.7)])], 1
    )
    torch.testing.assert_close(encoder(patches), encoder.trunk(by_hand))
    assert encoder(torch.rand(2, 3, 96, 96)).shape == (2, 512)


def test_order_head_is_the_literal_three_branch_network() -> None:
    torch.manual_seed(0)
    pair_mlp, head = PairMLP().double(), OrderHead().double()
    a, b, c = torch.rand(3, 4, 512, dtype=torch.float64).unbind()
    pairs = [pair_mlp.layers(torch.cat(pair, 1)) for pair in ((a, b), (a, c), (b, c))]
    literal = head.layers(torch.cat(pairs, 1))
    torch.testing.assert_close(head(torch.stack([a, b, c], 1), pair_mlp), literal)
