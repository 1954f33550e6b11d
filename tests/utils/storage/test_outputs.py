"""What may be written where: only what was written by the same command before is ever replaced."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from histo_monai.utils.storage import (
    OutputError,
    check_apart,
    check_folder,
    check_outputs,
    file_sha256,
    own_folder,
    publish,
    read_record,
    written_before,
)
from histo_monai.utils.storage.outputs import RECORD, write_record


def _written(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_what_is_not_there_may_be_written_and_what_was_written_may_be_replaced(tmp_path: Path) -> None:
    read, new, old = (
        _written(tmp_path / "slide.tif", "s"),
        tmp_path / "new.csv",
        _written(tmp_path / "old.csv"),
    )
    check_outputs([new, old], [read], {old: file_sha256(old)})


def _link(path: Path, slide: Path) -> None:
    path.symlink_to(slide)


def _dangling(path: Path, slide: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (lambda path, slide: path.write_text("mine"), "exists, and this command did not write it"),
        (lambda path, slide: path.mkdir(), "is a link, a folder or no regular file"),
        (lambda path, slide: os.mkfifo(path), "is a link, a folder or no regular file"),
        (_dangling, "is a link, a folder or no regular file"),
        (_link, r"is the input .*slide\.tif by another name"),
        (lambda path, slide: os.link(slide, path), r"is the input .*slide\.tif by another name"),
    ],
    ids=["a file", "a folder", "a pipe", "a dangling link", "a link to an input", "a hard link to an input"],
)
def test_what_somebody_put_there_is_refused(
    tmp_path: Path, put: Callable[[Path, Path], object], message: str
) -> None:
    slide, path = _written(tmp_path / "slide.tif"), tmp_path / "out" / "map.tif"
    path.parent.mkdir()
    put(path, slide)
    before = os.lstat(path)
    with pytest.raises(OutputError, match=message) as refused:
        check_outputs([path], [slide], {})
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert os.lstat(path) == before
    assert slide.read_text() == "x"


def test_an_input_is_refused_even_where_this_command_wrote_it(tmp_path: Path) -> None:
    path = _written(tmp_path / "a" / "map.tif")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OutputError, match="by another name"):
        check_outputs([tmp_path / "b" / "map.tif"], [path], {path: file_sha256(path)})


def test_what_was_changed_since_it_was_written_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path / "map.geojson")
    written = {path: file_sha256(path)}
    path.write_text("a pathologist's")
    with pytest.raises(OutputError, match="was changed since this command wrote it"):
        check_outputs([path], [], written)


def test_outputs_that_differ_by_case_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"A\.csv and .*a\.csv: some disks store one file"):
        check_outputs([tmp_path / "a.csv", tmp_path / "A.csv"], [], {})


def test_a_name_that_no_file_can_have_is_refused_before_the_work(tmp_path: Path) -> None:
    check_outputs([tmp_path / ("µ" * 118 + ".csv")], [], {})
    with pytest.raises(OutputError, match="too long a name"):
        check_outputs([tmp_path / ("µ" * 119 + ".csv")], [], {})


def test_a_record_knows_its_files_through_a_linked_folder_too(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    path = _written(folder / "a.csv")
    write_record(folder / "a.json", {"what": "a"}, {"a.csv": file_sha256(path)})
    (tmp_path / "link").symlink_to("out")
    record = tmp_path / "link" / "a.json"
    check_outputs([tmp_path / "link" / "a.csv", record], [], written_before(record))
    assert read_record(record) == {"what": "a", "files": {"a.csv": file_sha256(path)}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"files": {}}',
        '{"files": {"mine.csv": "0"}, "record_sha256": "0"}',
        "[" * 10**5,
    ],
    ids=["empty", "a list", "no seal", "another seal", "deep"],
)
def test_a_file_that_is_no_record_speaks_for_nothing(tmp_path: Path, text: str) -> None:
    path = _written(tmp_path / "a.json", text)
    assert read_record(path) is None
    assert written_before(path) == {}
    with pytest.raises(OutputError, match="did not write it"):
        check_outputs([path], [], written_before(path))


def test_a_record_that_was_edited_speaks_for_nothing(tmp_path: Path) -> None:
    mine = _written(tmp_path / "mine.csv")
    write_record(tmp_path / "a.json", {}, {})
    record = json.loads((tmp_path / "a.json").read_text())
    record["files"] = {"mine.csv": file_sha256(mine)}
    (tmp_path / "a.json").write_text(json.dumps(record))
    assert written_before(tmp_path / "a.json") == {}


class _Killed(BaseException):
    pass


@pytest.mark.parametrize("after", range(8))
def test_publishing_killed_anywhere_leaves_no_file_that_the_record_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Every call that changes the folder is one place to be killed at; published again, all is there."""
    record, names = tmp_path / "a.json", ("a.csv", "a.tif")

    def drafts(text: str) -> list[Path]:
        return [_written(tmp_path / "work" / name, f"{text} {name}") for name in names]

    publish(drafts("old"), record, {"n": 1}, [])
    new, calls = drafts("new"), 0
    with monkeypatch.context() as patch:
        for owner, name in ((os, "replace"), (Path, "unlink")):
            original = getattr(owner, name)

            def call(*arguments: object, original: Callable = original, **options: object) -> object:
                nonlocal calls
                calls += 1
                if calls > after:
                    raise _Killed
                return original(*arguments, **options)

            patch.setattr(owner, name, call)
        try:
            publish(new, record, {"n": 2}, [])
        except _Killed:
            assert after < 6
        else:
            assert after >= 6  # Two old files and a draft removed, the record and two new ones moved.
    for draft in tmp_path.glob(".*"):
        draft.unlink()  # A draft of the record, which a kill leaves.
    check_outputs([tmp_path / name for name in (*names, "a.json")], [], written_before(record))
    publish(drafts("new"), record, {"n": 2}, [])
    assert [(tmp_path / name).read_text() for name in names] == ["new a.csv", "new a.tif"]
    assert set(read_record(record)["files"]) == set(names)  # type: ignore[index]


