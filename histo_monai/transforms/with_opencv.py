"""Execution of a drawing on the CPU: one patch after the other through OpenCV, what a core's cache wants.

The operations are those of `batched` (defined in `geometry`, `intensity` and `stain`, columns of parameters in
`photometric`); a test holds the two executions of every one against each other. OpenCV's kernels are vectorised
for interleaved pixels, which makes them two to four times as fast as torch's on planes, and one patch with its
temporaries stays in the cache.

On the caller's thread alone: two threads of Python took longer than one (1.0 against 0.5 ms per patch of
256 px), because kernels of some 20 µs make them wait for the interpreter's lock after each.
"""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from histo_monai.forks import end_opencv_threads_before_forks
from histo_monai.transforms import geometry, photometric
from histo_monai.transforms.intensity import LUMA
from histo_monai.transforms.parameters import ViewParameters
from histo_monai.transforms.sequence import UNUSED
from histo_monai.transforms.stain import DARKEST

end_opencv_threads_before_forks()

Pixels = NDArray[np.float32]


@dataclass
class _Desk:
    """The buffers, used for patch after patch: what OpenCV is given to write to, it writes to.

    Attributes:
        pixels: The patch as it stands, shape (P, P, 3), 0..1.
        spare: For results that cannot be written in place; `swap` makes them the patch.
        warped: The patch after the warp, 0..255, with an idle fourth channel, shape (P, P, 4).
        planes: One array (P, P) per channel.
    """

    pixels: Pixels
    spare: Pixels
    warped: Pixels
    planes: tuple[Pixels, ...]

    @classmethod
    def of(cls, size_px: int) -> "_Desk":
        pixels, spare = np.empty((2, size_px, size_px, 3), np.float32)
        warped = np.empty((size_px, size_px, 4), np.float32)
        return cls(pixels, spare, warped, tuple(np.empty((3, size_px, size_px), np.float32)))

    def swap(self) -> None:
        self.pixels, self.spare = self.spare, self.pixels


class _Warp(NamedTuple):
    """One patch's warp: pixels of the view to pixels of the halved patch, and what `geometry.margins` says."""

    matrix: NDArray[np.float64]
    level: int
    margins: tuple[int, int, int, int]


# (the desk with the patch, this patch's parameters): the patch is changed.
_Operation = Callable[[_Desk, list[float]], None]


def augment(
    patches: torch.Tensor, drawn: ViewParameters, noise_pool: torch.Tensor, size_px: int
) -> torch.Tensor:
    """Warps each patch and runs it through its own photometric operations.

    Args:
        patches: Shape (N S, 3, H, H), uint8, on the CPU, not modified.
        drawn: Parameters of these N samples of S patches.
        noise_pool: Standard normal values on the CPU (`intensity.add_noise`).
        size_px: Side of the result.

    Returns:
        Shape (N S, 3, size_px, size_px), float32, 0..1.
    """
    warps = _plan_warps(drawn.matrices.flatten(0, 1), patches.shape[-1], size_px)
    parameters = [part.flatten(0, 1).tolist() for part in drawn.photometric]
    schedule = drawn.patch_schedule().tolist()
    sources, pool = patches.contiguous().numpy(), noise_pool.numpy()
    views = torch.empty((len(patches), 3, size_px, size_px), dtype=torch.float32)
    operations, desk = _operations(pool), _Desk.of(size_px)
    with _opencv_on_the_callers_thread():
        for row, planes in enumerate(views.numpy()):
            _warp(desk, sources[row], warps[row])
            for step in schedule[row]:
                if step != UNUSED:
                    operations[step](desk, parameters[step][row])
            cv2.split(desk.pixels, list(planes))
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


def _warp(desk: _Desk, patch: NDArray[np.uint8], plan: _Warp) -> None:
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
    size_yx = desk.warped.shape[:2]
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    floats = source.astype(np.float32, copy=False)
    cv2.warpAffine(floats, matrix, size_yx, desk.warped, flags, cv2.BORDER_REFLECT)
    cv2.cvtColor(desk.warped, cv2.COLOR_RGBA2RGB, dst=desk.pixels)
    desk.pixels *= np.float32(1 / 255)


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


