"""The files that a slide is read from: one in most formats, several in those of MIRAX, Hamamatsu and DICOM."""

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
"""What stands before a UID in DICOM: its kind and length, or its length alone."""
_SERIES = re.compile(rb"\x20\0\x0d\0" + _UID + rb"[0-9.]+\0?\x20\0\x0e\0" + _UID + rb"([0-9.]+)")
"""The study's UID and the series' UID; they are adjacent at the top level only."""


def slide_files(path: Path) -> tuple[Path, ...]:
    """Files that a slide is read from: the named one first, then those that are read with it, by name.

    With an .mrxs comes all that lies in the folder of its name; with a .vms or .vmu, whatever their names, the files
    beside it that it names; with an instance of DICOM, the instances of its series beside it. A file that is missing is
    left to the library that reads the slide.

    Raises:
        InputFileError: One of them is a folder, a pipe, a socket or a device; with DICOM, anything in its folder is a
            pipe, a socket or a device, since OpenSlide opens it.
        OSError: The named one is missing, or one may not be read.
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
    """Whether there is something, links followed; a name that is too long or leads in a circle is none."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _instances(path: Path, series: set[bytes]) -> list[Path]:
    """Instances of the series in the folder of one of them; all instances where it states no series."""
    found = []
    for other in path.parent.iterdir():
        if other.is_dir() or not _is_there(other):
            continue
        with contextlib.suppress(OSError), open_regular(other) as file:  # OpenSlide passes over it, too
            start = file.read(_DICOM_AT + len(_DICOM))
            if _is_dicom(start) and (not series or series & _series(start + file.read(_HEAD_BYTES))):
                found.append(other)
    return found


def _is_dicom(head: bytes) -> bool:
    return head[_DICOM_AT:].startswith(_DICOM)


def _series(head: bytes) -> set[bytes]:
    return set(_SERIES.findall(head))
