from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from histo_monai.pretraining.momentum import info_nce, positive_is_nearest

TEMPERATURE = 0.07


def _points(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, 6, dtype=torch.float64, generator=generator), dim=-1)


def _batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    valid = torch.rand(9, 20, generator=torch.Generator().manual_seed(3)) < 0.7
    valid[4] = False
    return _points(9, seed=0), _points(9, seed=1), _points(20, seed=2), valid


def _by_hand(i: int) -> tuple[float, bool]:
    queries, keys, queue, valid = (part.tolist() for part in _batch())

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    own = cosine(queries[i], keys[i])
    others = [cosine(queries[i], queue[k]) for k in range(len(queue)) if valid[i][k]]
    total = math.exp(own / TEMPERATURE) + sum(math.exp(other / TEMPERATURE) for other in others)
    return -math.log(math.exp(own / TEMPERATURE) / total), all(own > other for other in others)


def test_it_is_the_loop_over_queries_and_keys() -> None:
    queries, keys, queue, valid = _batch()
    losses = info_nce(queries, keys, queue, temperature=TEMPERATURE, valid=valid)
    nearest = positive_is_nearest(queries, keys, queue, valid=valid)
    assert losses.tolist() == pytest.approx([_by_hand(i)[0] for i in range(9)], abs=1e-6)
    assert nearest.tolist() == [float(_by_hand(i)[1]) for i in range(9)]
    assert 0 < nearest.mean() < 1


def test_orthogonal_points_give_their_closed_form() -> None:
    eye = torch.eye(6, dtype=torch.float64)
    valid = torch.ones(2, 4, dtype=torch.bool)
    losses = info_nce(eye[:2], eye[:2], eye[2:], temperature=TEMPERATURE, valid=valid)
    assert losses.tolist() == pytest.approx([math.log(1 + 4 * math.exp(-1 / TEMPERATURE))] * 2, abs=1e-12)


def test_equal_points_cannot_be_distinguished() -> None:
    points = torch.eye(6)[:1].expand(5, -1)
    valid = torch.ones(5, 5, dtype=torch.bool).tril()
    losses = info_nce(points, points, points, temperature=TEMPERATURE, valid=valid)
    assert losses.tolist() == pytest.approx([math.log(2 + i) for i in range(5)], abs=1e-6)
    assert positive_is_nearest(points, points, points, valid=valid).tolist() == [0.0] * 5


def test_without_a_negative_there_is_no_loss_and_no_gradient() -> None:
    queries, keys, queue, valid = _batch()
    queries.requires_grad_()
    losses = info_nce(queries, keys, queue, temperature=TEMPERATURE, valid=torch.zeros_like(valid))
    losses.sum().backward()
    assert losses.tolist() == [0.0] * 9
    assert queries.grad is not None
    assert torch.equal(queries.grad, torch.zeros_like(queries))


def test_a_key_that_is_not_valid_has_no_part_in_it() -> None:
    queries, keys, queue, valid = _batch()
    valid[:, 7] = False
    elsewhere = queue.clone()
    elsewhere[7] = queries[0]
    first, second = (
        info_nce(queries, keys, q, temperature=TEMPERATURE, valid=valid) for q in (queue, elsewhere)
    )
    assert torch.equal(first, second)


def test_its_gradient_is_that_of_finite_differences() -> None:
    queries, keys, queue, valid = _batch()
    queries.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda q: info_nce(q, keys, queue, temperature=0.5, valid=valid), (queries,)
    )


def test_half_precision_is_computed_in_float32() -> None:
    queries, keys, queue, valid = _batch()
    halves = [part.to(torch.bfloat16) for part in (queries, keys, queue)]
    losses = info_nce(*halves, temperature=TEMPERATURE, valid=valid)
    expected = info_nce(*(part.double() for part in halves), temperature=TEMPERATURE, valid=valid)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses.double(), expected, atol=1e-5, rtol=1e-5)
