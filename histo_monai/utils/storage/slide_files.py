"""The files of a slide: one in most formats, several in MIRAX, Hamamatsu and DICOM."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from histo_monai.utils.storage.reading import check_regular, open_regular

_HEAD_BYTES = 2**16
"""Bytes read from a file's start: OpenSlide refuses longer key files of Hamamatsu."""

_HAMAMATSU = re.compile(rb"^\s*\[(Uncompressed )?Virtual Microscope Specimen\]", re.MULTILINE)
_DICOM_AT, _DICOM = 128, b"DICM"
_UID = rb"(?:UI[\x02-\x40]\0|[\x02-\x40]\0\0\0)"
"""Bytes before a UID in DICOM: its kind and length, or its length alone."""
_SERIES = re.compile(rb"\x20\0\x0d\0" + _UID + rb"[0-9.]+\0?\x20\0\x0e\0" + _UID + rb"([0-9.]+)")
"""The study's UID and the series' UID; they are adjacent at the top level only."""


def slide_files(path: Path) -> tuple[Path, ...]:
    """All files of a slide: the named file first, then the others, sorted by name.

    The others are: for an .mrxs, all files in the folder of its name; for Hamamatsu's .vms and .vmu, the files that it
    names; for a DICOM instance, the instances of its series in its folder. Missing files are skipped; the library
    that reads the slide reports them.

    Raises:
        InputFileError: A file is a folder, a pipe, a socket or a device. For DICOM this holds for every file in the
            folder, because OpenSlide opens all of them.
        OSError: The named file is missing, or a file is not readable.
    """
    with open_regular(path) as file:
        head = file.read(_HEAD_BYTES)
    if path.suffix.lower() == ".mrxs":
        beside = [found for found in path.with_suffix("").rglob("*") if not found.is_dir()]
    elif _HAMAMATSU.search(head):
        values = {line.partition(b"=")[2].strip() for line in head.splitlines()} - {b""}
        beside = [Path(f"{path.parent}/{os.fsdecode(value)}") for value in values if b"\0" not in value]
    elif _is_dicom(head):
        beside = _instances(path, _series(head))
    else:
        return (path,)
    there = {found for found in beside if _is_there(found)}
    for found in there:
        check_regular(found)
    return path, *sorted(there - {path})


def _is_there(path: Path) -> bool:
    """Whether the path exists, links followed; False for a name that is too long or a circular link."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _instances(path: Path, series: set[bytes]) -> list[Path]:
    """DICOM instances in the folder of the path: of these series, or all if `series` is empty."""
    found = []
    for other in path.parent.iterdir():
        if other.is_dir() or not _is_there(other):
            continue
        with contextlib.suppress(OSError), open_regular(other) as file:  # OpenSlide skips it, too.
            start = file.read(_DICOM_AT + len(_DICOM))
            if _is_dicom(start) and (not series or series & _series(start + file.read(_HEAD_BYTES))):
                found.append(other)
    return found


def _is_dicom(head: bytes) -> bool:
    return head[_DICOM_AT:].startswith(_DICOM)


def _series(head: bytes) -> set[bytes]:
    return set(_SERIES.findall(head))
