"""Small files are read if they are files, of a bounded size, and say what they mean once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from histo_monai.utils.storage import InputFileError, read_bytes, read_json

MEND = "run the index stage again"

LIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON that this project writes"),
    "half of it": (b'{"warnings": [', "not JSON that this project writes"),
    "a list": (b"[1]", "expected an object with keys, got list"),
    "null": (b"null", "expected an object with keys, got NoneType"),
    "a key twice": (b'{"warnings": [], "a": {"b": 1, "b": 2}}', "key 'b' is repeated"),
    "a key missing": (b'{"other": 1}', "has no key 'warnings'"),
    "no list": (b'{"warnings": {}}', "warnings is an object with keys, expected a list"),
    "no texts": (b'{"warnings": ["a", 1]}', "warnings[1] is 1, expected text"),
    "brackets": (b"[" * 200_000, "nested too deep"),
    "objects": (b'{"a":' * 200_000, "nested too deep"),
    "a long number": (b'{"warnings": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
    "latin-1": (b'{"warnings": "\xe9"}', "not UTF-8 (byte 0xe9 in line 1)"),
}


@pytest.mark.parametrize("kind", LIES)
def test_json_that_lies_is_one_line_with_the_file_and_the_remedy(kind: str, tmp_path: Path) -> None:
    content, expected = LIES[kind]
    path = tmp_path / "labels.json"
    path.write_bytes(content)
    with pytest.raises(InputFileError) as caught:
        read_json(path, MEND, {"warnings": [str]})
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert expected in message
    assert message.endswith(MEND)
    assert "\n" not in message
    assert len(message) < len(str(path)) + 400


def test_what_is_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_bytes(b'\xef\xbb\xbf{"warnings": ["\xc3\xa9"]}')
    assert read_json(path, MEND, {"warnings": [str]}) == {"warnings": ["é"]}


def test_pipes_devices_and_folders_are_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, kind in (
        ("pipe", "a pipe, socket or device"),
        ("zero", "a pipe, socket or device"),
        (".", "a folder"),
    ):
        with pytest.raises(InputFileError, match=f"is {kind}, not a file"):
            read_bytes(tmp_path / name, 10)
    with pytest.raises(InputFileError, match="missing: cannot be read"):
        read_bytes(tmp_path / "missing", 10)


def test_more_bytes_than_allowed_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert read_bytes(tmp_path / "a", 11) == b"x" * 11
    with pytest.raises(InputFileError, match="has 11 bytes, more than the limit of 10"):
        read_bytes(tmp_path / "a", 10)