def test_a_folder_of_ones_own_is_replaced_and_one_that_holds_more_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    for text in ("first", "second"):
        with own_folder(folder, []) as draft:
            _written(draft / "deep" / "a.csv", text)
    assert (folder / "deep" / "a.csv").read_text() == "second"
    assert set(written_before(folder / RECORD)) == {folder / RECORD, folder / "deep" / "a.csv"}
    mine = _written(folder / "deep" / "notes.txt", "mine")
    with pytest.raises(OutputError, match=r"notes\.txt: exists"), own_folder(folder, []):
        pytest.fail("nothing is done")
    assert mine.read_text() == "mine"


def test_what_comes_into_a_folder_of_ones_own_meanwhile_is_not_lost(tmp_path: Path) -> None:
    folder = tmp_path / "made"

    def write_both() -> None:
        with own_folder(folder, []) as draft:
            _written(draft / "a.csv")
            _written(folder / "notes.txt", "mine")

    with pytest.raises(OutputError, match=r"notes\.txt: exists"):
        write_both()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("links", "folder", "is_refused"),
    [
        ({}, "data/index", False),
        ({"data/raw": "/else"}, "data/index", False),
        ({"data/raw/own": "/else"}, "data/index", False),
        ({"data/models": "raw"}, "data/models/rsp-0", True),
        ({"data/models": "raw/own"}, "data/models/own", True),
        ({"data/raw/own": "/else", "data/models": "/else"}, "data/models/rsp-0", True),
        ({"data/raw/own": "../phantom/own"}, "data/phantom", True),
    ],
)
def test_a_stage_folder_that_really_is_or_holds_raw_data_is_refused(
    tmp_path: Path, links: dict[str, str], folder: str, is_refused: bool
) -> None:
    for place in ("data/raw", "data/phantom/own", "else"):
        (tmp_path / place).mkdir(parents=True)
    for name, target in links.items():
        if (tmp_path / name).is_dir():
            (tmp_path / name).rmdir()
        (tmp_path / name).symlink_to(tmp_path / "else" if target == "/else" else target)
    if not any(name.startswith("data/raw") for name in links):
        (tmp_path / "data/raw/own").mkdir()
    raw = [tmp_path / "data/raw", *(tmp_path / "data/raw").iterdir()]
    if not is_refused:
        check_apart(tmp_path / folder, raw)
        return
    with pytest.raises(OutputError, match="is, contains or lies in the input"):
        check_apart(tmp_path / folder, raw)


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder(tmp_path / "a" / "b")
    (tmp_path / "loop").symlink_to("loop")
    _written(tmp_path / "file")
    for name, message in (("loop", "broken link"), ("loop/a", "broken link"), ("file/a", "is a file")):
        with pytest.raises(OutputError, match=message):
            check_folder(tmp_path / name)
    monkeypatch.setattr(os, "access", lambda *_: False)  # A superuser may write anywhere.
    with pytest.raises(OutputError, match="no write permission"):
        check_folder(tmp_path / "a")
