"""What an encoder sees in the tissue of one slide, patch by patch, and how it lies on disk: HDF5, as CLAM and TRIDENT.

| dataset | shape | |
|---|---|---|
| features | (n, D), float32 | of each patch |
| coords | (n, 2), int64 | its upper left corner, x and y in level-0 pixels, rounded |
| cells | (n, 2), int64 | row and column of the cell of the slide's grid that it lies in the middle of |
| tissue | (n,), float32 | part of the cell that is tissue, 0..1 |

Attributes of `coords` are TRIDENT's: `patch_size` (px that the encoder sees), `patch_size_level0` (the same side in
level-0 pixels), `overlap`, `level0_width`, `level0_height`, `level0_magnification` and `target_magnification` (10 over
µm/px), `name`; and `mpp`, `level0_mpp`, `stride_um`, `origin` ("canvas": `coords` count from its corner, as CLAM and
TRIDENT do), `level0_bounds_x` and `level0_bounds_y` (corner of the slide's bounds, which QuPath counts from). Those of
`features`: `name`, `encoder`, and `made_from`, JSON of an `Origin`. CLAM reads `features` and `coords`; what else there
is neither looks at.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from histo_monai.slides.annotations import CANVAS
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.hdf5 import open_hdf5
from histo_monai.utils.storage import parse_json, whole_file
from histo_monai.wsi.heatmaps.origin import MADE_FROM, ORIGIN_SHAPE, Origin

_MAGNIFICATION_AT_1_UM = 10.0
"""Of an objective whose pixels are 1 µm: 40 x is 0.25 µm/px, 20 x 0.5."""
_ROWS_OF_A_CHUNK = 1024


@dataclass(frozen=True)
class PatchFeatures:
    """Features of one patch around the middle of each cell that holds tissue.

    Attributes:
        grid: Where the cells lie.
        cells: Shape (n, 2), int64, (row, column).
        tissue: Shape (n,), float32, part of each cell that is tissue, 0..1.
        features: Shape (n, D), float32.
        patch_px: Side of a patch as the encoder sees it, px.
        mpp: Its resolution, µm/px.
    """

    grid: Grid
    cells: NDArray[np.int64]
    tissue: NDArray[np.float32]
    features: NDArray[np.float32]
    patch_px: int
    mpp: float

    @property
    def side_level0(self) -> float:
        """Side of a patch in level-0 pixels."""
        return self.patch_px * self.mpp / self.grid.slide_mpp

    @property
    def corners_xy(self) -> NDArray[np.int64]:
        """Upper left corners, x and y in level-0 pixels, rounded; below 0 where a patch begins outside of the slide."""
        corners = self.grid.centers_yx(self.cells) - self.side_level0 / 2
        return np.rint(corners[:, ::-1]).astype(np.int64)


def write_features(path: Path, found: PatchFeatures, *, encoder: str, origin: Origin) -> None:
    """Write the HDF5 of a slide, whole or not at all; equal features give equal bytes.

    Args:
        path: Called as the slide, `.h5`.
        encoder: Its name, for readers of the file.
        origin: What it was made from.
    """
    import h5py  # alone here: all else runs without it

    grid = found.grid
    height, width = grid.size_yx
    of_coords: dict[str, Any] = {
        "name": path.stem,
        "patch_size": found.patch_px,
        "patch_size_level0": round(found.side_level0),
        "overlap": max(0, round(found.patch_px - grid.stride_um / found.mpp)),
        "level0_width": width,
        "level0_height": height,
        "level0_magnification": round(_MAGNIFICATION_AT_1_UM / grid.slide_mpp, 3),
        "target_magnification": round(_MAGNIFICATION_AT_1_UM / found.mpp, 3),
        "mpp": found.mpp,
        "level0_mpp": grid.slide_mpp,
        "stride_um": grid.stride_um,
        "origin": CANVAS,
        **dict(zip(_BOUNDS, grid.bounds_yx, strict=True)),
    }
    of_features = {"name": path.stem, "encoder": encoder, MADE_FROM: json.dumps(origin.as_dict())}
    columns: dict[str, tuple[NDArray[Any], dict[str, Any]]] = {
        "features": (found.features, of_features),
        "coords": (found.corners_xy, of_coords),
        "cells": (found.cells, {}),
        "tissue": (found.tissue, {}),
    }
    # In memory, since HDF5 ends the process where a disk has no room; the bytes are those of a file.
    with h5py.File(path.name, "w", driver="core", backing_store=False) as file:
        for name, (values, about) in columns.items():
            chunks = (min(len(values), _ROWS_OF_A_CHUNK), *values.shape[1:]) if len(values) else None
            dataset = file.create_dataset(name, data=values, chunks=chunks)
            for key, value in about.items():
                dataset.attrs[key] = value
        file.flush()
        content = file.id.get_file_image()
    with whole_file(path, len(content)) as draft:
        draft.write_bytes(content)


class FeatureFile:
    """The HDF5 of a slide, read in parts.

    Args:
        path: Written by `write_features`.

    Raises:
        InputError: It is missing, damaged, or another kind of file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        if not path.is_file():
            raise InputError(
                f"{path}: no such file of features; run the embed stage, or histo-monai features"
            )
        self._file: Any = contextlib.nullcontext()
        try:
            self._file = open_hdf5(path)
            about = self._file["coords"].attrs
            self.num_patches, self.num_features = self._file["features"].shape
            self._about = {name: about[name].item() for name in _NEEDED}
            top, left = (int(about.get(name, 0)) for name in _BOUNDS)  # earlier files have none
            self._bounds_yx = top, left
        except InputError:
            raise
        except (OSError, KeyError, ValueError, AttributeError) as error:
            what = " ".join(str(error).split())[:200]
            self.__exit__()
            raise InputError(
                f"{path}: no features as histo_monai writes them ({what}); remove it and run again"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def features(self) -> NDArray[np.float32]:
        """Shape (n, D)."""
        return self._read("features")

    def read(self) -> PatchFeatures:
        """All of it."""
        about = self._about
        size = (int(about["level0_height"]), int(about["level0_width"]))
        return PatchFeatures(
            Grid(float(about["stride_um"]), float(about["level0_mpp"]), size, self._bounds_yx),
            self._read("cells"),
            self._read("tissue"),
            self._read("features"),
            int(about["patch_size"]),
            float(about["mpp"]),
        )

    def made_from(self) -> Mapping[str, Any]:
        """`Origin.as_dict` of what it was made from.

        Raises:
            InputError: It does not state it.
        """
        text = self._file["features"].attrs.get(MADE_FROM)
        where = f"{self.path}: {MADE_FROM}"
        return parse_json(
            text if isinstance(text, str) else "", where, "remove it and run again", ORIGIN_SHAPE
        )

    def _read(self, name: str) -> NDArray[Any]:
        try:
            return self._file[name][:]
        except (OSError, KeyError) as error:
            raise InputError(
                f"{self.path}: {name} cannot be read ({error}); remove it and run again"
            ) from None


_BOUNDS = ("level0_bounds_y", "level0_bounds_x")
_NEEDED = ("stride_um", "level0_mpp", "level0_height", "level0_width", "patch_size", "mpp")


def read_made_from(path: Path) -> Mapping[str, Any] | None:
    """What a file of features was made from; None where there is none that can be read."""
    try:
        with FeatureFile(path) as file:
            return file.made_from()
    except InputError:
        return None
