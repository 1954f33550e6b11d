"""Paths that are no files, and the sandbox in which slides are tried."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from histo_monai.slides import SlideError, open_slide
from tests.hostile.slide_sandbox import in_sandbox


def message_of(path: Path) -> str:
    try:
        open_slide(path, mpp=0.5).close()
    except SlideError as error:
        return str(error)
    return "opened"


def no_files(folder: Path) -> Iterator[tuple[Path, str]]:
    os.mkfifo(folder / "pipe.tif")
    yield folder / "pipe.tif", "a pipe, socket or device"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket.tif"))
    yield folder / "socket.tif", "a pipe, socket or device"
    (folder / "device.tif").symlink_to("/dev/zero")
    yield folder / "device.tif", "a pipe, socket or device"
    (folder / "folder.tif").mkdir()
    yield folder / "folder.tif", "a folder"
    (folder / "one.tif").symlink_to(folder / "other.tif")
    (folder / "other.tif").symlink_to(folder / "one.tif")
    yield folder / "one.tif", "cannot be opened"
    (folder / "text.tif").write_text("no folder")
    yield folder / "text.tif" / "slide.tif", "no such file"
    yield folder / "nul\0.tif", "cannot be opened"
    yield folder / ("long" * 100), "cannot be opened"
    yield folder / "two\nlines\x1b[31m.tif", "no such file"


def test_what_is_no_file_is_refused_in_one_line_without_waiting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = dict(no_files(Path()))
    for path, message in in_sandbox(list(cases), message_of, seconds=10):
        assert cases[path] in message
        assert message.isprintable()


def test_a_file_that_may_not_be_read_is_refused_in_one_line(tmp_path, monkeypatch):
    path = tmp_path / "slide.tif"
    path.touch()

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SlideError, match=r"cannot be opened \(Permission denied\)"):
        open_slide(path)


def test_the_sandbox_reports_deaths_and_hangs_and_goes_on():
    def run(what: str) -> str:
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            os.read(os.pipe()[0], 1)
        return "fine"

    tasks = ["one", "die", "two", "hang", "three"]
    results = [result for _, result in in_sandbox(tasks, run, seconds=0.5)]
    assert results == ["fine", "died: SIGKILL", "fine", "hung: more than 0.5 s", "fine"]
