from __future__ import annotations

import copy

import pytest
import torch

from histo_monai.training.lookahead import Lookahead


def test_weights_follow_the_published_recurrence() -> None:
    """Algorithm 1 of Zhang et al. 2019 by hand, on f(w) = w^2 / 2 with plain SGD."""
    steps, slow_step, lr, start = 5, 0.5, 0.1, 3.0
    weight = torch.nn.Parameter(torch.tensor(start))
    optimizer = Lookahead(torch.optim.SGD([weight], lr=lr), steps, slow_step)
    slow = fast = start
    for iteration in range(1, 18):
        optimizer.zero_grad()
        (weight * weight / 2).backward()
        optimizer.step()
        fast -= lr * fast
        if iteration % steps == 0:
            slow += slow_step * (fast - slow)
            fast = slow
        assert weight.item() == pytest.approx(fast, rel=1e-5)


def test_a_slow_step_of_one_changes_nothing() -> None:
    torch.manual_seed(0)
    plain, wrapped = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    wrapped.load_state_dict(plain.state_dict())
    first = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    second = Lookahead(torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9, nesterov=True), 3, 1.0)
    for _ in range(7):
        x = torch.randn(5, 4)
        for network, optimizer in ((plain, first), (wrapped, second)):
            optimizer.zero_grad()
            network(x).pow(2).mean().backward()
            optimizer.step()
    torch.testing.assert_close(plain.weight, wrapped.weight)


def test_a_restored_state_goes_on_as_if_never_stopped() -> None:
    def train(weight: torch.nn.Parameter, optimizer: Lookahead, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            weight.pow(4).sum().backward()
            optimizer.step()

    def make(values: torch.Tensor) -> tuple[torch.nn.Parameter, Lookahead]:
        weight = torch.nn.Parameter(values.clone())
        return weight, Lookahead(torch.optim.SGD([weight], lr=0.01, momentum=0.9, nesterov=True), 5, 0.5)

    weight, optimizer = make(torch.tensor([1.0, 2.0]))
    train(weight, optimizer, 8)
    saved_weight, saved = weight.detach().clone(), copy.deepcopy(optimizer.state_dict())
    other, restored = make(saved_weight)
    restored.load_state_dict(saved)
    train(weight, optimizer, 9)
    train(other, restored, 9)
    assert torch.equal(weight, other)


@pytest.mark.parametrize(("steps", "slow_step"), [(0, 0.5), (5, 0.0), (5, 1.1)])
def test_impossible_settings_are_refused(steps: int, slow_step: float) -> None:
    with pytest.raises(ValueError, match="Lookahead"):
        Lookahead(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0), steps, slow_step)
