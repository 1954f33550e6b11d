from __future__ import annotations

import math

import pytest
import torch

from histo_monai.training.schedule import Schedule


def test_the_rate_rises_along_a_line_and_falls_along_a_cosine() -> None:
    schedule = Schedule(5, "adamw", 0.1, 0.0, warmup=0.2)
    rates = [schedule.rate(epoch=1 + (step - 1) // 4, step=step, num_steps=20) for step in range(1, 21)]
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    for number, rate in enumerate(rates[3:]):
        assert rate == pytest.approx((1 + math.cos(math.pi * number / 17)) / 2)
    assert 0 < rates[-1] < 0.01


def test_without_a_warm_up_it_begins_at_its_highest() -> None:
    schedule = Schedule(1, "adamw", 0.1, 0.0, warmup=0.0)
    assert schedule.rate(epoch=1, step=1, num_steps=100) == pytest.approx(1.0, abs=1e-3)


def test_it_falls_to_a_tenth_after_each_milestone_whatever_the_step() -> None:
    schedule = Schedule(4, "sgd", 0.1, 0.0, milestones=(1, 3))
    rates = [
        schedule.rate(epoch=epoch, step=step, num_steps=12)
        for epoch, step in ((1, 3), (2, 4), (3, 9), (4, 10))
    ]
    assert rates == pytest.approx([1.0, 0.1, 0.1, 0.01])


def test_adamw_decays_weights_apart_from_the_gradient() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = Schedule(1, "adamw", 0.1, 0.5).build_optimizer([parameter])
    parameter.grad = torch.zeros(1)
    optimizer.step()
    assert float(parameter.detach()) == pytest.approx(1 - 0.1 * 0.5)
