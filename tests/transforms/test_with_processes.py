"""Views that several processes make: those of one, to the byte."""

from __future__ import annotations

import os
import signal
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch

from histo_monai.pretext.contrastive_views import ContrastiveViews
from histo_monai.process.sharing import share_with
from histo_monai.transforms import with_opencv, with_processes
from histo_monai.transforms.randaugment import WeakStrongViews
from histo_monai.transforms.supervised import SupervisedAugmentation
from histo_monai.transforms.views import PretrainAugmentation

POLICIES = {
    "pretraining": lambda px: PretrainAugmentation(px),
    "both views of MoCo": lambda px: ContrastiveViews(px),
    "weak and strong": lambda px: WeakStrongViews(px, 7),
    "fine-tuning": lambda px: SupervisedAugmentation(px),
}


@pytest.fixture
def sharing():
    yield share_with
    share_with(1)
    with_processes._end()


def patches_of(num, side, scales=1):
    generator = torch.Generator().manual_seed(num)
    return torch.randint(0, 256, (num, scales, 3, side, side), dtype=torch.uint8, generator=generator)


def made(policy, patches):
    """Views of a fresh drawing, as one tensor."""
    views = policy.set_random_state(3)(patches)
    return views if isinstance(views, torch.Tensor) else torch.stack(views)


@pytest.mark.parametrize("name", POLICIES)
def test_views_are_those_of_one_process(name, sharing):
    policy = POLICIES[name](64)
    for patches in (patches_of(37, 70, 2), patches_of(61, 64, 2)):
        sharing(1)
        alone = made(policy, patches)
        assert with_processes._Process.team is None
        sharing(3)
        assert torch.equal(made(policy, patches), alone)
        assert with_processes._Process.team is not None
        with_processes._end()


def test_batches_of_all_sizes_go_to_the_same_helpers(sharing):
    sharing(2)
    policy = WeakStrongViews(64, 7)
    made(policy, patches_of(64, 64))
    team = with_processes._Process.team
    for num in (1, 5, 33, 63, 64):
        patches = patches_of(num, 64)
        together = made(policy, patches)
        assert with_processes._Process.team is team
        sharing(1)
        assert torch.equal(together, made(policy, patches))
        sharing(2)


def test_a_small_batch_is_shared_by_few(sharing):
    sharing(4)
    policy = SupervisedAugmentation(64)
    made(policy, patches_of(16, 64))
    assert with_processes._Process.team is None
    made(policy, patches_of(64, 64))
    team = with_processes._Process.team
    assert team is not None
    assert team.num == 1  # two processes are enough for two shares
    made(policy, patches_of(100, 64))
    team = with_processes._Process.team
    assert team is not None
    assert team.num == 2


def test_a_helper_that_was_killed_is_told_and_the_next_batch_has_others(sharing):
    sharing(2)
    policy, patches = WeakStrongViews(64, 7), patches_of(64, 64)
    alone = made(policy, patches)
    team = with_processes._Process.team
    assert team is not None
    (helper,) = team.helpers.processes
    os.kill(helper.pid, signal.SIGKILL)
    helper.join()
    with pytest.raises(BrokenProcessPool):
        made(policy, patches)
    assert torch.equal(made(policy, patches), alone)


def test_an_error_here_leaves_no_helper_at_work(sharing, monkeypatch):
    sharing(2)
    policy, patches = WeakStrongViews(64, 7), patches_of(64, 64)
    alone = made(policy, patches)
    make = with_opencv.make

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(with_opencv, "make", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(policy, patches)
    assert with_processes._Process.team is None
    monkeypatch.setattr(with_opencv, "make", make)
    assert torch.equal(made(policy, patches), alone)
