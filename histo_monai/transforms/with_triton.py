"""Execution of an augmentation on a GPU, with one kernel per step for all images.

Launching hundreds of small kernels takes longer than running them; this module launches a dozen.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.transforms import geometry
from histo_monai.transforms.operations.base import Photometric
from histo_monai.transforms.operations.blur import Blur
from histo_monai.transforms.operations.brightness_contrast import BrightnessContrast
from histo_monai.transforms.operations.hed import Hed
from histo_monai.transforms.operations.hue_saturation import HueSaturation
from histo_monai.transforms.operations.noise import Noise
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.utils.transfer import sent

_log = logging.getLogger(__name__)

KINDS: tuple[type[Photometric], ...] = (Noise, HueSaturation, BrightnessContrast, Blur, Hed)
"""Operations of the kernels; others run in `with_torch`."""
NOTHING, COPY, FIRST_KIND = 0, 1, 2
"""Codes of an image's step: an operation is its index in `KINDS` plus `FIRST_KIND`."""
READS_VIEWS, WRITES_VIEWS = 1, 2
"""Flags for the buffer of an image's pixels: `views`, or else the warped images."""
LEVEL, FIRST_STEP = 9, 10
"""Columns of a table row: the matrix, the level, two columns per step, and the operations' parameters."""
_TILE, _TILE_OF_MEANS = 1024, 4096


def does(sampled: ViewParameters, device: torch.device) -> bool:
    """Whether the kernels can execute these parameters.

    Args:
        sampled: Its operations must be of `KINDS`, each once.
        device: A GPU of NVIDIA or AMD, with triton installed.
    """
    kinds = [type(operation) for operation in sampled.operations]
    are_known = set(kinds) <= set(KINDS) and len(set(kinds)) == len(kinds)
    return device.type == "cuda" and are_known and _can_build()


def augment(
    patches: torch.Tensor, sampled: ViewParameters, noise_pool: torch.Tensor, size_px: int
) -> torch.Tensor:
    """Views of all patches, as `with_torch.augment` computes them; requires `does`."""
    from histo_monai.transforms import kernels

    num, device = len(patches), patches.device
    matrices = sampled.matrices.flatten(0, 1)
    levels = geometry.pooling_levels(matrices, patches.shape[-1], size_px)
    codes, places = (numbers.repeat(sampled.matrices.shape[1], axis=0) for numbers in plan(sampled))
    num_steps = codes.shape[1]
    sampled_columns = {
        type(one): part.flatten(0, 1)
        for one, part in zip(sampled.operations, sampled.parameters, strict=True)
    }
    whole_numbers = (levels[:, None], torch.from_numpy(codes), torch.from_numpy(places))
    parts = [matrices.flatten(1), *whole_numbers, *sampled_columns.values()]
    # One transfer for all numbers; nothing below waits for the device.
    table = sent(torch.cat(parts, dim=1).to(torch.float32), device)
    starts = dict(
        zip(sampled_columns, np.cumsum([part.shape[1] for part in parts])[3:].tolist(), strict=False)
    )

    warped = _warped(patches, table, levels.tolist(), size_px)
    if num_steps == 0:
        return warped
    views, grays = torch.empty_like(warped), torch.empty(num, dtype=torch.float32, device=device)
    buffers = (warped, views, table, grays)
    normals = sent(noise_pool, device)
    columns = [starts.get(kind, 0) for kind in KINDS]
    radius = sampled_columns[Blur].shape[1] - 1 if Blur in sampled_columns else 0
    contrast = FIRST_KIND + KINDS.index(BrightnessContrast)
    with torch.cuda.device_of(patches):
        for step in range(num_steps):
            of_step = (step, num_steps, table.shape[1])
            if (codes[:, step] == contrast).any():
                kernels.gray_means[(num,)](
                    *buffers, *of_step, starts[BrightnessContrast], SIZE=size_px, TILE=_TILE_OF_MEANS
                )
            kernels.change[_tiles(num, size_px)](
                *buffers, normals, *of_step, *columns, RADIUS=radius, SIZE=size_px, TILE=_TILE
            )
    return views


@cache
def _can_build() -> bool:
    """Whether triton and its C compiler are installed; logs a warning if not."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    if importlib.util.find_spec("triton") is None:
        lacks = "triton"
    elif not any(name and shutil.which(name) for name in compilers):
        lacks = "a C compiler"
    else:
        return True
    _log.warning("augmentation: %s is not installed; views on this GPU take several times as long", lacks)
    return False


def plan(sampled: ViewParameters) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Codes of each sample's steps, and flags of the buffers.

    All operations work in place except the blur, which reads neighboring pixels. Until the blur, pixels stay in the
    warped buffer; the blur, or without it the first step, writes them to the views.

    Returns:
        `NOTHING`, `COPY` or the code of a kind; and `READS_VIEWS` and `WRITES_VIEWS`; each of shape (N, steps).
    """
    # The last entry is for UNUSED, -1.
    codes = np.array([*(FIRST_KIND + KINDS.index(type(one)) for one in sampled.operations), NOTHING])[
        sampled.schedule
    ]
    codes = codes[:, (codes != NOTHING).any(axis=0)]
    if codes.shape[1]:
        codes[(codes == NOTHING).all(axis=1), 0] = COPY
    is_blur = codes == FIRST_KIND + KINDS.index(Blur)
    arrives = is_blur.copy()
    arrives[~is_blur.any(axis=1), :1] = True
    has_arrived = arrives.cumsum(axis=1)
    return codes, READS_VIEWS * (has_arrived - arrives) + WRITES_VIEWS * has_arrived


def _warped(patches: torch.Tensor, table: torch.Tensor, levels: list[int], size_px: int) -> torch.Tensor:
    """`geometry.warp`, by its kernel if the images halve evenly."""
    from histo_monai.transforms import kernels

    num, side = len(patches), patches.shape[-1]
    if side % (1 << max(levels, default=0)):
        return geometry.warp(patches, table[:, :LEVEL].unflatten(1, (3, 3)), size_px, levels)
    warped = torch.empty((num, 3, size_px, size_px), dtype=torch.float32, device=patches.device)
    with torch.cuda.device_of(patches):
        kernels.warp[_tiles(num, size_px)](
            patches.contiguous(), table, warped, table.shape[1], SIDE=side, SIZE=size_px, TILE=_TILE
        )
    return warped


def _tiles(num: int, size_px: int) -> tuple[int, int]:
    return num, -(-(size_px**2) // _TILE)