def _operations(noise_pool: Pixels) -> tuple[_Operation, ...]:
    """The operations in the order of `photometric.NAMES`."""

    def noise(desk: _Desk, parameters: list[float]) -> None:
        sigma, start = parameters[0], int(parameters[1])
        # The pool is cut into planes, as in `intensity.add_noise`.
        planes = noise_pool[start : start + desk.pixels.size].reshape(3, *desk.pixels.shape[:2])
        cv2.merge(list(planes), dst=desk.spare)
        cv2.scaleAdd(desk.spare, sigma, desk.pixels, dst=desk.pixels)
        _clip(desk.pixels)

    by_name: dict[str, _Operation] = {
        "noise": noise,
        "hue_saturation": _hue_saturation,
        "brightness_contrast": _brightness_contrast,
        "blur": _blur,
        "hed": _hed,
    }
    return tuple(by_name[name] for name in photometric.NAMES)


def _hue_saturation(desk: _Desk, parameters: list[float]) -> None:
    turns, ratio = parameters
    # OpenCV takes any hue from 0 degrees up, but no negative one. Less saturation is a factor, and rides along.
    linear = np.diag([1, 1 + min(ratio, 0), 1, 0])[:3].astype(np.float32)
    linear[0, 3] = turns % 1 * 360
    cv2.cvtColor(desk.pixels, cv2.COLOR_RGB2HSV, dst=desk.spare)
    cv2.transform(desk.spare, linear, dst=desk.pixels)
    if ratio > 0:
        saturation, factor, _ = desk.planes
        cv2.extractChannel(desk.pixels, 1, saturation)
        np.multiply(saturation, np.float32(-ratio), out=factor)
        factor += np.float32(1 + ratio)
        saturation *= factor
        _clip_at_one(saturation)
        cv2.insertChannel(saturation, desk.pixels, 1)
    cv2.cvtColor(desk.pixels, cv2.COLOR_HSV2RGB, dst=desk.spare)
    desk.swap()


def _brightness_contrast(desk: _Desk, parameters: list[float]) -> None:
    brightness, contrast = parameters
    if brightness > 1:
        desk.pixels *= np.float32(brightness)
        _clip_at_one(desk.pixels)
        brightness = 1.0
    # Darker needs no clipping: brightness and contrast are one straight line.
    red, green, blue, _ = cv2.sumElems(desk.pixels)
    grey = brightness * (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue) / (desk.pixels.size / 3)
    cv2.addWeighted(
        desk.pixels, contrast * brightness, desk.pixels, 0, grey * (1 - contrast), dst=desk.pixels
    )
    if contrast > 1:
        _clip(desk.pixels)


def _blur(desk: _Desk, parameters: list[float]) -> None:
    half = np.trim_zeros(np.array(parameters, np.float32), "b")
    if len(half) == 1:
        return
    kernel = np.concatenate([half[:0:-1], half])
    cv2.sepFilter2D(desk.pixels, -1, kernel, kernel, dst=desk.spare, borderType=cv2.BORDER_REFLECT_101)
    desk.swap()
    # Rounded weights may sum to a little over one.
    _clip_at_one(desk.pixels)


def _hed(desk: _Desk, parameters: list[float]) -> None:
    linear, offset = np.array(parameters[:9]).reshape(3, 3), np.array(parameters[9:])[:, None]
    # `stain.hed_map` ends in powers of two, OpenCV has those of e.
    base_e = math.log(2) * np.concatenate([linear, offset], axis=1)
    np.clip(desk.pixels, DARKEST, 1, out=desk.pixels)
    cv2.log(desk.pixels, dst=desk.pixels)
    cv2.transform(desk.pixels, base_e.astype(np.float32), dst=desk.spare)
    cv2.exp(desk.spare, dst=desk.spare)
    desk.swap()
    _clip_at_one(desk.pixels)


def _clip(pixels: Pixels) -> None:
    # Two thresholds take two thirds of the time of np.clip.
    _clip_at_one(pixels)
    cv2.threshold(pixels, 0, 1, cv2.THRESH_TOZERO, dst=pixels)


def _clip_at_one(pixels: Pixels) -> None:
    cv2.threshold(pixels, 1, 1, cv2.THRESH_TRUNC, dst=pixels)
