"""Precision of the encoders: HISTO_MONAI_PRECISION, float32 or bfloat16."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from histo_monai.utils.errors import InputError

if TYPE_CHECKING:  # The import takes a second, which stages without a network save.
    import torch


def asked_precision() -> str:
    """HISTO_MONAI_PRECISION; empty if not set.

    Raises:
        InputError: The precision is unknown.
    """
    asked = os.environ.get("HISTO_MONAI_PRECISION", "")
    if asked not in ("", "float32", "bfloat16"):
        raise InputError(f"HISTO_MONAI_PRECISION: {asked[:40]!r} is unknown. Fix: set float32 or bfloat16.")
    return asked


def computes_in_bfloat16(device: torch.device) -> bool:
    """Whether encoders compute in bfloat16 on a device, by HISTO_MONAI_PRECISION or the device's default."""
    return (asked_precision() or ("bfloat16" if device.type == "cuda" else "float32")) == "bfloat16"
