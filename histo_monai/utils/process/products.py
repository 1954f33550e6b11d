"""Matrix products without spurious warnings."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np


def product(a: Any, b: Any) -> Any:
    """`a @ b`, without NumPy's spurious warnings.

    Libraries below NumPy compute in whole vector registers. With AVX-512, unused lanes of a small matrix may raise the
    flag "invalid value", and NumPy warns about a correct product. This function warns only if a product of finite
    matrices is not finite.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        found = a @ b
    if isinstance(found, np.ndarray) and not _finite(found) and _finite(a) and _finite(b):
        warnings.warn("a product of matrices is too large for its type", RuntimeWarning, stacklevel=2)
    return found


def _finite(a: Any) -> bool:
    return bool(np.isfinite(a).all())
