from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from ignite.engine import Engine

from histo_monai.training import handlers
from histo_monai.training.handlers import attach_progress


@pytest.mark.parametrize(
    ("done_before", "expected"),
    [
        (
            0,
            [
                "00:10 gone, 00:30 left",
                "00:20 gone, 00:20 left",
                "00:30 gone, 00:10 left",
                "00:40 gone, 00:00 left",
            ],
        ),
        (2, ["00:10 gone, 00:10 left", "00:20 gone, 00:00 left"]),
    ],
)
def test_each_epoch_is_a_line_with_the_time_that_is_left(
    done_before: int, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An epoch takes ten seconds; of a training that goes on, earlier ones took none."""
    monkeypatch.setattr(handlers, "time", SimpleNamespace(monotonic=itertools.count(100.0, 10.0).__next__))
    trainer, evaluator = Engine(lambda *_: {"loss": torch.ones(1)}), Engine(lambda *_: None)
    evaluator.state.metrics = {"loss": 0.5}
    attach_progress(trainer, evaluator)
    if done_before:
        trainer.load_state_dict({"epoch": done_before, "epoch_length": 2, "max_epochs": 4})
    trainer.run([0, 0], max_epochs=4)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"epoch {done_before + number}/4: train ; validation loss=0.500; {times}"
        for number, times in enumerate(expected, 1)
    ]
