"""What is written appears whole or not at all, and a full disk says so."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pandas as pd
import pytest
import torch
from PIL import Image

from histo_monai.models.checkpoint import save_model
from histo_monai.utils.storage import DiskFullError, OutputError, whole_file, whole_folder, write_json
from histo_monai.utils.storage.atomic import check_replaceable

Names = Callable[[Path], set[str]]


def _fails_in(writing: AbstractContextManager[Path], error: BaseException, name: str = "") -> None:
    """Write half of it, then raise."""
    with writing as draft:
        (draft / name if name else draft).write_text("half")
        raise error


def test_a_file_is_there_when_all_of_it_is_written(tmp_path: Path, names: Names) -> None:
    path = tmp_path / "a/b.csv"
    with whole_file(path) as draft:
        draft.write_text("half")
        assert not path.exists()
        assert draft.suffix == ".csv"
    assert path.read_text() == "half"
    assert names(path.parent) == {"b.csv"}


def test_an_error_leaves_the_file_of_before_and_no_draft(tmp_path: Path, names: Names) -> None:
    path = tmp_path / "b.csv"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        _fails_in(whole_file(path), KeyboardInterrupt())
    assert path.read_text() == "before"
    assert names(tmp_path) == {"b.csv"}


def test_nobody_writes_through_a_link_that_has_the_name_of_a_draft(tmp_path: Path) -> None:
    slide = tmp_path / "slide.tif"
    slide.write_text("pixels")
    (tmp_path / ".map.draft.tif").symlink_to(slide)
    with whole_file(tmp_path / "map.tif") as draft:
        draft.write_text("map")
    assert slide.read_text() == "pixels"
    assert (tmp_path / "map.tif").read_text() == "map"


def test_a_folder_is_replaced_in_one_step_and_an_error_leaves_that_of_before(
    tmp_path: Path, names: Names
) -> None:
    folder = tmp_path / "models"
    with whole_folder(folder) as draft:
        (draft / "a").touch()
        assert not folder.exists()
    with pytest.raises(ValueError, match="no"):
        _fails_in(whole_folder(folder), ValueError("no"), "b")
    assert names(folder) == {"a"}
    with whole_folder(folder) as draft:
        (draft / "c").touch()
    assert names(folder) == {"c"}
    assert names(tmp_path) == {"models"}


@pytest.mark.parametrize("killed_while", ["writing", "replacing"])
def test_what_a_killed_run_left_is_in_nobodys_way(killed_while: str, tmp_path: Path, names: Names) -> None:
    folder = tmp_path / "models"
    for name in ("models", ".models.draft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of before").touch()
    if killed_while == "replacing":
        folder.rename(tmp_path / ".models.before")
    with pytest.raises(ValueError, match="no"):
        _fails_in(whole_folder(folder), ValueError("no"), "half")
    assert names(folder) == {"of before"}
    with whole_folder(folder) as draft:
        (draft / "new").touch()
    assert names(folder) == {"new"}
    assert names(tmp_path) == {"models"}


def _link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


def _broken_link(folder: Path) -> None:
    folder.symlink_to(folder.parent / "nowhere")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_link, r"is a link to .*elsewhere\. Fix: link the whole data folder instead"),
        (_broken_link, "is a link to .*nowhere"),
        (lambda folder: folder.write_text("x"), "is a file, but a folder is needed"),
        (os.mkfifo, "is a file, but a folder"),
    ],
)
def test_what_cannot_be_replaced_is_refused_before_any_work(
    make: Callable[[Path], None], message: str, tmp_path: Path, names: Names
) -> None:
    folder = tmp_path / "models"
    make(folder)
    before = names(tmp_path)
    with pytest.raises(OutputError, match=message), whole_folder(folder):
        pytest.fail("work was done")
    assert names(tmp_path) == before


def test_a_link_or_a_file_further_up_is_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    check_replaceable(tmp_path / "data/models/rsp-0")
    (tmp_path / "disk/models").write_text("a file")
    with pytest.raises(OutputError, match=r"models a writable folder"):
        check_replaceable(tmp_path / "data/models/rsp-0")
    (tmp_path / "gone").symlink_to(tmp_path / "unplugged")
    with pytest.raises(OutputError, match=r"gone a writable folder"):
        check_replaceable(tmp_path / "gone/models")


def test_a_mount_point_is_not_replaced_but_written_into(small_disk: Path) -> None:
    with pytest.raises(OutputError, match=r"is a mount point\. Fix: mount the whole data folder instead"):
        check_replaceable(small_disk)
    check_replaceable(small_disk / "models")


def test_a_disk_that_may_not_be_written_to_is_refused_before_any_work(read_only: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot be written\. Fix: make .*archive a writable folder"):
        check_replaceable(read_only / "data/models")


def _write_png(path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (800, 800, 3), dtype=torch.uint8, generator=generator).numpy()
    with whole_file(path) as draft:
        Image.fromarray(noise).save(draft)


def _write_table(path: Path) -> None:
    with whole_file(path) as draft:
        pd.DataFrame({"x": range(400_000)}).to_csv(draft)


def _write_state(path: Path) -> None:
    with whole_file(path) as draft:
        torch.save({"x": torch.zeros(500_000)}, draft)


def _write_bytes(path: Path) -> None:
    with whole_file(path, 2 * 10**6) as draft:
        draft.write_bytes(b"x" * 2 * 10**6)


BIG: dict[str, Callable[[Path], None]] = {
    "picture.png": _write_png,
    "table.csv": _write_table,
    "state.pt": _write_state,
    "bytes.bin": _write_bytes,
    "about.json": lambda path: write_json(path, {"x": "y" * 2 * 10**6}),
    "model.safetensors": lambda path: save_model(path, {"x": torch.zeros(500_000)}, {}),
}


@pytest.mark.parametrize("name", BIG)
def test_a_full_disk_is_named_with_its_free_space_and_nothing_half_written_is_left(
    name: str, small_disk: Path, names: Names
) -> None:
    (small_disk / name).write_text("before")
    with pytest.raises(
        DiskFullError, match=rf"{name}: the disk is full \(.*\d\.\d MB free\)\. Fix: free disk space"
    ) as caught:
        BIG[name](small_disk / name)
    assert "\n" not in str(caught.value)
    assert (small_disk / name).read_text() == "before"
    assert names(small_disk) == {name}


def test_a_folder_for_which_there_is_no_room_leaves_that_of_before(small_disk: Path, names: Names) -> None:
    with whole_folder(small_disk / "models") as draft:
        (draft / "a").write_text("before")
    with (
        pytest.raises(DiskFullError, match=r"bytes\.bin: the disk is full \(2\.0 MB needed"),
        whole_folder(small_disk / "models") as draft,
    ):
        _write_bytes(draft / "bytes.bin")
    assert (small_disk / "models/a").read_text() == "before"
    assert names(small_disk) == {"models"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_quota_that_is_used_up_is_a_full_disk(number: int, tmp_path: Path, names: Names) -> None:
    with pytest.raises(DiskFullError, match=r"b\.csv: the disk is full"):
        _fails_in(whole_file(tmp_path / "b.csv"), OSError(number, os.strerror(number)))
    assert names(tmp_path) == set()


def test_other_errors_of_a_disk_stay_what_they_are(tmp_path: Path) -> None:
    assert shutil.disk_usage(tmp_path).free > 2**20
    for error in (OSError(errno.EIO, "Input/output error"), RuntimeError("ours")):
        with pytest.raises(type(error), match=str(error.args[-1])), whole_file(tmp_path / "b.csv"):
            raise error
