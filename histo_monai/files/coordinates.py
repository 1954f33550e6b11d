"""Where patches lie, as CLAM and TRIDENT write it: HDF5 with a dataset `coords`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from histo_monai.errors import InputError
from histo_monai.files.hdf5 import open_hdf5

DATASET = "coords"


def read_patch_centers(path: Path) -> NDArray[np.float64]:
    """Middles of patches.

    `coords` (n, 2) holds upper left corners, x and y in level-0 pixels. Its attributes tell the side: TRIDENT's
    `patch_size_level0`; or CLAM's `patch_size`, in pixels of `patch_level`, which is `downsample` times coarser.

    Returns:
        Shape (n, 2), float64, (y, x) in level-0 pixels.

    Raises:
        InputError: it is no such file, tells no side, or holds no patch; names it.
    """
    try:
        with open_hdf5(path) as file:
            coords = file.get(DATASET)
            if not isinstance(coords, h5py.Dataset) or coords.ndim != 2 or coords.shape[1] != 2:
                raise InputError(f"{path}: has no dataset {DATASET} of two columns, x and y")
            side = _side(path, dict(coords.attrs))
            corners = np.asarray(coords[:], np.float64)
    except OSError as error:
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: cannot be read as HDF5 ({why}); copy it again, or take it away") from None
    if not len(corners) or not np.isfinite(corners).all():
        raise InputError(f"{path}: {DATASET} holds {'no patch' if not len(corners) else 'what is no number'}")
    return corners[:, ::-1] + side / 2


def _side(path: Path, told: dict[str, Any]) -> float:
    """Of a patch, level-0 pixels."""
    try:
        if "patch_size_level0" in told:
            side = float(told["patch_size_level0"])
        elif int(told.get("patch_level", 0)) == 0:
            side = float(told["patch_size"])
        else:
            side = float(told["patch_size"]) * float(np.ravel(told["downsample"])[0])
    except (KeyError, TypeError, ValueError):
        side = 0.0
    if not 0 < side < 2**20:
        raise InputError(
            f"{path}: the attributes of {DATASET} do not tell the side of a patch (TRIDENT: patch_size_level0; CLAM: "
            f"patch_size, patch_level, downsample); they are {sorted(told) or 'none'}"
        )
    return side
