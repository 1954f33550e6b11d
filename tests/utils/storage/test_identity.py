"""A file is known again by size, time and samples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from histo_monai.utils.storage import identify

MEBI = 2**20


def test_a_copy_has_the_content_and_another_place(tmp_path: Path) -> None:
    content = os.urandom(MEBI)
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "b").write_bytes(content)
    (tmp_path / "link").symlink_to("a")
    a, b = identify(tmp_path / "a"), identify(tmp_path / "b")
    assert a.sample_sha256 == b.sample_sha256
    assert a != b
    assert identify(tmp_path / "link") == a


@pytest.mark.parametrize("size", [1, 2**16, 4 * MEBI - 1, 4 * MEBI])
def test_any_changed_byte_of_up_to_four_mebibytes_is_detected(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    content = bytearray(os.urandom(size))
    path.write_bytes(content)
    before = identify(path)
    for place in {0, size // 2, size - 1}:
        content[place] ^= 1
        path.write_bytes(content)
        assert identify(path).sample_sha256 != before.sample_sha256
        content[place] ^= 1
    path.write_bytes(content)
    assert identify(path).sample_sha256 == before.sample_sha256


def test_of_a_large_file_the_ends_and_the_size_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(200 * MEBI)
    before = identify(path)
    for place in (0, 200 * MEBI - 1):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"x")
        assert identify(path).sample_sha256 != before.sample_sha256
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\0")
    with path.open("r+b") as file:
        file.truncate(200 * MEBI + 1)
    assert identify(path).sample_sha256 != before.sample_sha256


def test_an_empty_file_is_known_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert identify(tmp_path / "a").size == 0
    with pytest.raises(FileNotFoundError):
        identify(tmp_path / "b")
