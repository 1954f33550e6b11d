"""Affine geometry of views: matrices are multiplied first, so pixels are resampled once.

A matrix maps **output** coordinates to **input** coordinates (what a sampler needs), homogeneous and
normalized: ``(x, y, 1)`` with x, y from -1 (left, top edge of the image) to +1 (right, bottom edge),
whatever the size in pixels. "First a, then b" is therefore ``a @ b``. All matrices suppose square images.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from histo_monai.utils.transfer import sent


def rotation_matrix(degrees: torch.Tensor) -> torch.Tensor:
    """Matrices that rotate a picture counter-clockwise about its center.

    Args:
        degrees: Angles, shape (...).

    Returns:
        Shape (..., 3, 3), dtype of `degrees`.
    """
    radians = torch.deg2rad(degrees)
    cos, sin, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    return _matrix(cos, -sin, zero, sin, cos, zero)


def scale_matrix(factors: torch.Tensor) -> torch.Tensor:
    """Matrices that enlarge a picture about its center: 2 shows the central half at twice the size, 0.5 shrinks it.

    Args:
        factors: Positive, shape (...).

    Returns:
        Shape (..., 3, 3), dtype of `factors`.
    """
    inverse, zero = 1 / factors, torch.zeros_like(factors)
    return _matrix(inverse, zero, zero, zero, inverse, zero)


def shift_matrix(fractions_yx: torch.Tensor) -> torch.Tensor:
    """Matrices that move a picture down and to the right.

    Args:
        fractions_yx: Fractions of the side, shape (..., 2).

    Returns:
        Shape (..., 3, 3), dtype of `fractions_yx`.
    """
    shift_y, shift_x = fractions_yx.unbind(-1)
    one, zero = torch.ones_like(shift_x), torch.zeros_like(shift_x)
    return _matrix(one, zero, -2 * shift_x, zero, one, -2 * shift_y)


def flip_matrix(flipped: torch.Tensor, *, vertical: bool = False) -> torch.Tensor:
    """Matrices that mirror a picture left to right, or top to bottom.

    Args:
        flipped: Where to mirror, bool, shape (...).
        vertical: Top to bottom instead of left to right.

    Returns:
        Shape (..., 3, 3), float64.
    """
    sign = 1.0 - 2.0 * flipped.to(torch.float64)
    one, zero = torch.ones_like(sign), torch.zeros_like(sign)
    return (
        _matrix(one, zero, zero, zero, sign, zero) if vertical else _matrix(sign, zero, zero, zero, one, zero)
    )


def crop_matrix(sides_yx: torch.Tensor, positions_yx: torch.Tensor) -> torch.Tensor:
    """Matrices that cut out a box and stretch it to the whole picture.

    Args:
        sides_yx: Sides of the box as fractions of the image's, in (0, 1], shape (..., 2).
        positions_yx: Position of the box: 0 at the top or left edge, 1 at the bottom or right, shape (..., 2).

    Returns:
        Shape (..., 3, 3), dtype of `sides_yx`.
    """
    side_y, side_x = sides_yx.unbind(-1)
    center_y, center_x = ((2 * positions_yx - 1) * (1 - sides_yx)).unbind(-1)
    zero = torch.zeros_like(side_x)
    return _matrix(side_x, zero, center_x, zero, side_y, center_y)


def crop_sides(areas: torch.Tensor, stretches: torch.Tensor, max_ratio: float = 4 / 3) -> torch.Tensor:
    """Sides of boxes of a given area that fit into the image, with an aspect ratio up to `max_ratio`.

    Args:
        areas: Fractions of the image's area, in (0, 1], shape (...).
        stretches: From -1 (the tallest valid box) over 0 (a square) to 1 (the widest), shape (...).
        max_ratio: Largest ratio of the longer to the shorter side.

    Returns:
        Fractions of the image's sides, shape (..., 2), yx.
    """
    # A box of area a and ratio r is sqrt(a r) wide: it fits as long as a <= r <= 1 / a.
    log_ratio = stretches * torch.clamp(-areas.log(), max=math.log(max_ratio))
    return torch.stack(
        [(areas * torch.exp(-log_ratio)).sqrt(), (areas * torch.exp(log_ratio)).sqrt()], dim=-1
    )


def compose(matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    """The product of matrices, shape (..., 3, 3), for transforms in order; at least one matrix."""
    product = matrices[0]
    for matrix in matrices[1:]:
        product = product @ matrix
    return product


def pooling_levels(matrices: torch.Tensor, size_in_px: int, size_out_px: int) -> torch.Tensor:
    """Number of halvings before `warp` samples an image: the rounded log2 of the minification.

    Bilinear sampling skips pixels of a shrinking image, which turns fine chromatin into false texture. Averages over
    2 × 2, 4 × 4, ... pixels leave at most a factor sqrt(2) to the sampler, and make an exact halving the mean over
    2 × 2 pixels.

    Args:
        matrices: Shape (N, 3, 3).
        size_in_px: Side of the source images.
        size_out_px: Side of the result.

    Returns:
        Shape (N,), int64, on the device of `matrices`.
    """
    input_px_per_output_px = torch.linalg.det(matrices[..., :2, :2]).abs().sqrt() * size_in_px / size_out_px
    most = int(math.log2(size_in_px))
    return input_px_per_output_px.clamp_min(1e-6).log2().round().clamp(0, most).to(torch.int64)


def halve(images: torch.Tensor) -> torch.Tensor:
    """Means over 2 × 2 pixels.

    Args:
        images: Shape (N, C, H, H), floating.

    Returns:
        Shape (N, C, H / 2, H / 2); an odd side becomes (H + 1) / 2, with overlapping windows that avoid a shift.
    """
    if images.shape[-1] % 2:
        side = images.shape[-1] // 2 + 1
        return F.interpolate(images, size=(side, side), mode="area")
    # Rows first: several times as fast on a CPU as average pooling.
    rows = images[..., 0::2, :] + images[..., 1::2, :]
    return (rows[..., 0::2] + rows[..., 1::2]).mul_(0.25)


def side_at(size_px: int, levels: torch.Tensor) -> torch.Tensor:
    """Side of images after `levels` halvings (`pooling_levels`), shape (N,), int64."""
    # Rounding up at each halving equals rounding up once.
    return -torch.div(-size_px, 2**levels, rounding_mode="floor")


def pixel_matrices(matrices: torch.Tensor, sizes_in_px: torch.Tensor, size_out_px: int) -> torch.Tensor:
    """The maps between pixel indices, which are whole numbers at pixel centers: OpenCV's convention.

    Args:
        matrices: Normalized, output to input, shape (N, 3, 3).
        sizes_in_px: Side of each source image, shape (N,).
        size_out_px: Side of the result.

    Returns:
        Shape (N, 2, 3), float64: (x, y, 1) of the output to (x, y) of the input.
    """
    matrices = matrices.to(torch.float64)
    half_side = (sizes_in_px.to(torch.float64) / 2)[:, None]
    # An output index i lies at (2 i + 1) / size - 1, an input position p at index (p + 1) size / 2 - 1 / 2.
    linear, shift = matrices[:, :2, :2], matrices[:, :2, 2]
    start = shift + (1 / size_out_px - 1) * linear.sum(-1)
    return torch.cat(
        [linear * half_side[..., None] * (2 / size_out_px), ((start + 1) * half_side - 0.5)[..., None]],
        dim=-1,
    )


def margins(matrices: torch.Tensor, sizes_in_px: torch.Tensor, size_out_px: int) -> torch.Tensor:
    """Pixels beyond the image that a warp reads, at each edge.

    Args:
        matrices: `pixel_matrices`, shape (N, 2, 3).
        sizes_in_px: Side of each source image, shape (N,).
        size_out_px: Side of the result.

    Returns:
        Pixels beyond the top, bottom, left and right edge, shape (N, 4), int64.
    """
    last = size_out_px - 1
    corners = torch.tensor([[0, last, 0, last], [0, 0, last, last], [1, 1, 1, 1]], dtype=matrices.dtype)
    reached = matrices @ corners
    before = -reached.amin(-1).floor()
    after = reached.amax(-1).floor() + 2 - sizes_in_px[:, None]
    beyond = torch.stack([before[:, 1], after[:, 1], before[:, 0], after[:, 0]], dim=-1)
    return beyond.clamp_min(0).to(torch.int64)


def warp(
    images: torch.Tensor,
    matrices: torch.Tensor,
    size_px: int,
    levels: Sequence[int] | None = None,
) -> torch.Tensor:
    """Images resampled by their own matrices: bilinear, mirrored at the edge.

    The border is the half-sample reflection (``dcba|abcd|dcba``), which has no seam. Shrinking images are averaged
    first (`pooling_levels`).

    Args:
        images: Shape (N, C, H, W), square, uint8 or floating.
        matrices: Shape (N, 3, 3), on any device, output to input.
        levels: Known `pooling_levels`, to avoid waiting for a GPU.

    Returns:
        Shape (N, C, size_px, size_px), float32: 0..1 for uint8 input (divided by 255), else the input's range.
    """
    if levels is None:
        levels = pooling_levels(matrices, images.shape[-1], size_px).tolist()
    matrices = matrices.to(device=images.device, dtype=torch.float32)
    source = images.to(torch.float32)
    distinct = sorted(set(levels))
    if len(distinct) == 1:
        warped = _sample(source, matrices, size_px, distinct[0])
    else:
        warped = source.new_empty((*source.shape[:2], size_px, size_px))
        for level in distinct:
            rows = sent(torch.tensor([row for row, own in enumerate(levels) if own == level]), images.device)
            part = _sample(source.index_select(0, rows), matrices.index_select(0, rows), size_px, level)
            warped.index_copy_(0, rows, part)
    return warped.mul_(1 / 255) if images.dtype == torch.uint8 else warped


def _sample(source: torch.Tensor, matrices: torch.Tensor, size_px: int, level: int) -> torch.Tensor:
    for _ in range(level):
        source = halve(source)
    grid = _sampling_grid(matrices, size_px)
    return F.grid_sample(source, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _sampling_grid(matrices: torch.Tensor, size_px: int) -> torch.Tensor:
    # F.affine_grid builds an equal grid with a matrix product, several times slower on a CPU.
    centers = (torch.arange(size_px, device=matrices.device, dtype=torch.float32) * 2 + 1) / size_px - 1
    along_x = matrices[:, :2, 0, None] * centers
    along_y = matrices[:, :2, 1, None] * centers + matrices[:, :2, 2, None]
    return along_y.transpose(1, 2)[:, :, None, :] + along_x.transpose(1, 2)[:, None, :, :]


def _matrix(
    xx: torch.Tensor, xy: torch.Tensor, x1: torch.Tensor, yx: torch.Tensor, yy: torch.Tensor, y1: torch.Tensor
) -> torch.Tensor:
    zero, one = torch.zeros_like(xx), torch.ones_like(xx)
    return torch.stack([xx, xy, x1, yx, yy, y1, zero, zero, one], dim=-1).unflatten(-1, (3, 3))


def check_patches(patches: torch.Tensor) -> None:
    """Refuse batches other than uint8, shape (N, S, 3, H, H), by ValueError."""
    if patches.dtype != torch.uint8 or patches.ndim != 5 or patches.shape[2] != 3:
        raise ValueError(f"uint8 (N, S, 3, H, W) expected, got {patches.dtype} {tuple(patches.shape)}")
    if patches.shape[3] != patches.shape[4]:
        raise ValueError(f"square patches expected, got {patches.shape[3]} × {patches.shape[4]} px")
