"""Features of a slide's tissue patches, and their HDF5 file (`data.features.store`).

| dataset | shape | |
|---|---|---|
| features, coords, patch_id | | `data.features.store`; a patch is named `<slide_id>-<row>-<column>` |
| cells | (n, 2), int64 | row and column of the patch's cell in the slide's grid; both have one center |
| tissue | (n,), float32 | tissue fraction of the cell, 0..1 |

Attributes of `coords` are TRIDENT's: `patch_size` (side of a patch, px), `patch_size_level0` (side in level-0 pixels),
`overlap`, `level0_width`, `level0_height`, `level0_magnification` and `target_magnification` (10 over µm/px), `name`;
CLAM's `patch_level` (0: `coords` count level-0 pixels); and `mpp`, `level0_mpp`, `stride_um`, `origin` ("canvas":
`coords` count from the canvas's corner, as in CLAM and TRIDENT), `level0_bounds_x` and `level0_bounds_y` (corner of the
slide's bounds, QuPath's origin). Attributes of `features` are `name`, `encoder`, `Provenance`, and `made_from`, JSON of
an `Origin`. `coords` are negative for a patch that begins outside the slide.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.features.store import (
    COORDS,
    FEATURES,
    PATCH_ID,
    Provenance,
    coordinates_sha256,
    dataset_of,
    mapped,
    patch_names,
    stored,
    write_columns,
)
from histo_monai.slides.annotations import CANVAS
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.hdf5 import open_hdf5
from histo_monai.utils.storage import parse_json
from histo_monai.wsi.heatmaps.origin import MADE_FROM, ORIGIN_SHAPE, Origin
from histo_monai.wsi.inference.encoding import Dataset, Encoding

_MAGNIFICATION_AT_1_UM = 10.0
"""Magnification times µm/px: 40x is 0.25 µm/px, 20x 0.5."""
ENCODER = "encoder"
"""Name of a job's only model, and of its digest in an origin."""


@dataclass(frozen=True)
class PatchFeatures:
    """Features of one patch around the center of each cell with tissue.

    Attributes:
        grid: Cell grid of the slide.
        cells: Shape (n, 2), int64, (row, column).
        tissue: Shape (n,), float32, tissue fraction of each cell, 0..1.
        features: Shape (n, D), float32.
        patch_px: Side of the encoder's input patch, px.
        mpp: Resolution of the patches, µm/px.
        further: Name of a dataset -> features of a view or an earlier stage, shape (n, D_k), float32.
    """

    grid: Grid
    cells: NDArray[np.int64]
    tissue: NDArray[np.float32]
    features: NDArray[np.float32]
    patch_px: int
    mpp: float
    further: Mapping[str, Dataset] = field(default_factory=dict)

    @property
    def side_level0(self) -> float:
        """Side of a patch in level-0 pixels."""
        return self.patch_px * self.mpp / self.grid.slide_mpp

    @property
    def corners_xy(self) -> NDArray[np.int64]:
        """Upper left corners, x and y in level-0 pixels, rounded; negative if a patch begins outside the slide."""
        corners = self.grid.centers_yx(self.cells) - self.side_level0 / 2
        return np.rint(corners[:, ::-1]).astype(np.int64)


def write_features(
    path: Path, found: PatchFeatures, *, encoder: str, origin: Origin, encoding: Encoding | None = None
) -> None:
    """Write the HDF5 file of a slide in one step; equal features give equal bytes.

    Args:
        path: <slide_id>.h5.
        encoder: Name of the encoder, for readers of the file.
        origin: Slide, encoder and settings.
        encoding: Settings of the features, and the stored precision; None for the defaults.

    Raises:
        InputError: A feature is too large for float16.
    """
    encoding = encoding or Encoding()
    coords = found.corners_xy
    names = patch_names([f"{path.stem}-{row}-{column}" for row, column in found.cells.tolist()])
    provenance = Provenance(
        origin.model_sha256.get(ENCODER, ""),
        origin.slide_sample_sha256,
        coordinates_sha256(coords, np.array([found.patch_px * found.mpp])),
        found.mpp,
        found.patch_px,
        encoding.depth,
        encoding.precision,
        encoding.code_sha256,
    )
    of_features = {
        "name": path.stem,
        "encoder": encoder,
        **asdict(provenance),
        MADE_FROM: json.dumps(origin.as_dict()),
    }
    columns: dict[str, tuple[NDArray[Any], Mapping[str, Any]]] = {
        FEATURES: (stored(path, found.features, encoding.precision), of_features),
        COORDS: (coords, _of_coords(path.stem, found)),
        PATCH_ID: (names, {}),
        "cells": (found.cells, {}),
        "tissue": (found.tissue, {}),
        **encoding.stored(path, found.further),
    }
    write_columns(path, columns)


