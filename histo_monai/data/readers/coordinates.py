"""Patch coordinates in the HDF5 format of CLAM and TRIDENT: a dataset `coords`."""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations.content import short
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.hdf5 import open_hdf5

DATASET = "coords"

MOST_PATCHES = 2**24
"""Above any slide's number: 200,000 px by 200,000 px hold 9 million patches of 64 px."""
_MOST_CHUNK_BYTES = 2**28
_MOST_SIDE_PX = 2**20
_SLACK_BYTES = 2**20


def read_patch_centers(path: Path) -> NDArray[np.float64]:
    """Centers of patches, shape (n, 2), float64, (y, x) in level-0 pixels.

    `coords` (n, 2) holds upper left corners, x and y in level-0 pixels. Its attributes state the side: TRIDENT's
    `patch_size_level0`; or CLAM's `patch_size`, in pixels of `patch_level`, which is `downsample` times coarser.

    Raises:
        InputError: The file has another format, states no side, holds no patch or more than `MOST_PATCHES`, or links to
            another file. These checks precede reading the corners.
    """
    try:
        with open_hdf5(path) as file:
            coords = _dataset(path, file)
            side = _side(path, coords.attrs)
            corners = np.asarray(coords[:], np.float64)
    except InputError:
        raise
    except (OSError, RuntimeError, KeyError) as error:  # h5py raises these if HDF5 fails.
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path}: cannot be read as HDF5 ({why}). Fix: copy it again or remove it."
        ) from None
    if not np.isfinite(corners).all():
        raise InputError(f"{path}: {DATASET} holds NaN or infinity. Fix: write the file again.")
    return corners[:, ::-1] + side / 2


def _dataset(path: Path, file: h5py.File) -> h5py.Dataset:
    """`coords`, after checks of its type, shape and size in bytes."""
    link = file.get(DATASET, getlink=True)
    coords = file[DATASET] if isinstance(link, h5py.HardLink) else None
    if not isinstance(coords, h5py.Dataset) or coords.shape is None or coords.shape[1:] != (2,):
        raise InputError(
            f"{path}: has no dataset {DATASET} of two columns, x and y. Fix: write it with CLAM or TRIDENT."
        )
    if not _holds_numbers(coords.id):
        raise InputError(f"{path}: {DATASET} holds no numbers. Fix: write it as integers.")
    num = len(coords)
    if num == 0:
        raise InputError(f"{path}: {DATASET} holds no patch. Fix: write the file again or remove it.")
    if num > MOST_PATCHES:
        raise InputError(
            f"{path}: {DATASET} has {num} patches; a slide has at most {MOST_PATCHES}. Fix: write the file again."
        )
    chunk = coords.chunks or coords.shape
    num_bytes = math.prod(chunk) * coords.id.get_type().get_size()
    num_chunks = math.prod(-(-have // size) for have, size in zip(coords.shape, chunk, strict=True))
    stored = coords.id.get_storage_size()
    if stored == 0:
        raise InputError(f"{path}: {DATASET} was never written. Fix: write the file again or remove it.")
    if num_bytes > _MOST_CHUNK_BYTES or stored > 2 * num_bytes * num_chunks + _SLACK_BYTES:
        raise InputError(
            f"{path}: the chunks of {DATASET} need too much memory. Fix: write it in chunks of 1024 rows."
        )
    return coords


def _side(path: Path, attributes: h5py.AttributeManager) -> float:
    """Side of a patch, level-0 pixels."""
    side = _number(attributes, "patch_size_level0")
    if "patch_size_level0" not in attributes:
        side = _number(attributes, "patch_size")
        level = _number(attributes, "patch_level") if "patch_level" in attributes else 0.0
        if level != 0:
            side *= _number(attributes, "downsample") if level % 1 == 0 else math.nan
    if not 0 < side < _MOST_SIDE_PX:
        names = short(sorted(map(str, attributes))) if attributes else "none"
        raise InputError(
            f"{path}: the attributes of {DATASET} ({names}) state no side of a patch. Fix: write patch_size_level0 "
            "(TRIDENT), or patch_size, patch_level and downsample (CLAM)."
        )
    return side


def _number(attributes: h5py.AttributeManager, name: str) -> float:
    """Number in an attribute (the first of CLAM's two in `downsample`); NaN if there is none."""
    if name not in attributes:
        return math.nan
    about = attributes.get_id(name)
    num = about.get_space().get_simple_extent_npoints()
    if not _holds_numbers(about) or num not in ((1, 2) if name == "downsample" else (1,)):
        return math.nan
    return float(np.ravel(attributes[name])[0])


def _holds_numbers(stored: h5py.h5d.DatasetID | h5py.h5a.AttrID) -> bool:
    """Whether a dataset or attribute holds integers or real numbers."""
    return stored.get_type().get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT)
