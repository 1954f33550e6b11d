"""Execution of a drawing on the CPU: one patch after the other through OpenCV, what a core's cache wants.

Tests hold the warp against that of `geometry`, and the two executions of every operation against each other.
OpenCV's kernels are vectorized for interleaved pixels, which makes them two to four times as fast as torch's on planes,
and one patch with its temporaries stays in the cache.

On the caller's thread alone: two threads of Python took longer than one (1.0 against 0.5 ms per patch of
256 px), because kernels of some 20 µs make them wait for the interpreter's lock after each.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.process.forks import end_opencv_threads_before_forks
from histo_monai.transforms import geometry
from histo_monai.transforms.operations.buffers import Buffers, Pixels
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import UNUSED

end_opencv_threads_before_forks()


class _Warp(NamedTuple):
    """One patch's warp: pixels of the view to pixels of the halved patch, and what `geometry.margins` says."""

    matrix: NDArray[np.float64]
    level: int
    margins: tuple[int, int, int, int]


def augment(
    patches: torch.Tensor, drawn: ViewParameters, noise_pool: torch.Tensor, size_px: int
) -> torch.Tensor:
    """Warps each patch and runs it through its own photometric operations.

    Args:
        patches: Shape (N S, 3, H, H), uint8, on the CPU, not modified.
        drawn: Parameters of these N samples of S patches.
        noise_pool: Standard normal values on the CPU (`operations.noise`).
        size_px: Side of the result.

    Returns:
        Shape (N S, 3, size_px, size_px), float32, 0..1.
    """
    warps = _plan_warps(drawn.matrices.flatten(0, 1), patches.shape[-1], size_px)
    parameters = [part.flatten(0, 1).tolist() for part in drawn.parameters]
    schedule = drawn.patch_schedule().tolist()
    sources, pool = patches.contiguous().numpy(), noise_pool.numpy()
    views = torch.empty((len(patches), 3, size_px, size_px), dtype=torch.float32)
    operations = [operation.with_opencv for operation in drawn.operations]
    buffers = Buffers.of(size_px)
    with _opencv_on_the_callers_thread():
        for row, planes in enumerate(views.numpy()):
            _warp(buffers, sources[row], warps[row])
            for step in schedule[row]:
                if step != UNUSED:
                    operations[step](buffers, parameters[step][row], pool)
            cv2.split(buffers.pixels, list(planes))
    return views


_opencv_lock = threading.Lock()
_opencv_users: list[int] = []


@contextmanager
def _opencv_on_the_callers_thread() -> Iterator[None]:
    """Keeps OpenCV from starting threads of its own, and leaves its setting as it was.

    Patches are too small to share, and threads that exist when loader workers are forked are missing in these:
    OpenCV would wait for them for ever.
    """
    with _opencv_lock:
        _opencv_users.append(cv2.getNumThreads())
        cv2.setNumThreads(1)
    try:
        yield
    finally:
        with _opencv_lock:
            threads = _opencv_users.pop()
            if not _opencv_users:
                cv2.setNumThreads(threads)


def _warp(buffers: Buffers, patch: NDArray[np.uint8], plan: _Warp) -> None:
    """`geometry.warp` of one patch (3, H, H)."""
    red, green, blue = patch
    # Four channels, one of them idle: OpenCV's warp and halving take half the time that they need for three.
    source: NDArray[Any] = cv2.merge([red, green, blue, blue])
    for _ in range(plan.level):
        source = _halve(source.astype(np.float32, copy=False))
    matrix = plan.matrix
    top, bottom, left, right = plan.margins
    if 0 < max(plan.margins) <= len(source):
        # Sampling beyond the edge is slow in OpenCV: mirror first, then everything is inside.
        source = cv2.copyMakeBorder(source, top, bottom, left, right, cv2.BORDER_REFLECT)
        matrix = matrix + np.array([[0, 0, left], [0, 0, top]])
    size_yx = buffers.warped.shape[:2]
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    floats = source.astype(np.float32, copy=False)
    cv2.warpAffine(floats, matrix, size_yx, buffers.warped, flags, cv2.BORDER_REFLECT)
    cv2.cvtColor(buffers.warped, cv2.COLOR_RGBA2RGB, dst=buffers.pixels)
    buffers.pixels *= np.float32(1 / 255)


def _plan_warps(matrices: torch.Tensor, side_px: int, size_px: int) -> list[_Warp]:
    levels = geometry.pooling_levels(matrices, side_px, size_px)
    sides = geometry.side_at(side_px, levels)
    to_pixels = geometry.pixel_matrices(matrices, sides, size_px)
    margins = geometry.margins(to_pixels, sides, size_px)
    return list(map(_Warp, to_pixels.numpy(), levels.tolist(), margins.tolist()))


def _halve(source: Pixels) -> Pixels:
    side = source.shape[0]
    if side % 2 == 0:
        halved = np.empty((side // 2, side // 2, 4), np.float32)
        cv2.resize(source, halved.shape[:2], dst=halved, interpolation=cv2.INTER_AREA)
        return halved
    planes = geometry.halve(torch.from_numpy(source).permute(2, 0, 1)[None])[0]
    return np.ascontiguousarray(planes.permute(1, 2, 0).numpy())
