"""Ranks that hang or die end the run, within the time that is allowed, in one line."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch
from ignite.engine import Engine
from torch.multiprocessing.spawn import start_processes

from histo_monai.pipeline.cli import _one_line
from histo_monai.training.means import attach_means
from histo_monai.training.ranks import RankHungError, device_of_rank, note_step, run_in_ranks
from histo_monai.utils.errors import InputError

CPU = torch.device("cpu")


def _note(device: torch.device, folder: str) -> None:
    Path(folder, f"{idist.get_rank()}-of-{idist.get_world_size()}").touch()


def _waits_for_one_that_sleeps(device: torch.device) -> None:
    if idist.get_rank() == 1:
        time.sleep(600)
    idist.barrier()


def _sleeps_and_nobody_waits(device: torch.device) -> None:
    if idist.get_rank() == 1:
        time.sleep(600)


def _is_slow_but_steady(device: torch.device) -> None:
    for _ in range(8):
        time.sleep(0.25)
        note_step()


def _writes_late(device: torch.device, folder: str) -> None:
    """The second rank works for longer than a step may take."""
    for _ in range(16 * idist.get_rank()):
        time.sleep(0.25)
        note_step()
    Path(folder, f"part-{idist.get_rank()}").touch()


def _is_killed(device: torch.device) -> None:
    if idist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def _is_wrong(device: torch.device) -> None:
    raise InputError(f"slide {idist.get_rank()}.tif: truncated")


def _is_wrong_while_it_trains(device: torch.device) -> None:
    def step(engine: Engine, batch: float) -> None:
        raise InputError("slide a.tif: truncated")

    Engine(step).run([1.0])


def _notes_its_mean(device: torch.device, folder: str) -> None:
    rank = idist.get_rank()
    batches = [[1.0, 2.0]] if rank == 0 else [[6.0]]
    engine = Engine(lambda _, batch: {"loss": torch.tensor(batch, device=device)})
    attach_means(engine, ["loss"])
    engine.run(batches)
    Path(folder, f"{rank}").write_text(f"{device} {engine.state.metrics['loss']}")


def test_each_rank_does_its_part(tmp_path: Path) -> None:
    run_in_ranks(_note, str(tmp_path), device=CPU, ranks=2, timeout_s=60, start="fork")
    assert {path.name for path in tmp_path.iterdir()} == {"0-of-2", "1-of-2"}


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that says that it has GPUs, and on which nobody may touch them."""

    def refuse(*_: object) -> None:
        raise AssertionError("a GPU was touched")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", refuse)
    monkeypatch.setattr(torch.cuda, "current_device", refuse)


@pytest.mark.usefixtures("two_gpus")
def test_ranks_on_the_cpu_leave_the_gpus_alone(tmp_path: Path) -> None:
    run_in_ranks(_notes_its_mean, str(tmp_path), device=CPU, ranks=2, timeout_s=60, start="fork")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0": "cpu 3.0", "1": "cpu 3.0"}


def _under_torchrun(program: Callable[[], None]) -> None:
    """Two processes with the environment that torchrun gives them, each with the program."""

    def process(rank: int) -> None:
        os.environ |= {"RANK": f"{rank}", "LOCAL_RANK": f"{rank}", "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
        program()

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start_processes(process, nprocs=2, start_method="fork")


@pytest.mark.usefixtures("two_gpus")
def test_ranks_that_torchrun_started_on_the_cpu_leave_the_gpus_alone(tmp_path: Path) -> None:
    _under_torchrun(lambda: run_in_ranks(_notes_its_mean, str(tmp_path), device=CPU, ranks=1, timeout_s=60))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"0": "cpu 3.0", "1": "cpu 3.0"}


