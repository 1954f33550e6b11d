from __future__ import annotations

from collections import deque

import pytest
import torch

from histo_monai.models.encoder import build_encoder
from histo_monai.pretraining.momentum import (
    EMPTY,
    KEY_FEATURES,
    KeyQueue,
    MomentumContrast,
    other_keys_of_batch,
)


def _keys(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, KEY_FEATURES, generator=torch.Generator().manual_seed(seed))


def _images(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def _network(key_momentum: float = 0.9) -> MomentumContrast:
    torch.manual_seed(0)
    return MomentumContrast(build_encoder(), queue_size=8, key_momentum=key_momentum).double()


def _disturb(network: MomentumContrast) -> None:
    """Move the query network away from the key network: its weights by chance, its statistics by a batch."""
    network.train()
    network.query(_images(4, seed=9))
    with torch.no_grad():
        for parameter in network.query.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))


@pytest.mark.parametrize("sizes", [(3, 3, 3), (5, 2, 4, 6), (7, 7), (12, 1), (3, 20, 2), (1,) * 9, (14,)])
def test_the_queue_holds_the_last_keys_in_order(sizes: tuple[int, ...]) -> None:
    queue, expected, added = KeyQueue(7), deque(maxlen=7), 0
    for number, size in enumerate(sizes):
        keys, ids = _keys(size, seed=number), torch.arange(added, added + size)
        queue.add(keys, ids)
        expected.extend(zip(ids.tolist(), keys, strict=True))
        added += size
    # The slot that the next key takes is that of the oldest.
    order = (torch.arange(7) + added) % 7
    ids, keys = queue.ids[order], queue.keys[order]
    held = ids != EMPTY
    assert ids[held].tolist() == [i for i, _ in expected]
    assert torch.equal(keys[held], torch.stack([key for _, key in expected]))
    assert held.sum() == min(added, 7)
    assert not held[: 7 - int(held.sum())].any()


def test_empty_slots_and_older_keys_of_the_sample_are_no_negatives() -> None:
    queue = KeyQueue(5)
    queue.add(_keys(3), torch.tensor([4, 9, 4]))
    assert queue.negatives_of(torch.tensor([4, 9, 0])).int().tolist() == [
        [0, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 1, 0, 0],
    ]


def test_in_one_process_the_other_keys_are_all_but_the_own() -> None:
    keys, others = other_keys_of_batch(_keys(3), torch.tensor([0, 8, 4]))
    assert torch.equal(keys, _keys(3))
    assert torch.equal(others, ~torch.eye(3, dtype=torch.bool))


def test_a_queue_is_the_same_after_it_was_written_and_read() -> None:
    queue, other = KeyQueue(5), KeyQueue(5)
    queue.add(_keys(8), torch.arange(8))
    other.load_state_dict(queue.state_dict())
    for one in (queue, other):
        one.add(_keys(2, seed=1), torch.tensor([20, 21]))
    assert torch.equal(queue.keys, other.keys)
    assert queue.ids.tolist() == other.ids.tolist() == [5, 6, 7, 20, 21]


def test_the_key_network_starts_as_the_query_network_and_never_learns() -> None:
    network = _network().eval()
    queries, keys = network(_images(3), _images(3))
    assert torch.equal(queries, keys)
    assert queries.requires_grad
    assert not keys.requires_grad
    (queries @ keys.T).sum().backward()
    assert all(parameter.grad is None for parameter in network.key.parameters())
    assert all(parameter.grad is not None for parameter in network.query.parameters())


def test_queries_and_keys_have_length_one() -> None:
    for points in _network()(_images(3), _images(3, seed=1)):
        assert points.shape == (3, KEY_FEATURES)
        torch.testing.assert_close(points.square().sum(dim=1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("key_momentum", [0.0, 0.9, 0.999, 1.0])
def test_weights_and_statistics_of_the_key_network_follow_by_the_momentum(key_momentum: float) -> None:
    network = _network(key_momentum)
    _disturb(network)
    before = {name: value.clone() for name, value in network.key.state_dict().items()}
    network.follow()
    query, after = network.query.state_dict(), network.key.state_dict()
    moved = 0
    for name, value in after.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, key_momentum * before[name] + (1 - key_momentum) * query[name])
            moved += not torch.equal(value, before[name])
        else:
            assert torch.equal(value, query[name])
    # 62 weights and biases, 20 batch-norms with two statistics; the two constants of normalization never move.
    assert moved == (0 if key_momentum == 1.0 else 62 + 40)


def test_a_key_does_not_depend_on_its_neighbors_nor_on_the_mode() -> None:
    network = _network()
    for _ in range(3):
        _disturb(network)
        network.follow()
    assert network.train().query.training
    assert not any(module.training for module in network.key.modules())
    image, others = _images(1), 5 * _images(5, seed=1)
    both, pair = torch.cat([image, others]), torch.cat([image, others[:1]])
    queries, keys = network(both, both)
    other_queries, other_keys = network(pair, pair)
    torch.testing.assert_close(other_keys[0], keys[0])
    # A query does depend on its neighbors, so the comparison can fail.
    assert (other_queries[0] - queries[0]).abs().max() > 1e-3
    torch.testing.assert_close(network.eval()(both, both)[1], keys)


def test_a_forward_pass_in_training_leaves_key_network_and_queue_alone() -> None:
    network = _network().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    network(_images(4), _images(4))
    changed = {n for n, value in network.state_dict().items() if not torch.equal(value, before[n])}
    assert changed
    assert {name.split(".")[0] for name in changed} == {"query"}


def test_reduced_precision_leaves_points_and_queue_in_float32() -> None:
    network = _network().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        queries, keys = network(_images(3).float(), _images(3).float())
    assert queries.dtype == keys.dtype == torch.float32
    network.enqueue(keys, torch.arange(3))
    network.follow()
    assert network.queue.keys.dtype == torch.float32
    assert torch.equal(network.queue.keys[:3], keys)
    torch.testing.assert_close(keys.square().sum(dim=1), torch.ones(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("queue_size", "key_momentum"), [(0, 0.9), (8, -0.1), (8, 1.1)])
def test_impossible_numbers_are_refused(queue_size: int, key_momentum: float) -> None:
    with pytest.raises(ValueError, match=r"at least 1 expected|lies in 0\.\.1"):
        MomentumContrast(build_encoder(), queue_size, key_momentum)
