"""Opens a user's HDF5 file: a regular file that refers to no other file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histo_monai.utils.errors import InputError
from histo_monai.utils.storage import check_regular


def open_hdf5(path: Path) -> Any:
    """The open `h5py.File`, for reading.

    Without this check, HDF5 opens whatever a link or dataset names, even a pipe or a file of another folder.

    Raises:
        InputError: The path is no regular file, or the file names other files.
        OSError: The file is missing, or no HDF5.
    """
    import h5py  # imported late: only code that reads HDF5 needs it

    check_regular(path)
    file = h5py.File(path, "r")

    def names_files(_: str, thing: Any) -> bool | None:
        is_named = isinstance(thing, h5py.Dataset) and bool(thing.external or thing.is_virtual)
        return isinstance(thing, h5py.ExternalLink) or is_named or None

    try:
        is_odd = file.visititems_links(names_files) or file.visititems(names_files)
    except (RuntimeError, KeyError) as error:  # h5py raises these for a damaged file
        file.close()
        raise OSError(str(error)) from None
    if is_odd:
        file.close()
        raise InputError(
            f"{path}: names other files, which are not read. Fix: save it as one file (h5repack)."
        )
    return file
