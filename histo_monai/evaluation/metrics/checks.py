"""Checks of metric inputs; errors name the row."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SUM_TOLERANCE = 1e-3


def column(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Array of one finite number per row, shape (N,).

    Raises:
        ValueError: the shape is another, there is no row, or a value is NaN or infinite.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name} takes one number per row and at least one row, got shape {array.shape}")
    _finite(name, array)
    return array


def table(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Array of finite numbers, shape (N, K).

    Raises:
        ValueError: the shape is another, or a value is NaN or infinite.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} takes a table (rows, columns), got shape {array.shape}")
    _finite(name, array)
    return array


def same_length(**arrays: NDArray) -> None:
    """Raise a ValueError for arrays of different lengths."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"the same rows are expected in all columns, got {listed}")


def groups(ids: ArrayLike, num_rows: int) -> NDArray[np.int64]:
    """Number of the patient or slide of each row, shape (N,), 0..G-1.

    Args:
        ids: Shape (N,), any kind of id.

    Raises:
        ValueError: the shape is another, or an id is missing.
    """
    array = np.asarray(ids)
    if array.shape != (num_rows,):
        raise ValueError(f"groups have shape {array.shape}: expected one for each of {num_rows} rows")
    missing = np.flatnonzero([name is None or name != name or name == "" for name in array.tolist()])
    if len(missing):
        raise ValueError(f"groups row {missing[0]} is missing: expected the patient or slide of every row")
    return np.unique(array.astype(str) if array.dtype == object else array, return_inverse=True)[1]


def binary(labels: ArrayLike) -> NDArray[np.bool_]:
    """Mask of the positive rows, from labels 0 and 1, shape (N,).

    Raises:
        ValueError: a label is neither, or a class is absent.
    """
    array = column("labels", labels)
    other = np.flatnonzero((array != 0) & (array != 1))
    if len(other):
        raise ValueError(f"labels row {other[0]} is {array[other[0]]:g}: expected 0 or 1")
    if array.min() == array.max():
        raise ValueError(f"labels are all {array[0]:g}: an AUC needs rows of both classes")
    return array == 1


def classes_and_probabilities(
    labels: ArrayLike, probabilities: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Labels (N,), int, 0..K-1, and probabilities (N, K), each row summing to 1.

    Raises:
        ValueError: a label is no class index, or a row is not probabilities.
    """
    as_floats, rows = column("labels", labels), table("probabilities", probabilities)
    same_length(labels=as_floats, probabilities=rows)
    num_classes = rows.shape[1]
    if num_classes < 2:
        raise ValueError("probabilities have one column: expected one for each of at least two classes")
    bad = np.flatnonzero((as_floats != np.floor(as_floats)) | (as_floats < 0) | (as_floats >= num_classes))
    if len(bad):
        raise ValueError(
            f"labels row {bad[0]} is {as_floats[bad[0]]:g}: expected a class 0..{num_classes - 1}"
        )
    bad = np.flatnonzero((rows.min(axis=1) < 0) | (np.abs(rows.sum(axis=1) - 1) > _SUM_TOLERANCE))
    if len(bad):
        raise ValueError(
            f"probabilities row {bad[0]} is {rows[bad[0]].tolist()}: expected 0..1, summing to 1"
        )
    return as_floats.astype(np.int64), rows


def _finite(name: str, array: NDArray[np.float64]) -> None:
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise ValueError(f"{name} row {bad[0][0]} is {array[tuple(bad[0])]}: expected a finite number")