def _of_coords(name: str, found: PatchFeatures) -> dict[str, Any]:
    """Attributes of `coords`."""
    grid = found.grid
    height, width = grid.size_yx
    return {
        "name": name,
        "patch_size": found.patch_px,
        "patch_level": 0,
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


class FeatureFile:
    """Open HDF5 file of a slide, read in parts.

    Args:
        path: File of `write_features`.

    Raises:
        InputError: The file is missing, damaged, or of another kind.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: not found. Fix: run the features stage, or histo-monai features.")
        self._file: Any = contextlib.nullcontext()
        try:
            self._file = open_hdf5(path)
            about = self._file["coords"].attrs
            self.num_patches, self.num_features = self._file["features"].shape
            self._about = {name: about[name].item() for name in _NEEDED}
            top, left = (int(about.get(name, 0)) for name in _BOUNDS)  # Earlier files have no bounds.
            self._bounds_yx = top, left
        except InputError:
            raise
        except (OSError, KeyError, ValueError, AttributeError) as error:
            what = " ".join(str(error).split())[:200]
            self.__exit__()
            raise InputError(
                f"{path}: not a features file of histo_monai ({what}). Fix: remove it and run again."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.__exit__(None, None, None)

    def features(self, view: str = "") -> NDArray[np.float32]:
        """Features of a view, shape (n, D); the empty view is the unaugmented patch."""
        return self._read(dataset_of(view)).astype(np.float32)

    @property
    def grid(self) -> Grid:
        """Cell grid of the slide."""
        about = self._about
        size = (int(about["level0_height"]), int(about["level0_width"]))
        return Grid(float(about["stride_um"]), float(about["level0_mpp"]), size, self._bounds_yx)

    def cells(self) -> NDArray[np.int64]:
        """Row and column of each patch's cell, shape (n, 2)."""
        return self._read("cells")

    def read(self) -> PatchFeatures:
        """The whole file."""
        about = self._about
        return PatchFeatures(
            self.grid,
            self.cells(),
            self._read("tissue"),
            self.features(),
            int(about["patch_size"]),
            float(about["mpp"]),
        )

    def made_from(self) -> Mapping[str, Any]:
        """Origin of the features (`Origin.as_dict`).

        Raises:
            InputError: The file states no origin.
        """
        text = self._file["features"].attrs.get(MADE_FROM)
        where = f"{self.path}: {MADE_FROM}"
        return parse_json(
            text if isinstance(text, str) else "", where, "remove it and run again", ORIGIN_SHAPE
        )

    def _read(self, name: str) -> NDArray[Any]:
        try:
            return mapped(self.path, self._file[name])
        except (OSError, KeyError) as error:
            raise InputError(
                f"{self.path}: {name} cannot be read ({error}). Fix: remove it and run again."
            ) from None


_BOUNDS = ("level0_bounds_y", "level0_bounds_x")
_NEEDED = ("stride_um", "level0_mpp", "level0_height", "level0_width", "patch_size", "mpp")


def read_made_from(path: Path) -> Mapping[str, Any] | None:
    """Origin of a features file; None if it is missing or unreadable."""
    try:
        with FeatureFile(path) as file:
            return file.made_from()
    except InputError:
        return None
