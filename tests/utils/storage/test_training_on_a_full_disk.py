"""The log and the state of a training on a disk without room: one line, and no thread that prints another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from ignite.engine import Engine

from histo_monai.training.fit import Records, fit
from histo_monai.training.means import attach_means
from histo_monai.utils.storage import DiskFullError


class _Batches(list[torch.Tensor]):
    """Two batches; their order is of no account."""

    @property
    def batch_sampler(self) -> _Batches:
        return self

    def set_epoch(self, epoch: int) -> None:
        pass


def _train(records: Records) -> None:
    network = torch.nn.Linear(1, 300_000)
    engines = [Engine(lambda engine, batch: {"loss": batch}) for _ in range(2)]
    for engine in engines:
        attach_means(engine, ("loss",))
    noise = np.random.default_rng(0).integers(256, size=(800, 800, 3), dtype=np.uint8)
    batches = _Batches([torch.zeros(2), torch.ones(2)])
    fit(
        *engines,
        batches,
        batches,
        epochs=3,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.1),
        parts={"network": network},
        best=None,
        rank=lambda means: (means["loss"],),
        pictures={"answers": lambda: noise},
        images_per_step=2,
        records=records,
    )


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("what", ["tensorboard", "resume"])
def test_a_disk_that_fills_while_a_model_trains_is_one_line(
    what: str, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        DiskFullError, match=r"/disk/a: the disk is full \(\d\.\d MB free\)\. Fix: free disk space"
    ) as caught:
        _train(Records(**{what: small_disk / "a"}))
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err
    if what == "resume":
        assert list(small_disk.iterdir()) == []
