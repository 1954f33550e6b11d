"""What the machine does to a run, done for real: killed processes and memory that is not to be had are one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from histo_monai.data.loaders.batches import EpochBatches
from histo_monai.data.loaders.loaders import patch_loader
from histo_monai.pipeline.cli import _one_line
from histo_monai.slides import SlideError
from histo_monai.utils.process.processes import map_over_processes

HERE = os.getpid()


def _die(_: object) -> None:
    assert os.getpid() != HERE
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(_: object) -> None:
    assert os.getpid() != HERE
    os._exit(1)


def _ask_numpy(_: object) -> None:
    np.empty(2**60, np.uint8)


def _ask_torch(_: object) -> None:
    torch.empty(2**58, dtype=torch.uint8)


def _read_a_bad_slide(_: object) -> None:
    raise SlideError(Path("a.tif"), "truncated")


def _err(_: object) -> None:
    raise KeyError("ours")


class Reads(Dataset[Any]):
    """Patches whose reading ends badly."""

    def __init__(self, work: Callable[[object], None]) -> None:
        self._work = work

    def __getitems__(self, rows: list[int]) -> torch.Tensor:
        self._work(rows)
        return torch.zeros(len(rows))


def _in_a_worker(work: Callable[[object], None]) -> None:
    list(patch_loader(Reads(work), EpochBatches(4, 1, seed=None), workers=2, pin=False))


def _in_a_pool(work: Callable[[object], None]) -> None:
    list(map_over_processes(work, [1, 2, 3], processes=2, title="t", unit="u"))


KILLED = (
    "a reading process was killed, mostly for lack of memory. Fix: use fewer processes (HISTO_MONAI_WORKERS"
)


@pytest.mark.parametrize("where", [_in_a_worker, _in_a_pool])
@pytest.mark.parametrize(
    ("work", "message"),
    [
        (_die, KILLED),
        (_leave, KILLED),
        (_ask_numpy, "out of memory (Unable to allocate 1.00 EiB"),
        (_ask_torch, "out of memory ("),
        (_read_a_bad_slide, "slide a.tif: truncated"),
        (_err, None),
    ],
)
def test_what_happens_in_a_reading_process_is_one_line_unless_it_is_ours(
    where: Callable[[Callable[[object], None]], None], work: Callable[[object], None], message: str | None
) -> None:
    with pytest.raises(Exception, match=r".") as caught:
        where(work)
    line = _one_line(caught.value)
    if message is None:
        assert line is None
    else:
        assert line is not None
        assert line.replace("a helper process", "a reading process").startswith(message)
        assert "\n" not in line
        assert "Traceback" not in line


@pytest.mark.parametrize("work", [_ask_numpy, _ask_torch])
def test_memory_that_is_not_to_be_had_is_one_line_with_the_remedy(work: Callable[[object], None]) -> None:
    with pytest.raises((MemoryError, RuntimeError)) as caught:
        work(None)
    assert "smaller batch_size" in str(_one_line(caught.value))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 ..."),
            "out of memory (CUDA",
        ),
        (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), KILLED),
        (
            RuntimeError("unable to write to file </torch_7_1>: No space left on device (28)"),
            "/dev/shm is full",
        ),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (RuntimeError("the store was closed"), "another training process was killed"),
        (AssertionError("out of memory"), None),
        (RecursionError("maximum recursion depth exceeded"), None),
    ],
)
def test_words_of_libraries_that_have_no_error_of_their_own(error: Exception, message: str | None) -> None:
    line = _one_line(error)
    assert (line is None) if message is None else str(line).startswith(message)


def test_a_denied_semaphore_is_one_line_and_a_denied_file_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    denied, of_file = (
        PermissionError(13, "Permission denied"),
        PermissionError(13, "Permission denied", "a.tif"),
    )
    assert _one_line(denied) == str(denied)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert str(_one_line(denied)).startswith("/dev/shm: this user may not write there")
    assert _one_line(of_file) == str(of_file)
