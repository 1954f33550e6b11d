"""Precision in which encoders compute: HISTO_MONAI_PRECISION, float32 or bfloat16."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from histo_monai.utils.errors import InputError

if TYPE_CHECKING:  # takes a second, which stages without a network spare
    import torch


def asked_precision() -> str:
    """HISTO_MONAI_PRECISION; empty where it is not set.

    Raises:
        InputError: there is no such precision.
    """
    asked = os.environ.get("HISTO_MONAI_PRECISION", "")
    if asked not in ("", "float32", "bfloat16"):
        raise InputError(f"HISTO_MONAI_PRECISION is {asked[:40]!r}; expected float32 or bfloat16")
    return asked


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether encoders compute in bfloat16 there, or in float32.

    Raises:
        InputError: see `asked_precision`.
    """
    return (asked_precision() or ("bfloat16" if device.type == "cuda" else "float32")) == "bfloat16"
