from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from timm.layers import BatchNormAct2d
from torch import nn

from histo_monai.models.batchnorm import (
    ProcessBatchNorm2d,
    patches_for_statistics,
    statistics_of_the_batch,
    synchronise_batchnorm,
)
from tests.ranks import in_two_ranks


def _network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3), BatchNormAct2d(2)
    ).double()


def _images() -> torch.Tensor:
    return torch.randn(6, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _one_rank(device: torch.device, folder: str) -> None:
    rank = dist.get_rank()
    network = synchronise_batchnorm(_network(), torch.device("cpu"))
    wrapped = nn.parallel.DistributedDataParallel(network, broadcast_buffers=False)
    wrapped(_images()[rank * 3 : rank * 3 + 3]).pow(2).mean().backward()
    gradients = {name: p.grad for name, p in network.named_parameters()}
    torch.save((gradients, network.state_dict()), f"{folder}/rank{rank}.pt")


def test_two_processes_give_the_gradients_and_statistics_of_one(tmp_path: Path) -> None:
    in_two_ranks(_one_rank, str(tmp_path))
    alone = _network()
    alone(_images()).pow(2).mean().backward()
    for rank in range(2):
        gradients, state = torch.load(tmp_path / f"rank{rank}.pt")
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(gradients[name], parameter.grad)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(state[name], value)


def test_without_processes_it_is_the_batchnorm_of_torch() -> None:
    plain, ours = _network(), synchronise_batchnorm(_network(), torch.device("cpu"))
    assert isinstance(ours.get_submodule("1"), ProcessBatchNorm2d)
    assert torch.equal(plain(_images()), ours(_images()))
    assert torch.equal(plain.eval()(_images()), ours.eval()(_images()))


def test_a_batchnorm_whose_statistics_would_stay_in_a_process_is_refused() -> None:
    with pytest.raises(ValueError, match=r"BatchNorm1d.*HISTO_MONAI_RANKS=1"):
        synchronise_batchnorm(nn.Sequential(nn.BatchNorm1d(2)), torch.device("cpu"))


def test_statistics_of_the_batch_are_used_for_once_and_leave_nothing_behind() -> None:
    network = _network().eval()
    for norm in (network[1], network[4]):
        norm.running_mean.fill_(2.0)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    plain = network(_images())
    with statistics_of_the_batch(network):
        found = network(_images())
    features = network[0](_images())
    for norm in (network[1], network[4]):
        mean, variance = features.mean((0, 2, 3)), features.var((0, 2, 3), unbiased=False)
        centered = (features - mean.view(1, -1, 1, 1)) / (variance.view(1, -1, 1, 1) + norm.eps).sqrt()
        features = (centered * norm.weight.view(1, -1, 1, 1) + norm.bias.view(1, -1, 1, 1)).relu()
        features = network[3](features) if norm is network[1] else features
    torch.testing.assert_close(found, features)
    torch.testing.assert_close(network(_images()), plain)
    assert not torch.allclose(found, plain)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize(
    ("param", "has_weights", "num"), [(None, True, 0), (None, False, 1024), (7, True, 7), (0, False, 0)]
)
def test_given_weights_keep_their_statistics_unless_a_number_is_set(
    param: int | None, has_weights: bool, num: int
) -> None:
    assert patches_for_statistics(param, has_weights=has_weights) == num
