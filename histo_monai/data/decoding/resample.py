"""Regions of levels -> patches on a device: the mean over each pixel's area, as `slides.resample` does on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from histo_monai.slides.resample import Window
from histo_monai.utils.transfer import sent


def cropped(mosaics: torch.Tensor, offsets_yx: torch.Tensor, side_px: int) -> torch.Tensor:
    """A square of each mosaic.

    Args:
        mosaics: Shape (n, 3, H, W).
        offsets_yx: Corners, shape (n, 2), int64, on the CPU.

    Returns:
        Shape (n, 3, side_px, side_px).
    """
    if mosaics.shape[-2:] == (side_px, side_px):
        return mosaics
    num, device = len(mosaics), mosaics.device
    places = torch.arange(side_px, device=device) + sent(offsets_yx, device)[:, :, None]  # (n, 2, side)
    samples = torch.arange(num, device=device)[:, None, None, None]
    colors = torch.arange(3, device=device)[None, :, None, None]
    return mosaics[samples, colors, places[:, 0, None, :, None], places[:, 1, None, None, :]]


def patches_of(regions: torch.Tensor, windows: Sequence[Window]) -> torch.Tensor:
    """Patches of regions; every patch pixel is the mean over its area, rounded to the nearest level.

    Args:
        regions: Shape (n, 3, region_px, region_px), uint8.
        windows: Places of the fields in their regions; all of one size and scale.

    Returns:
        Shape (n, 3, side_px, side_px), uint8.
    """
    kind = windows[0]
    if kind.is_aligned and kind.reduction == 1:
        return regions
    if kind.is_aligned:
        return _rounded(torch.nn.functional.avg_pool2d(regions.float(), kind.reduction))
    starts = sent(torch.tensor([window.start_yx for window in windows], dtype=torch.float64), regions.device)
    rows, columns = (_shares(starts[:, axis], kind) for axis in (0, 1))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False  # Its 10 bits are too few for 255 levels.
    try:
        with torch.autocast(regions.device.type, enabled=False):
            return _rounded(rows[:, None] @ regions.float() @ columns[:, None].transpose(-1, -2))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _shares(starts: torch.Tensor, kind: Window) -> torch.Tensor:
    """Share of each region pixel in each patch pixel along an axis, shape (n, side_px, region_px); rows sum to 1."""
    edges = torch.arange(kind.side_px + 1, device=starts.device, dtype=torch.float64) * kind.scale
    low = (starts[:, None] + edges[:-1])[:, :, None]
    high = (starts[:, None] + edges[1:])[:, :, None]
    pixels = torch.arange(kind.region_px, device=starts.device, dtype=torch.float64)
    overlap = (torch.minimum(high, pixels + 1) - torch.maximum(low, pixels)).clamp_(min=0)
    return (overlap / kind.scale).float()


def _rounded(levels: torch.Tensor) -> torch.Tensor:
    return levels.add_(0.5).clamp_(0, 255).to(torch.uint8)
