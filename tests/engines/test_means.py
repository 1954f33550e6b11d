from __future__ import annotations

import pytest
import torch
from ignite.engine import Engine

from histo_monai.engines.means import attach_means


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
