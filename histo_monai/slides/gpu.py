"""Regions that lie on the GPU -> patches, in batched matrix products.

Written for CuPy arrays and for NumPy's alike (``xp``), so that the arithmetic is tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from histo_monai.errors import InputError
from histo_monai.products import product
from histo_monai.slides.resample import Window


def require_gpu(device: str) -> None:
    """Refuse a CUDA device where there is none; cuCIM itself would quietly decode on the CPU.

    Raises:
        InputError: If the device is no name cuCIM knows, or CuPy or a GPU is missing.
    """
    if device == "cpu":
        return
    if device.split(":")[0] != "cuda":
        raise InputError(f'device must be "cpu" or "cuda", got {device!r}')
    try:
        import cupy

        num_devices = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:
        raise InputError(
            f'device="{device}" needs CuPy and a CUDA GPU ({error}); use device="cpu"'
        ) from error
    if num_devices == 0:
        raise InputError(f'device="{device}" was asked for, but there is no CUDA GPU here; use device="cpu"')


def patches_by_area(regions: Any, windows: Sequence[Window], xp: Any = np) -> Any:
    """Patches of many regions of one size by exact area coverage.

    Args:
        regions: Shape (n, h, w, 3), uint8, of ``xp``.
        windows: How each field lies in its region; of one scale and side.
        xp: The array module, NumPy or CuPy.

    Returns:
        Shape (n, 3, side_px, side_px), uint8, of ``xp``.
    """
    side, scale = windows[0].side_px, windows[0].scale
    if windows[0].is_aligned and windows[0].reduction == 1:
        return xp.ascontiguousarray(regions.transpose(0, 3, 1, 2))
    num, height, width = regions.shape[:3]
    weights_y = _weights(xp.asarray([window.start_yx[0] for window in windows]), scale, side, height, xp)
    weights_x = _weights(xp.asarray([window.start_yx[1] for window in windows]), scale, side, width, xp)
    rows = product(weights_y, regions.reshape(num, height, width * 3).astype(xp.float32))
    planes = rows.reshape(num, side, width, 3).transpose(0, 3, 1, 2)
    mixed = product(planes, weights_x.transpose(0, 2, 1)[:, None])
    return xp.clip(xp.rint(mixed), 0, 255).astype(xp.uint8)


def _weights(starts: Any, scale: float, num_out: int, num_in: int, xp: Any) -> Any:
    """Dense overlaps of output with input pixels, shape (n, num_out, num_in), float32, rows that sum to 1."""
    lower = starts[:, None, None] + xp.arange(num_out)[:, None] * scale
    index = xp.arange(num_in)
    overlap = xp.minimum(lower + scale, index + 1) - xp.maximum(lower, index)
    return (xp.clip(overlap, 0, None) / scale).astype(xp.float32)
