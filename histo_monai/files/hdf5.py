"""One way to open an HDF5 file of a user: regular, and whole in itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from histo_monai.errors import InputError
from histo_monai.storage import check_regular


def open_hdf5(path: Path) -> Any:
    """The `h5py.File`, opened to be read.

    HDF5 opens by itself what a link or a dataset names, be it a pipe or a file of another folder.

    Raises:
        InputError: It is no regular file, or names other files.
        OSError: It is missing, or no HDF5.
    """
    import h5py  # alone where such files are read: all else runs without it

    check_regular(path)
    file = h5py.File(path, "r")

    def names_files(_: str, thing: Any) -> bool | None:
        is_named = isinstance(thing, h5py.Dataset) and bool(thing.external or thing.is_virtual)
        return isinstance(thing, h5py.ExternalLink) or is_named or None

    try:
        is_odd = file.visititems_links(names_files) or file.visititems(names_files)
    except (RuntimeError, KeyError) as error:  # of a damaged file
        file.close()
        raise OSError(str(error)) from None
    if is_odd:
        file.close()
        raise InputError(f"{path}: names other files, which are not read; save it as one file (h5repack)")
    return file
