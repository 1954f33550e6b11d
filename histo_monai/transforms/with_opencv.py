"""Execution of an augmentation on the CPU, patch by patch with OpenCV.

OpenCV's kernels are vectorized for interleaved pixels and two to four times as fast as torch's on planes. One patch
with its temporaries stays in a core's cache.

Everything runs on the caller's thread. Two Python threads took longer than one (1.0 against 0.5 ms per patch of 256
px), because they wait for the interpreter's lock after each kernel of some 20 µs.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.transforms import geometry
from histo_monai.transforms.operations.buffers import Buffers, Pixels
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import UNUSED
from histo_monai.utils.process.forks import end_opencv_threads_before_forks

end_opencv_threads_before_forks()


class Plan(NamedTuple):
    """Parameters of each patch, as Python and NumPy values.

    Attributes:
        matrices: Pixels of the view to pixels of the halved patch, shape (n, 2, 3), float64.
        levels: Number of halvings.
        margins: `geometry.margins`, four numbers each.
        schedule: Numbers of `operations` in order, and `UNUSED`.
        operations: `Photometric.with_opencv` of each operation.
        parameters: Parameters of each operation for each patch.
    """

    matrices: NDArray[np.float64]
    levels: list[int]
    margins: list[list[int]]
    schedule: list[list[int]]
    operations: tuple[Callable[[Buffers, list[float], Pixels], None], ...]
    parameters: tuple[list[list[float]], ...]


def augment(
    patches: torch.Tensor, sampled: ViewParameters, noise_pool: torch.Tensor, size_px: int
) -> torch.Tensor:
    """One view of each patch (`augment_views`)."""
    return augment_views(patches, [sampled], [noise_pool], size_px)[0]


def augment_views(
    patches: torch.Tensor,
    sampled_views: Sequence[ViewParameters],
    noise_pools: Sequence[torch.Tensor],
    size_px: int,
) -> list[torch.Tensor]:
    """Views of each patch: warped, then changed by its own photometric operations.

    Args:
        patches: Shape (N S, 3, H, H), uint8, on the CPU, not modified.
        sampled_views: Parameters of the N samples of S patches, one per view.
        noise_pools: Standard normal values on the CPU (`operations.noise`), one per view.

    Returns:
        For each view shape (N S, 3, size_px, size_px), float32, 0..1.
    """
    views = [torch.empty((len(patches), 3, size_px, size_px), dtype=torch.float32) for _ in sampled_views]
    make(
        [plan(sampled, patches.shape[-1], size_px) for sampled in sampled_views],
        patches.contiguous().numpy(),
        [pool.numpy() for pool in noise_pools],
        [view.numpy() for view in views],
    )
    return views


def plan(sampled: ViewParameters, side_px: int, size_px: int) -> Plan:
    """The plan for patches of `side_px` and views of `size_px`."""
    matrices = sampled.matrices.flatten(0, 1)
    levels = geometry.pooling_levels(matrices, side_px, size_px)
    sides = geometry.side_at(side_px, levels)
    to_pixels = geometry.pixel_matrices(matrices, sides, size_px)
    return Plan(
        to_pixels.numpy(),
        levels.tolist(),
        geometry.margins(to_pixels, sides, size_px).tolist(),
        sampled.patch_schedule().tolist(),
        tuple(operation.with_opencv for operation in sampled.operations),
        tuple(part.flatten(0, 1).tolist() for part in sampled.parameters),
    )


def make(
    plans: Sequence[Plan],
    sources: NDArray[np.uint8],
    normals: Sequence[Pixels],
    views: Sequence[NDArray[np.float32]],
) -> None:
    """Write the views of each patch.

    Args:
        plans: One per view.
        sources: Shape (n, 3, H, H).
        normals: Standard normal values, one pool per view.
        views: Shape (n, 3, P, P) each; overwritten.
    """
    buffers = Buffers.of(views[0].shape[-1])
    with _opencv_on_the_callers_thread():
        for row, (red, green, blue) in enumerate(sources):
            # Four channels, one idle: OpenCV warps and halves four channels in half the time of three.
            source = cv2.merge([red, green, blue, blue]).astype(np.float32)
            for plan, pool, of_view in zip(plans, normals, views, strict=True):
                _warp(buffers, source, plan.matrices[row], plan.levels[row], plan.margins[row])
                for step in plan.schedule[row]:
                    if step != UNUSED:
                        plan.operations[step](buffers, plan.parameters[step][row], pool)
                cv2.split(buffers.pixels, list(of_view[row]))


_opencv_lock = threading.Lock()
_opencv_users: list[int] = []


@contextmanager
def _opencv_on_the_callers_thread() -> Iterator[None]:
    """Limit OpenCV to the caller's thread, and restore its setting.

    Patches are too small for several threads. Threads that exist before a fork are missing in loader workers, where
    OpenCV would wait for them forever.
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


def _warp(
    buffers: Buffers, source: Pixels, matrix: NDArray[np.float64], level: int, margins: list[int]
) -> None:
    """`geometry.warp` of one patch (H, H, 4)."""
    for _ in range(level):
        source = _halve(source)
    if 0 < max(margins) <= len(source):
        # Sampling beyond the edge is slow in OpenCV: mirror first, so that all samples lie inside.
        top, bottom, left, right = margins
        mirrored: Any = cv2.copyMakeBorder(source, top, bottom, left, right, cv2.BORDER_REFLECT)
        source, matrix = mirrored, matrix + np.array([[0, 0, left], [0, 0, top]])
    size_yx = buffers.warped.shape[:2]
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    cv2.warpAffine(source, matrix, size_yx, buffers.warped, flags, cv2.BORDER_REFLECT)
    cv2.cvtColor(buffers.warped, cv2.COLOR_RGBA2RGB, dst=buffers.pixels)
    buffers.pixels *= np.float32(1 / 255)


def _halve(source: Pixels) -> Pixels:
    side = source.shape[0]
    if side % 2 == 0:
        halved = np.empty((side // 2, side // 2, 4), np.float32)
        cv2.resize(source, halved.shape[:2], dst=halved, interpolation=cv2.INTER_AREA)
        return halved
    planes = geometry.halve(torch.from_numpy(source).permute(2, 0, 1)[None])[0]
    return np.ascontiguousarray(planes.permute(1, 2, 0).numpy())
