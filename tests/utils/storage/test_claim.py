"""One process writes a folder at a time; one that died holds nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from histo_monai.pipeline import paths
from histo_monai.pipeline.cli import _claimed, main
from histo_monai.pipeline.stages import index
from histo_monai.utils.storage import OutputError, claim

FORK = multiprocessing.get_context("fork")


def _hold(folder: Path, lock: Path, ready: Connection) -> None:
    with claim(folder, lock):
        ready.send(os.getpid())
        ready.recv()


@contextmanager
def _held(work: Callable[..., object], *arguments: object) -> Iterator[int]:
    """The number of a process that holds, until it is killed."""
    here, there = FORK.Pipe()
    process = FORK.Process(target=work, args=(*arguments, there))
    process.start()
    try:
        assert here.poll(60)
        yield here.recv()
    finally:
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()


def test_a_second_process_is_refused_with_the_number_of_the_first_and_a_killed_one_holds_nothing(
    tmp_path: Path,
) -> None:
    folder, lock = tmp_path / "models", tmp_path / "checkpoints/.index.lock"
    with _held(_hold, folder, lock) as holder:
        for _ in range(2):
            with (
                pytest.raises(
                    OutputError, match=rf"models: already being written, by process {holder}\. Fix: wait"
                ),
                claim(folder, lock),
            ):
                pytest.fail("two hold it")
    assert lock.exists()  # as the kernel left it
    with claim(folder, lock):
        assert lock.read_text() == str(os.getpid())
    assert not lock.exists()


def test_a_claim_leaves_no_trace_and_keeps_what_others_wrote(tmp_path: Path) -> None:
    lock = tmp_path / "data/checkpoints/.index.lock"
    with claim(tmp_path / "data/index", lock):
        pass
    assert list(tmp_path.iterdir()) == []
    with claim(tmp_path / "data/index", lock):
        (tmp_path / "data/index").mkdir()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["index"]


def test_two_stages_do_not_stand_in_each_others_way(tmp_path: Path) -> None:
    with claim(tmp_path / "a", tmp_path / "a.lock"), claim(tmp_path / "b", tmp_path / "b.lock"):
        pass


def test_what_cannot_be_replaced_is_refused_before_the_lock_is_made(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file")
    with pytest.raises(OutputError, match="is a file"), claim(tmp_path / "models", tmp_path / "c/lock"):
        pytest.fail("work was done")
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def _index_that_waits(there: Connection) -> None:
    def wait() -> None:
        there.send(os.getpid())
        there.recv()

    index.run = wait  # type: ignore[assignment]  # in the forked process alone
    main(["index"])


def test_one_of_two_equal_stages_ends_in_a_line_that_names_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with _held(_index_that_waits) as holder:
        assert main(["index"]) == 1
        error = (
            f"histo-monai index: error: data/index: already being written, by process {holder}. Fix: wait for"
        )
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(error)
    assert main(["index"]) == 1  # Nobody holds it now: the next error is another.
    assert "params.yaml: cannot be read" in capsys.readouterr().err


def test_of_the_ranks_of_torchrun_the_first_claims_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = {"method": "rsp"}
    with _claimed("pretrain", run):
        monkeypatch.setenv("RANK", "1")
        with _claimed("pretrain", run):
            assert paths.lock_path("pretrain-rsp").exists()
        assert paths.lock_path("pretrain-rsp").exists()
        monkeypatch.setenv("RANK", "0")
        with pytest.raises(OutputError, match="already being written"), _claimed("pretrain", run):
            pass


def test_a_stage_that_could_not_put_its_folder_in_place_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/index").symlink_to(tmp_path)
    monkeypatch.setattr(index, "run", lambda: pytest.fail("work was done"))
    assert main(["index"]) == 1
    assert "data/index: is a link to" in capsys.readouterr().err
