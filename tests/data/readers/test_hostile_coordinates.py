"""HDF5 that is no list of corners: types, attributes and sizes are looked at before anything is read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from histo_monai.data.readers.coordinates import MOST_PATCHES, read_patch_centers
from histo_monai.utils.errors import InputError

CORNERS_XY = np.array([(100, 200), (132, 200), (300, 40)])
LEVEL_2 = {"patch_size": 256, "patch_level": 2, "downsample": np.array([16.0, 16.0])}

Write = Callable[[h5py.File], object]


def corners(values: Any, about: dict[str, Any] | None = None, **settings: Any) -> Write:
    def write(file: h5py.File) -> None:
        file.create_dataset("coords", data=values, **settings)
        file["coords"].attrs.update({"patch_size": 64} if about is None else about)

    return write


def of_type(kind: Any) -> Write:
    """Three rows of two of a type that numpy may not have."""

    def write(file: h5py.File) -> None:
        if kind is h5py.h5t.OPAQUE:
            stored = h5py.h5t.create(h5py.h5t.OPAQUE, 2)
            stored.set_tag(b"x")
        else:
            stored = kind
        h5py.h5d.create(file.id, b"coords", stored, h5py.h5s.create_simple((3, 2)))
        file["coords"].attrs["patch_size"] = 64

    return write


def of_size(rows: int, **settings: Any) -> Write:
    """Rows that take no place in the file."""

    def write(file: h5py.File) -> None:
        file.create_dataset("coords", (rows, 2), dtype="i8", **settings).attrs["patch_size"] = 64

    return write


def one_row_in_a_chunk_of_4_gib(file: h5py.File) -> None:
    settings = {"maxshape": (None, 2), "chunks": (2**27, 2), "compression": "gzip"}
    dataset = file.create_dataset("coords", (1, 2), dtype="i8", **settings)
    dataset.attrs["patch_size"] = 64
    dataset.id.write_direct_chunk((0, 0), b"x" * 100)


def a_bomb_in_a_small_chunk(file: h5py.File) -> None:
    dataset = file.create_dataset("coords", (2, 2), dtype="i8", chunks=(2, 2), compression="gzip")
    dataset.attrs["patch_size"] = 64
    dataset.id.write_direct_chunk((0, 0), bytes(2**22))


def names_that_are_no_text(file: h5py.File) -> None:
    corners(CORNERS_XY, {"a": 1})(file)
    h5py.h5a.create(file["coords"].id, b"\xff\x1b[2J", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((1,)))


REFUSED: dict[str, tuple[Write, str]] = {
    "complex numbers": (corners(CORNERS_XY.astype(complex)), "no numbers"),
    "truth": (corners(CORNERS_XY > 100), "no numbers"),
    "text": (corners(CORNERS_XY.astype("S4")), "no numbers"),
    "pairs in one column": (corners(np.zeros(3, "i8,i8")), "two columns"),
    "records": (corners(np.zeros((3, 2), "i8,i8")), "no numbers"),
    "opaque bytes": (of_type(h5py.h5t.OPAQUE), "no numbers"),
    "times": (of_type(h5py.h5t.UNIX_D32LE), "no numbers"),
    "bits": (of_type(h5py.h5t.STD_B8LE), "no numbers"),
    "references": (of_type(h5py.h5t.STD_REF_OBJ), "no numbers"),
    "lists": (of_type(h5py.h5t.vlen_create(h5py.h5t.NATIVE_INT64)), "no numbers"),
    "nothing at all": (corners(h5py.Empty("f8")), "two columns"),
    "a group": (lambda file: file.create_group("coords"), "two columns"),
    "a type": (lambda file: file.__setitem__("coords", np.dtype("f8")), "two columns"),
    "a link to itself": (lambda file: file.__setitem__("coords", h5py.SoftLink("/coords")), "two columns"),
    "a link to a device": (
        lambda file: file.__setitem__("coords", h5py.ExternalLink("/dev/zero", "coords")),
        "names other files",
    ),
    "corners in a device": (of_size(3, external=[("/dev/zero", 0, 48)]), "names other files"),
    "2^29 rows that are not there": (of_size(2**29), "536870912 patches"),
    "2^50 rows that are not there": (of_size(2**50, chunks=(1024, 2)), "1125899906842624 patches"),
    "rows that were never written": (of_size(10), "never written"),
    "a chunk of 4 GiB for one row": (one_row_in_a_chunk_of_4_gib, "too much memory"),
    "a chunk of 32 bytes that unpacks from 4 MiB": (a_bomb_in_a_small_chunk, "too much memory"),
    "an infinite level": (corners(CORNERS_XY, LEVEL_2 | {"patch_level": np.inf}), "no side of a patch"),
    "level 1.5": (corners(CORNERS_XY, LEVEL_2 | {"patch_level": 1.5}), "no side of a patch"),
    "an empty level": (corners(CORNERS_XY, LEVEL_2 | {"patch_level": h5py.Empty("i8")}), "no side of a patch"),
    "no downsample": (corners(CORNERS_XY, LEVEL_2 | {"downsample": np.zeros(0)}), "no side of a patch"),
    "a million downsamples": (
        corners(CORNERS_XY, LEVEL_2 | {"downsample": np.ones(8000)}),
        "no side of a patch",
    ),
    "an empty side": (corners(CORNERS_XY, {"patch_size": h5py.Empty("f4")}), "no side of a patch"),
    "a complex side": (corners(CORNERS_XY, {"patch_size": 3 + 1j}), "no side of a patch"),
    "a side of text": (corners(CORNERS_XY, {"patch_size": "2_5"}), "no side of a patch"),
    "an infinite side": (corners(CORNERS_XY, {"patch_size_level0": np.inf}), "no side of a patch"),
    "a negative side": (corners(CORNERS_XY, {"patch_size_level0": -64}), "no side of a patch"),
    "two sides": (corners(CORNERS_XY, {"patch_size": [256, 128]}), "no side of a patch"),
    "attributes whose names are no text": (names_that_are_no_text, "no side of a patch"),
    "nan among corners": (corners(np.array([(1.0, 2), (np.nan, 3)])), "NaN or infinity"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_list_of_corners_is_one_line_with_the_name_of_the_file(case: str, tmp_path: Path) -> None:
    write, message = REFUSED[case]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        write(file)
    with pytest.raises(InputError, match=message) as caught:
        read_patch_centers(tmp_path / "a.h5")
    assert str(caught.value).startswith(str(tmp_path / "a.h5"))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


ACCEPTED: dict[str, Write] = {
    "unsigned": corners(CORNERS_XY.astype("u8")),
    "of the other byte order": corners(CORNERS_XY.astype(">i4")),
    "half floats": corners(CORNERS_XY.astype("f2")),
    "compressed, a row a chunk": corners(CORNERS_XY, compression="gzip", chunks=(1, 2)),
    "one column a chunk": corners(CORNERS_XY, chunks=(2, 1)),
    "a chunk larger than what it holds": corners(CORNERS_XY, chunks=(1024, 2), maxshape=(None, 2)),
    "a side in a list": corners(CORNERS_XY, {"patch_size": np.array([64.0])}),
    "beside other keys of TRIDENT": corners(
        CORNERS_XY, {"patch_size_level0": 64, "savetodir": "x", "name": h5py.Empty("f4")}
    ),
    "one downsample": corners(CORNERS_XY, {"patch_size": 16, "patch_level": 1, "downsample": 4.0}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_corners_are_read_however_they_are_stored(case: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        ACCEPTED[case](file)
    np.testing.assert_array_equal(read_patch_centers(tmp_path / "a.h5"), CORNERS_XY[:, ::-1] + 32)


def test_empty_rows_without_end_take_no_memory(tmp_path: Path) -> None:
    """A process that may have 1 GiB more than h5py takes; 2^29 rows would be 8 GiB, and 8 GiB more as floats."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        of_size(2**29, chunks=(1024, 2))(file)
    script = (
        "import resource, pathlib, sys\n"
        "from histo_monai.data.readers.coordinates import read_patch_centers\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize() + 2**30\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now, now))\n"
        "try:\n    read_patch_centers(pathlib.Path(sys.argv[1]))\n"
        "except ValueError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.h5")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{tmp_path / 'a.h5'}: coords has {2**29} patches")
    assert str(MOST_PATCHES) in line
