from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ignite.engine import Engine

from histo_monai.training.means import SampleMean, attach_means


def test_mean_is_over_samples_not_over_batches() -> None:
    engine = Engine(lambda _, batch: {"loss": torch.tensor(batch)})
    attach_means(engine, ["loss"])
    engine.run([[1.0, 2.0, 3.0], [10.0]])
    assert engine.state.metrics["loss"] == pytest.approx(4.0)


def test_a_second_epoch_starts_from_nothing() -> None:
    engine = Engine(lambda _, batch: {"loss": torch.tensor(batch)})
    attach_means(engine, ["loss"])
    engine.run([[1.0]])
    engine.run([[5.0]])
    assert engine.state.metrics["loss"] == pytest.approx(5.0)


def test_no_step_waits_for_its_values_to_leave_their_device() -> None:
    mean = SampleMean()
    for _ in range(3):
        # A meta tensor has no values: whatever asks for them, or copies them to the CPU, ends in an error.
        mean.update(torch.empty(4, device="meta"))
    mean.reset()
    mean.update(torch.ones(2))
    assert mean.compute() == 1.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_not_waited_for_before_the_epoch_ends() -> None:
    mean = SampleMean()
    values = torch.tensor([1.0, 2.0], device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            mean.update(values)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert mean.compute() == 1.5


def test_the_mean_of_many_small_values_is_that_of_exact_sums() -> None:
    mean = SampleMean()
    batches = torch.rand(300, 7, generator=torch.Generator().manual_seed(0)) * 1e-3 + 1000
    for batch in batches:
        mean.update(batch)
    exact = math.fsum(batches.flatten().tolist()) / 2100
    assert mean.compute() == pytest.approx(exact, rel=1e-15)  # float32 sums would be wrong by 1e-7


def test_an_epoch_without_values_has_no_mean() -> None:
    assert math.isnan(SampleMean().compute())


def test_values_that_do_not_count_change_nothing() -> None:
    rng = np.random.default_rng(3)
    mean, counted_values = SampleMean(), []
    for num in (5, 1, 8):
        values, counted = rng.normal(size=num), rng.random(num) < 0.5
        counted_values += values[counted].tolist()
        not_counted = np.where(counted, values, np.nan)
        mean.update((torch.from_numpy(not_counted), torch.from_numpy(counted)))
    assert mean.compute() == pytest.approx(math.fsum(counted_values) / len(counted_values), rel=1e-12)
    mean.reset()
    mean.update((torch.ones(2), torch.zeros(2, dtype=torch.bool)))
    assert math.isnan(mean.compute())
