"""Protection of users' files: checks, before any work, that outputs replace no input and no other program's file.

A command that writes into a user's folder also writes a record there, with names and digests of its outputs. It later
replaces only files that the record lists and whose bytes are unchanged.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from histo_monai.utils.storage.atomic import whole_folder, write_json
from histo_monai.utils.storage.errors import OutputError
from histo_monai.utils.storage.reading import InputFileError, read_json
from histo_monai.utils.storage.seal import RECORD_SEAL, file_sha256, opened, sealed
from histo_monai.utils.storage.shapes import FILES, Shape

RECORD = "written.json"
"""Name of the record in a folder that `own_folder` replaces."""

_FILES = "files"
_LONGEST_NAME = 240  # Bytes; file systems take 255, and a draft's name is longer.
_ELSEWHERE = "move it away, or write to another folder"


def check_outputs(outputs: Iterable[Path], inputs: Iterable[Path], written: Mapping[Path, str]) -> None:
    """Refuse outputs that would overwrite an input or another program's file; call it before any work.

    Args:
        outputs: Files to write.
        inputs: Files to read; missing ones are ignored.
        written: Path -> SHA-256 of earlier outputs of this command (`written_before`).

    Raises:
        OutputError: An output is an input, perhaps by another name; or it exists and this command did not write it; or
            its name is too long; or two outputs differ only by case, so some disks store one file. Names the file.
    """
    read = {(about.st_dev, about.st_ino): path for path, about in _about(inputs)}
    known = {_place(path): digest for path, digest in written.items()}
    by_name: dict[str, Path] = {}
    for path in outputs:
        other = by_name.setdefault(str(_place(path)).casefold(), path)
        if other is not path:
            raise OutputError(
                f"{path} and {other}: some disks store one file for both. Fix: write them to two folders"
            )
        for _, about in _about([path]):
            if (about.st_dev, about.st_ino) in read:
                source = read[about.st_dev, about.st_ino]
                raise OutputError(
                    f"{path}: is the input {source} by another name. Fix: write to another folder"
                )
        if len(os.fsencode(path.name)) > _LONGEST_NAME:
            raise OutputError(
                f"{path}: too long a name, of more than {_LONGEST_NAME} bytes. Fix: rename its input"
            )
        if not os.path.lexists(path):
            continue
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OutputError(f"{path}: is a link, a folder or no regular file. Fix: {_ELSEWHERE}")
        if _place(path) not in known:
            raise OutputError(f"{path}: exists, and this command did not write it. Fix: {_ELSEWHERE}")
        if known[_place(path)] != file_sha256(path):
            raise OutputError(f"{path}: was changed since this command wrote it. Fix: {_ELSEWHERE}")


def check_apart(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse to replace a folder that is an input, lies in an input or contains one; links are followed.

    Args:
        folder: May be missing.
        inputs: Files and folders to read; missing ones are ignored.

    Raises:
        OutputError: Names the folder and the input.
    """
    real = Path(os.path.realpath(folder))
    for path in inputs:
        if not path.exists():
            continue
        source = path.resolve()
        if real.is_relative_to(source) or source.is_relative_to(real):
            raise OutputError(
                f"{folder}: an output folder, but it is, contains or lies in the input {path}. "
                "Fix: remove the link between the two"
            )


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not writable, or that cannot be created.

    Raises:
        OutputError: The folder, or its nearest existing parent, is a file, a broken link, or not writable.
    """
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if place.is_symlink() and not place.exists():
        raise OutputError(f"{place}: is a broken link. Fix: remove it, or name another folder")
    if not place.is_dir():
        raise OutputError(f"{place}: is a file, but a folder is needed. Fix: name another folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(f"{place}: you have no write permission. Fix: name another folder")


def write_record(path: Path, content: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Write the record of files as JSON, in one step.

    Args:
        content: Further entries of the record.
        files: Names, relative to the record's folder -> SHA-256.
    """
    bare = {name: value for name, value in content.items() if name != RECORD_SEAL}
    write_json(path, sealed({**bare, _FILES: dict(files)}, RECORD_SEAL))


def read_record(path: Path, shape: Mapping[str, Shape] | None = None) -> dict[str, Any] | None:
    """Content of a file of `write_record`, with `files`; None if the file is missing or has changed.

    Args:
        shape: Shape of the further entries (`utils.storage.shapes`).
    """
    try:
        return opened(read_json(path, "", {_FILES: FILES, **(shape or {})}), RECORD_SEAL)
    except InputFileError:
        return None


def written_before(record: Path) -> dict[Path, str]:
    """Path -> SHA-256 of the record and of the files that it lists; empty without a record."""
    content = read_record(record)
    if content is None:
        return {}
    listed = {record.parent / name: digest for name, digest in content[_FILES].items()}
    return {**listed, record: file_sha256(record)}


def publish(drafts: Sequence[Path], record: Path, content: Mapping[str, Any], inputs: Iterable[Path]) -> None:
    """Move finished files beside their record, in place of earlier ones, and write the record again.

    Files of the earlier record alone are deleted, unless they changed or are inputs. After a kill at any step, the
    record lists every file in the folder; a listed file may be missing.

    Args:
        drafts: Files with their final names, on the disk of the record.

    Raises:
        OutputError: An error of `check_outputs`.
    """
    targets = [record.with_name(draft.name) for draft in drafts]
    inputs, before = list(inputs), written_before(record)
    check_outputs([*targets, record], inputs, before)
    digests = {draft.name: file_sha256(draft) for draft in drafts}
    written = {*targets, record}
    outdated = [path for path in before if path not in written and _is_unchanged(path, before[path], inputs)]
    for target in [*targets, *outdated]:
        target.unlink(missing_ok=True)
    write_record(record, content, digests)
    for draft, target in zip(drafts, targets, strict=True):
        os.replace(draft, target)


def _is_unchanged(path: Path, digest: str, inputs: Sequence[Path]) -> bool:
    """Whether a file is as it was written, and no input."""
    if path.is_symlink() or not path.is_file() or path.resolve() in {source.resolve() for source in inputs}:
        return False
    return file_sha256(path) == digest


@contextmanager
def own_folder(folder: Path, inputs: Iterable[Path]) -> Iterator[Path]:
    """`whole_folder` for a user's folder: replaces only a folder that an earlier call wrote.

    The folder gets a record, `RECORD`, of all its files.

    Args:
        folder: Folder to write.

    Raises:
        OutputError: An error of `check_own_folder`.
    """
    inputs = list(inputs)
    check_own_folder(folder, inputs)
    with whole_folder(folder) as draft:
        yield draft
        check_own_folder(folder, inputs)  # Hours may have passed.
        files = sorted(path for path in draft.rglob("*") if path.is_file())
        write_record(draft / RECORD, {}, {str(path.relative_to(draft)): file_sha256(path) for path in files})


def check_own_folder(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse a folder with an input, or with files that `own_folder` did not write.

    Raises:
        OutputError: The folder is not writable, or a file in it has changed or is of another program.
    """
    check_folder(folder)
    held = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    check_outputs(held, inputs, written_before(folder / RECORD))


def _place(path: Path) -> Path:
    """The path with links of its folder followed; the file's own link is not."""
    return Path(os.path.realpath(path.parent)) / path.name


def _about(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in paths:
        try:
            yield path, path.stat()
        except OSError:
            continue