def test_under_torchrun_none_goes_on_before_the_slowest_has_written_however_long_it_takes(
    tmp_path: Path,
) -> None:
    def program() -> None:
        run_in_ranks(_writes_late, str(tmp_path), device=CPU, ranks=1, timeout_s=3)
        written = sorted(path.name for path in tmp_path.glob("part-*"))
        (tmp_path / f"seen-by-{os.environ['RANK']}").write_text(" ".join(written))

    _under_torchrun(program)
    seen = [(tmp_path / f"seen-by-{rank}").read_text() for rank in range(2)]
    assert seen == ["part-0 part-1"] * 2


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("asked", "num_ranks", "devices"),
    [
        ("cpu", 2, ["cpu", "cpu"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda", 1, ["cuda"]),
        ("cuda:1", 1, ["cuda:1"]),
    ],
)
def test_a_rank_has_the_device_that_was_asked_for(asked: str, num_ranks: int, devices: list[str]) -> None:
    result = [device_of_rank(torch.device(asked), rank, num_ranks) for rank in range(num_ranks)]
    assert [str(device) for device in result] == devices


@pytest.mark.usefixtures("two_gpus")
def test_one_gpu_named_for_several_ranks_is_refused_in_one_line_before_any_starts(tmp_path: Path) -> None:
    for asked, ranks, complaint in (
        ("cuda:1", 2, "HISTO_MONAI_DEVICE.*'cuda:1'.*2 processes"),
        ("cuda", 3, "HISTO_MONAI_RANKS.*process 2 of 3.*2"),
    ):
        with pytest.raises(ValueError, match=complaint) as caught:
            run_in_ranks(_note, str(tmp_path), device=torch.device(asked), ranks=ranks, timeout_s=60)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_one_rank_keeps_the_gpu_that_was_named(tmp_path: Path) -> None:
    seen: list[torch.device] = []
    run_in_ranks(seen.append, device=torch.device("cuda:1"), ranks=1, timeout_s=60)
    assert seen == [torch.device("cuda:1")]


@pytest.mark.parametrize("work", [_waits_for_one_that_sleeps, _sleeps_and_nobody_waits])
def test_a_rank_that_sleeps_forever_ends_the_run_in_one_line(work: object) -> None:
    start = time.monotonic()
    with pytest.raises(Exception, match=r".") as caught:  # what is raised depends on who gives up first
        run_in_ranks(work, device=CPU, ranks=2, timeout_s=2, start="fork")  # type: ignore[arg-type]
    line = _one_line(caught.value)
    assert line is not None
    assert "\n" not in line
    assert "HISTO_MONAI_TIMEOUT_S" in line
    assert time.monotonic() - start < 300  # and not the 600 s of the sleep


def test_nobody_waits_without_end_where_ranks_do_not_meet() -> None:
    with pytest.raises(RankHungError, match=r"process 1.* 2 s"):
        run_in_ranks(_sleeps_and_nobody_waits, device=CPU, ranks=2, timeout_s=2, start="fork")


def test_a_run_may_take_longer_than_a_step() -> None:
    run_in_ranks(_is_slow_but_steady, device=CPU, ranks=2, timeout_s=1.5, start="fork")


def test_a_rank_that_is_killed_ends_the_run_in_one_line() -> None:
    with pytest.raises(Exception, match="SIGKILL") as caught:
        run_in_ranks(_is_killed, device=CPU, ranks=2, timeout_s=60, start="fork")
    assert (
        "a training process was killed (process 1 terminated with signal SIGKILL), mostly for lack of"
        in str(_one_line(caught.value))
    )


@pytest.mark.slow
def test_a_rank_that_ends_with_an_error_prints_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="truncated"):
        run_in_ranks(_is_wrong_while_it_trains, device=CPU, ranks=2, timeout_s=60)
    assert capfd.readouterr().err == ""


def test_an_error_of_a_rank_keeps_its_words() -> None:
    with pytest.raises(Exception, match="truncated") as caught:
        run_in_ranks(_is_wrong, device=CPU, ranks=2, timeout_s=60, start="fork")
    assert _one_line(caught.value) in ("slide 0.tif: truncated", "slide 1.tif: truncated")
