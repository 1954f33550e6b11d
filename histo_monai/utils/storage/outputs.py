"""Protection of users' files: checks before any work that outputs replace no input and no foreign file.

A command that writes where a user may have files leaves a record there: names and digests of what it wrote. Only what a
record lists, byte for byte, is ever replaced.
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
    """Refuse, before any work, what would cost somebody a file.

    Args:
        outputs: Files to be written.
        inputs: Files to be read, which exist; those that do not are left to their reader.
        written: Path -> SHA-256 of what this command wrote there before, see `written_before`.

    Raises:
        OutputError: An output is an input, under whatever name; or exists, and is not what this command wrote; or has
            too long a name; or two outputs differ by case alone, so that they are one file on some disks. Names it.
    """
    read = {(about.st_dev, about.st_ino): path for path, about in _about(inputs)}
    known = {_place(path): digest for path, digest in written.items()}
    by_name: dict[str, Path] = {}
    for path in outputs:
        other = by_name.setdefault(str(_place(path)).casefold(), path)
        if other is not path:
            raise OutputError(f"{path} and {other} would be one file; write them to two folders")
        for _, about in _about([path]):
            if (about.st_dev, about.st_ino) in read:
                source = read[about.st_dev, about.st_ino]
                raise OutputError(
                    f"{path}: is really {source}, which is read; nothing that is read is written to"
                )
        if len(os.fsencode(path.name)) > _LONGEST_NAME:
            raise OutputError(
                f"{path}: too long a name, of more than {_LONGEST_NAME} bytes; rename what it is of"
            )
        if not os.path.lexists(path):
            continue
        if not stat.S_ISREG(path.lstat().st_mode):
            raise OutputError(f"{path}: is a link, a folder or no plain file; {_ELSEWHERE}")
        if _place(path) not in known:
            raise OutputError(f"{path}: exists, and this command did not write it; {_ELSEWHERE}")
        if known[_place(path)] != file_sha256(path):
            raise OutputError(f"{path}: was changed since this command wrote it; {_ELSEWHERE}")


def check_apart(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse a folder to be replaced that is an input, lies in one or holds one, links followed.

    Args:
        folder: Need not be there.
        inputs: Files and folders that are read; those that do not exist are not looked at.

    Raises:
        OutputError: Names both.
    """
    real = Path(os.path.realpath(folder))
    for path in inputs:
        if not path.exists():
            continue
        source = path.resolve()
        if real.is_relative_to(source) or source.is_relative_to(real):
            raise OutputError(
                f"{folder}: is to be replaced, but really lies in, is or holds {path}, which is read; "
                "remove the link between the two"
            )


def check_folder(folder: Path) -> None:
    """Refuse a folder into which nothing can be written; it need not be there.

    Raises:
        OutputError: It is a file, a link that leads nowhere, or may not be written to; or the folder is that it would
            be made in.
    """
    place = folder
    while not os.path.lexists(place):
        place = place.parent
    if place.is_symlink() and not place.exists():
        raise OutputError(f"{place}: is a link that leads nowhere; name another folder, or remove it")
    if not place.is_dir():
        raise OutputError(f"{place}: is a file where a folder is to be written; name another folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputError(f"{place}: may not be written to by you; name another folder")


def write_record(path: Path, content: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Write the record of files beside it, as JSON in one step.

    Args:
        content: What else there is to say.
        files: Names, relative to the record's folder -> SHA-256.
    """
    bare = {name: value for name, value in content.items() if name != RECORD_SEAL}
    write_json(path, sealed({**bare, _FILES: dict(files)}, RECORD_SEAL))


def read_record(path: Path, shape: Mapping[str, Shape] | None = None) -> dict[str, Any] | None:
    """What `write_record` wrote, `files` among it; None where there is no such file, or not as it was written.

    Args:
        shape: Of what else it says, see `utils.storage.shapes`.
    """
    try:
        return opened(read_json(path, "", {_FILES: FILES, **(shape or {})}), RECORD_SEAL)
    except InputFileError:
        return None


def written_before(record: Path) -> dict[Path, str]:
    """Path -> SHA-256 of the files that a record lists, and of itself; nothing where there is none."""
    content = read_record(record)
    if content is None:
        return {}
    listed = {record.parent / name: digest for name, digest in content[_FILES].items()}
    return {**listed, record: file_sha256(record)}


def publish(drafts: Sequence[Path], record: Path, content: Mapping[str, Any], inputs: Iterable[Path]) -> None:
    """Move finished files beside their record, in place of what it lists, and write it anew.

    Wherever it is killed, no file lies there that the record does not list; a file that it lists may be missing.

    Args:
        drafts: Files of the names that they are to have, on the disk of the record.

    Raises:
        OutputError: See `check_outputs`.
    """
    targets = [record.with_name(draft.name) for draft in drafts]
    check_outputs([*targets, record], inputs, written_before(record))
    digests = {draft.name: file_sha256(draft) for draft in drafts}
    for target in targets:
        target.unlink(missing_ok=True)
    write_record(record, content, digests)
    for draft, target in zip(drafts, targets, strict=True):
        os.replace(draft, target)


@contextmanager
def own_folder(folder: Path, inputs: Iterable[Path]) -> Iterator[Path]:
    """`whole_folder` where a user may have files: what is replaced must be what was written so before.

    The folder gets a record, `RECORD`, of all its files.

    Args:
        folder: To be replaced.

    Raises:
        OutputError: See `check_own_folder`.
    """
    inputs = list(inputs)
    check_own_folder(folder, inputs)
    with whole_folder(folder) as draft:
        yield draft
        check_own_folder(folder, inputs)  # Hours may have passed.
        files = sorted(path for path in draft.rglob("*") if path.is_file())
        write_record(draft / RECORD, {}, {str(path.relative_to(draft)): file_sha256(path) for path in files})


def check_own_folder(folder: Path, inputs: Iterable[Path]) -> None:
    """Refuse a folder that holds more than `own_folder` wrote there, or an input.

    Raises:
        OutputError: It cannot be written, or a file in it is not as it was written, or was not written so at all.
    """
    check_folder(folder)
    held = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    check_outputs(held, inputs, written_before(folder / RECORD))


def _place(path: Path) -> Path:
    """The folder with links followed, and the name as it is."""
    return Path(os.path.realpath(path.parent)) / path.name


def _about(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in paths:
        try:
            yield path, path.stat()
        except OSError:
            continue
