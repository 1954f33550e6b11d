"""Features on disk: HDF5 as CLAM and TRIDENT read it, contiguous so that it is memory-mapped, with its provenance.

| dataset | shape | |
|---|---|---|
| features | (n, D), float16 or float32 | of each patch, unaugmented |
| features_<view> | (n, D), as `features` | of each patch in a view, such as `features_flip` |
| features_stage_<k>, features_stage_<k>_<view> | (n, D_k) | after an earlier stage of the encoder, if asked for |
| coords | (n, 2), int64 | upper left corner, x and y in level-0 pixels |
| patch_id | (n,), bytes | name of each patch, UTF-8 |

Further columns are the writer's own. `features` has `Provenance` as attributes; the others have their `view` and
`stage`.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError
from histo_monai.utils.files.hdf5 import open_hdf5
from histo_monai.utils.storage import whole_file

FEATURES, COORDS, PATCH_ID = "features", "coords", "patch_id"
StoredPrecision = Literal["float16", "float32"]
_ALIGNED_BYTES = 64
"""Alignment of a dataset's begin in the file, bytes."""


@dataclass(frozen=True)
class Provenance:
    """Inputs and settings of features, as attributes of the dataset `features`.

    Attributes:
        encoder_sha256: Digest of the encoder's file.
        slide_sha256: Digest of samples of the slide or of the images (`utils.storage.identity`).
        coordinates_sha256: Result of the function `coordinates_sha256`.
        mpp: µm/px of the patches; 0 if it is unknown or differs between patches.
        patch_px: Side of a patch, px.
        depth: Number of stages of the encoder; 0 for the whole encoder.
        stored_as: `float16` or `float32`.
        code_sha256: Digest of the code that computed the features; empty if not recorded.
    """

    encoder_sha256: str
    slide_sha256: str
    coordinates_sha256: str
    mpp: float
    patch_px: int
    depth: int
    stored_as: str
    code_sha256: str


@dataclass(frozen=True)
class StoredFeatures:
    """Features of a file; arrays are memory-mapped and read-only.

    Attributes:
        features: Shape (n, D), float16 or float32.
        coords: Shape (n, 2), int64.
        patch_id: Of each patch.
        provenance: Inputs and settings.
    """

    features: NDArray[Any]
    coords: NDArray[np.int64]
    patch_id: tuple[str, ...]
    provenance: Provenance


def coordinates_sha256(*columns: NDArray[Any]) -> str:
    """SHA-256 of columns of patches, their types and shapes: places, sides, names."""
    digest = hashlib.sha256()
    for column in columns:
        digest.update(f"{column.dtype.str}{column.shape}".encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def patch_names(names: Sequence[str]) -> NDArray[np.bytes_]:
    """Names of patches as the dataset `patch_id` stores them."""
    return np.array([name.encode() for name in names], dtype=np.bytes_) if names else np.empty(0, "S1")


_NAMES = {-1: "color", -2: "field"}
"""`models.settings.COLOR` and `FIELD`."""


def dataset_of(view: str, stage: int = 0) -> str:
    """Name of the dataset of a view after an earlier stage; the empty view is the unaugmented patch.

    Args:
        stage: number of stages; 0 for the encoder's own depth; -1 for color, -2 for the field around the patch.
    """
    part = _NAMES.get(stage, f"stage_{stage}")
    return "_".join([FEATURES, *([part] if stage else []), *([view] if view else [])])


def about_dataset(view: str, stage: int = 0) -> dict[str, Any]:
    """Attributes of a dataset beside `features`."""
    return {**({"stage": stage} if stage else {}), **({"view": view} if view else {})}


def stored(path: Path, features: NDArray[np.float32], precision: StoredPrecision) -> NDArray[Any]:
    """Features in the precision of the file.

    Raises:
        InputError: A value is too large for float16.
    """
    with np.errstate(over="ignore"):
        values = features.astype(precision)
    if not np.isfinite(values).all():
        raise InputError(
            f"{path}: a feature of {np.abs(features).max():g} exceeds the range of float16. "
            "Fix: set features.precision: float32."
        )
    return values


def write_columns(path: Path, columns: Mapping[str, tuple[NDArray[Any], Mapping[str, Any]]]) -> None:
    """Write an HDF5 file in one step; equal columns give equal bytes.

    Args:
        columns: Name of a dataset -> values and attributes.

    Raises:
        DiskFullError: The disk is full.
    """
    import h5py  # imported late: only code that writes HDF5 needs it

    # In memory, because HDF5 ends the process on a full disk; the bytes equal a file's.
    settings = {"driver": "core", "backing_store": False, "alignment_threshold": _ALIGNED_BYTES}
    with h5py.File(path.name, "w", alignment_interval=_ALIGNED_BYTES, **settings) as file:
        for name, (values, about) in columns.items():
            dataset = file.create_dataset(name, data=values)
            for key, value in about.items():
                dataset.attrs[key] = value
        file.flush()
        content = file.id.get_file_image()
    with whole_file(path, len(content)) as draft:
        draft.write_bytes(content)


def mapped(path: Path, dataset: Any) -> NDArray[Any]:
    """A dataset as a read-only memory map; a dataset in chunks, of another program, is read whole.

    Raises:
        OSError: The file is shorter than the dataset, or cannot be read.
    """
    offset = dataset.id.get_offset()
    if offset is None:  # empty, or in chunks
        return np.asarray(dataset[:])
    if path.stat().st_size < offset + dataset.nbytes:
        raise OSError("the file is cut short")
    return np.memmap(path, dataset.dtype, "r", offset, dataset.shape)


def read_features(path: Path, *, view: str = "", stage: int = 0, **expected: str | float) -> StoredFeatures:
    """Features of one file, memory-mapped.

    Args:
        path: Written with `Provenance`.
        view: Whose features; empty for unaugmented patches.
        stage: After how many stages; 0 for the encoder's own depth.
        expected: Fields of `Provenance` that the file must have, such as `encoder_sha256`.

    Raises:
        InputError: The file is missing or damaged, or of another encoder, slide or set of patches; names both.
    """
    unknown = expected.keys() - {field.name for field in dataclasses.fields(Provenance)}
    if unknown:
        raise ValueError(f"no field of Provenance: {', '.join(sorted(unknown))}")
    again = "Fix: remove it and run the features stage again."
    if not path.is_file():
        raise InputError(f"{path}: not found. Fix: run the features stage.")
    try:
        with open_hdf5(path) as file:
            about = file[FEATURES].attrs
            provenance = Provenance(
                **{
                    field.name: value.item() if isinstance(value := about[field.name], np.generic) else value
                    for field in dataclasses.fields(Provenance)
                }
            )
            for name, value in expected.items():
                recorded = getattr(provenance, name)
                if recorded != value:
                    raise InputError(f"{path}: {name} is {recorded}, expected {value}. {again}")
            name = dataset_of(view, stage)
            if name not in file and dataset_of("", stage) not in file:
                what = f"of {_NAMES[stage]}" if stage < 0 else f"after stage {stage}"
                raise InputError(f"{path}: no features {what}. Fix: name it in features.depth.")
            if name not in file:
                raise InputError(f"{path}: no view {view!r}. Fix: name it in features.views.")
            features, coords, names = (mapped(path, file[name]) for name in (name, COORDS, PATCH_ID))
            patch_ids = tuple(name.decode() for name in names.tolist())
    except (OSError, KeyError, UnicodeDecodeError) as error:
        what = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: not a features file of histo_monai ({what}). {again}") from None
    return StoredFeatures(features, coords, patch_ids, provenance)
