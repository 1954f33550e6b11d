"""Attention pooling against the published equation, number by number."""

from __future__ import annotations

import math

import numpy as np
import torch

from histo_monai.wsi.mil.network import AttentionPooling


def _network() -> AttentionPooling:
    torch.manual_seed(0)
    network = AttentionPooling(5, 3, hidden=4, dropout=0.5).eval()
    network.mean, network.scale = torch.randn(5), torch.rand(5) + 0.5
    return network


def test_it_is_equation_9_of_ilse_2018_in_plain_loops() -> None:
    network = _network()
    bag = torch.randn(7, 5)
    logits, weights = network(bag)
    v, v0, u, u0, w, w0 = (
        part.detach().double().numpy()
        for layer in (network.content, network.gate, network.weight)
        for part in (layer.weight, layer.bias)
    )
    patches = ((bag - network.mean) / network.scale).double().numpy()
    scores = []
    for patch in patches:
        score = float(w0[0])
        for row in range(4):
            content = math.tanh(sum(v[row, i] * patch[i] for i in range(5)) + v0[row])
            gate = 1 / (1 + math.exp(-(sum(u[row, i] * patch[i] for i in range(5)) + u0[row])))
            score += w[0, row] * content * gate
        scores.append(math.exp(score))
    naive = [score / sum(scores) for score in scores]
    np.testing.assert_allclose(weights.detach().numpy(), naive, rtol=1e-5)
    pooled = sum(weight * patch for weight, patch in zip(naive, patches, strict=True))
    head = (
        network.head.weight.detach().double().numpy() @ pooled + network.head.bias.detach().double().numpy()
    )
    np.testing.assert_allclose(logits.detach().numpy(), head, rtol=1e-5, atol=1e-6)


def test_the_order_of_patches_does_not_matter_and_weights_sum_to_one() -> None:
    network = _network()
    bag, order = torch.randn(50, 5), torch.randperm(50)
    logits, weights = network(bag)
    others, moved = network(bag[order])
    torch.testing.assert_close(logits, others)
    torch.testing.assert_close(weights[order], moved)
    assert abs(float(weights.sum()) - 1) < 1e-5
    assert bool((weights > 0).all())
