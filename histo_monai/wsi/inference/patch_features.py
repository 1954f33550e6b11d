"""Features of the tissue of one slide, patch by patch, and their HDF5 file (`data.features.store`).

| dataset | shape | |
|---|---|---|
| features, coords, patch_id | | `data.features.store`; a patch is named `<slide_id>-<row>-<column>` |
| cells | (n, 2), int64 | row and column of the cell of the slide's grid around whose middle the patch lies |
| tissue | (n,), float32 | fraction of the cell that is tissue, 0..1 |

Attributes of `coords` are TRIDENT's: `patch_size` (px of a patch), `patch_size_level0` (the same side in level-0
pixels), `overlap`, `level0_width`, `level0_height`, `level0_magnification` and `target_magnification` (10 over µm/px),
`name`; CLAM's `patch_level` (0, since `coords` count level-0 pixels); and `mpp`, `level0_mpp`, `stride_um`, `origin`
("canvas": `coords` count from its corner, as CLAM and TRIDENT do), `level0_bounds_x` and `level0_bounds_y` (corner of
the slide's bounds, which QuPath counts from). Those of `features`: `name`, `encoder`, `Provenance`, and `made_from`,
JSON of an `Origin`. `coords` lie below 0 where a patch begins outside of the slide.
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
"""Of an objective whose pixels are 1 µm: 40 x is 0.25 µm/px, 20 x 0.5."""
ENCODER = "encoder"
"""Name of the one model of a job, and of its digest in an origin."""


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
        """Upper left corners, x and y in level-0 pixels, rounded; below 0 where a patch begins outside of the slide."""
        corners = self.grid.centers_yx(self.cells) - self.side_level0 / 2
        return np.rint(corners[:, ::-1]).astype(np.int64)


def write_features(
    path: Path, found: PatchFeatures, *, encoder: str, origin: Origin, encoding: Encoding | None = None
) -> None:
    """Write the HDF5 of a slide, whole or not at all; equal features give equal bytes.

    Args:
        path: Called as the slide, `.h5`.
        encoder: Its name, for readers of the file.
        origin: What it was made from.
        encoding: How features were computed and in which precision they are stored; None for the defaults.

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
                f"{path}: no such file of features; run the features stage, or histo-monai features"
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

    def features(self, view: str = "") -> NDArray[np.float32]:
        """Shape (n, D), of a view; those of unaugmented patches where it is empty."""
        return self._read(dataset_of(view)).astype(np.float32)

    def read(self) -> PatchFeatures:
        """All of it."""
        about = self._about
        size = (int(about["level0_height"]), int(about["level0_width"]))
        return PatchFeatures(
            Grid(float(about["stride_um"]), float(about["level0_mpp"]), size, self._bounds_yx),
            self._read("cells"),
            self._read("tissue"),
            self.features(),
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
            return mapped(self.path, self._file[name])
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
