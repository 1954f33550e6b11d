"""Products of matrices that warn of what is wrong with them, and of nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def product(a: Any, b: Any) -> Any:
    """`a @ b`, the same bytes, without the warnings that NumPy makes of flags that mean nothing.

    The libraries below NumPy compute in whole vector registers. On machines with AVX-512 the lanes that hold none of
    a small matrix may raise the flag "invalid value", and NumPy warns though the product is right. Here the numbers
    decide: a product that is not finite, of matrices that are, is warned of.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        found = a @ b
    if isinstance(found, np.ndarray) and not _finite(found) and _finite(a) and _finite(b):
        warnings.warn("a product of matrices is too large for its type", RuntimeWarning, stacklevel=2)
    return found


def _finite(a: Any) -> bool:
    return bool(np.isfinite(a).all())
