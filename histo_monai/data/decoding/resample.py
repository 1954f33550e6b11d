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
    by_rows = _means(regions.float().transpose(-1, -2), starts[:, 0], kind)
    return _rounded(_means(by_rows.transpose(-1, -2), starts[:, 1], kind))


def _means(levels: torch.Tensor, starts: torch.Tensor, kind: Window) -> torch.Tensor:
    """Means over the pixels of patches along the last axis, by differences of sums up to their edges.

    Args:
        levels: Shape (n, 3, H, region_px), float32; sums of 2^16 px are exact to 1/128 level.
        starts: Where the fields begin, shape (n,), float64.

    Returns:
        Shape (n, 3, H, side_px), float32.
    """
    edges = (
        starts[:, None]
        + torch.arange(kind.side_px + 1, device=starts.device, dtype=torch.float64) * kind.scale
    )
    whole = edges.floor().clamp_(0, levels.shape[-1] - 1)
    beyond = (edges - whole).float()[:, None, None]
    places = whole.long()[:, None, None].expand(*levels.shape[:-1], -1)
    sums = torch.nn.functional.pad(levels.cumsum(-1), (1, 0))
    up_to = sums.gather(-1, places) + beyond * levels.gather(-1, places)
    return (up_to[..., 1:] - up_to[..., :-1]) / kind.scale


def _rounded(levels: torch.Tensor) -> torch.Tensor:
    return levels.add_(0.5).clamp_(0, 255).to(torch.uint8)
