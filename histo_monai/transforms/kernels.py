"""Triton kernels of `with_triton`: one launch for all images, each controlled by its row of a table.

A row holds the matrix (9), the number of halvings, the operation of each step, the buffers of each step, and the
operations' parameters.
"""

import triton
import triton.language as tl

from histo_monai.transforms.operations.brightness_contrast import LUMA
from histo_monai.transforms.with_triton import (
    COPY,
    FIRST_KIND,
    FIRST_STEP,
    KINDS,
    LEVEL,
    READS_VIEWS,
    WRITES_VIEWS,
)
from histo_monai.utils.stains import DARKEST

_COPY, _NOISE, _HUE_SATURATION, _BRIGHTNESS_CONTRAST, _BLUR, _HED = (
    tl.constexpr(code) for code in (COPY, *range(FIRST_KIND, FIRST_KIND + len(KINDS)))
)
_LEVEL, _FIRST_STEP = tl.constexpr(LEVEL), tl.constexpr(FIRST_STEP)
_READS, _WRITES = tl.constexpr(READS_VIEWS), tl.constexpr(WRITES_VIEWS)
_TINY = tl.constexpr(1e-9)
_DARKEST = tl.constexpr(DARKEST)
_OF_RED, _OF_GREEN, _OF_BLUE = (tl.constexpr(weight) for weight in LUMA)


@triton.jit(do_not_specialize=["width"])
def warp(images, table, warped, width, SIDE: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr):
    """`geometry.warp` of uint8 images to 0..1, for sides that halve evenly as often as needed."""
    image, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    own, inside = table + image * width, place < SIZE * SIZE
    across = ((place % SIZE) * 2 + 1).to(tl.float32) / SIZE - 1
    down = ((place // SIZE) * 2 + 1).to(tl.float32) / SIZE - 1
    level = tl.load(own + _LEVEL).to(tl.int32)
    side = SIDE >> level
    x = _mirrored((tl.load(own + 1) * down + tl.load(own + 2)) + tl.load(own) * across, side)
    y = _mirrored((tl.load(own + 4) * down + tl.load(own + 5)) + tl.load(own + 3) * across, side)
    left, top = tl.floor(x), tl.floor(y)
    x0, y0 = left.to(tl.int32), top.to(tl.int32)
    x1, y1 = tl.minimum(x0 + 1, side - 1), tl.minimum(y0 + 1, side - 1)
    right, bottom = x - left, y - top
    for channel in tl.static_range(3):
        plane = images + (image * 3 + channel) * (SIDE * SIDE)
        above = _mean(plane, y0, x0, level, SIDE, inside) * (1 - right)
        above += _mean(plane, y0, x1, level, SIDE, inside) * right
        below = _mean(plane, y1, x0, level, SIDE, inside) * (1 - right)
        below += _mean(plane, y1, x1, level, SIDE, inside) * right
        value = (above * (1 - bottom) + below * bottom) * (1 / 255)
        tl.store(warped + (image * 3 + channel) * (SIZE * SIZE) + place, value, inside)


@triton.jit(do_not_specialize=["step", "num_steps", "width", "column"])
def gray_means(
    warped, views, table, grays, step, num_steps, width, column, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Mean gray of the brightened image, for images whose contrast changes in this step."""
    image = tl.program_id(0).to(tl.int64)
    own = table + image * width
    if tl.load(own + _FIRST_STEP + step).to(tl.int32) == _BRIGHTNESS_CONTRAST:
        if (tl.load(own + _FIRST_STEP + num_steps + step).to(tl.int32) & _READS) != 0:
            pixels = views
        else:
            pixels = warped
        brightness = tl.load(own + column)
        total = tl.zeros((TILE,), tl.float32)
        for first in range(0, SIZE * SIZE, TILE):
            place = first + tl.arange(0, TILE)
            inside = place < SIZE * SIZE
            red, green, blue = _load(pixels, image, place, inside, SIZE)
            total += _OF_RED * _clipped(red * brightness) + _OF_GREEN * _clipped(green * brightness)
            total += _OF_BLUE * _clipped(blue * brightness)
        tl.store(grays + image, tl.sum(total, 0) / (SIZE * SIZE))


@triton.jit(
    do_not_specialize=[
        "step",
        "num_steps",
        "width",
        "noise",
        "hue_saturation",
        "brightness_contrast",
        "blur",
        "hed",
    ]
)
def change(
    warped, views, table, grays, normals, step, num_steps, width,
    noise, hue_saturation, brightness_contrast, blur, hed,
    RADIUS: tl.constexpr, SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One step of every image; arguments named like operations are the first columns of their parameters."""
    image, place = tl.program_id(0).to(tl.int64), tl.program_id(1) * TILE + tl.arange(0, TILE)
    own, inside = table + image * width, place < SIZE * SIZE
    code = tl.load(own + _FIRST_STEP + step).to(tl.int32)
    if code != 0:
        where = tl.load(own + _FIRST_STEP + num_steps + step).to(tl.int32)
        if (where & _READS) != 0:
            pixels = views
        else:
            pixels = warped
        red, green, blue = _load(pixels, image, place, inside, SIZE)
        if code == _NOISE:
            red, green, blue = _with_noise(red, green, blue, own + noise, normals, place, inside, SIZE)
        elif code == _HUE_SATURATION:
            red, green, blue = _turned(red, green, blue, own + hue_saturation)
        elif code == _BRIGHTNESS_CONTRAST:
            factor, contrast = tl.load(own + brightness_contrast), tl.load(own + brightness_contrast + 1)
            shift = tl.load(grays + image) * (1 - contrast)
            red = _clipped(_clipped(red * factor) * contrast + shift)
            green = _clipped(_clipped(green * factor) * contrast + shift)
            blue = _clipped(_clipped(blue * factor) * contrast + shift)
        elif code == _HED:
            red, green, blue = _restained(red, green, blue, own + hed)
        elif code == _BLUR:
            start = pixels + image * (3 * SIZE * SIZE)
            red = _blurred(start, own + blur, place, inside, RADIUS, SIZE)
            green = _blurred(start + SIZE * SIZE, own + blur, place, inside, RADIUS, SIZE)
            blue = _blurred(start + 2 * SIZE * SIZE, own + blur, place, inside, RADIUS, SIZE)
        if (where & _WRITES) != 0:
            result = views
        else:
            result = warped
        at = result + image * (3 * SIZE * SIZE) + place
        tl.store(at, red, inside)
        tl.store(at + SIZE * SIZE, green, inside)
        tl.store(at + 2 * SIZE * SIZE, blue, inside)


@triton.jit
def _mirrored(normalized, side):
    """Pixel position on a side, from -1..1, mirrored at the edges."""
    at = tl.abs(((normalized + 1) * side - 1) * 0.5 + 0.5)
    turns = tl.floor(at / side)
    rest = at - turns * side
    is_odd = turns - 2 * tl.floor(turns * 0.5) > 0.5
    return tl.minimum(tl.maximum(tl.where(is_odd, side - rest, rest) - 0.5, 0.0), side - 1.0)


@triton.jit
def _mean(plane, row, column, level, SIDE: tl.constexpr, inside):
    """Mean of the source pixels under one pixel of the halved image."""
    block = 1 << level
    total = tl.zeros(row.shape, tl.float32)
    number = 0
    while number < block * block:
        y, x = (row << level) + number // block, (column << level) + number % block
        total += tl.load(plane + y * SIDE + x, inside, 0).to(tl.float32)
        number += 1
    return total / (block * block)


@triton.jit
def _load(pixels, image, place, inside, SIZE: tl.constexpr):
    start = pixels + image * (3 * SIZE * SIZE) + place
    red = tl.load(start, inside, 0.0)
    green = tl.load(start + SIZE * SIZE, inside, 0.0)
    return red, green, tl.load(start + 2 * SIZE * SIZE, inside, 0.0)


@triton.jit
def _clipped(x):
    return tl.minimum(tl.maximum(x, 0.0), 1.0)


@triton.jit
def _with_noise(red, green, blue, own, normals, place, inside, SIZE: tl.constexpr):
    sigma, start = tl.load(own), normals + tl.load(own + 1).to(tl.int32) + place
    red += sigma * tl.load(start, inside, 0.0)
    green += sigma * tl.load(start + SIZE * SIZE, inside, 0.0)
    blue += sigma * tl.load(start + 2 * SIZE * SIZE, inside, 0.0)
    return _clipped(red), _clipped(green), _clipped(blue)


@triton.jit
def _turned(red, green, blue, own):
    """Shifted hue and saturation, by the formula of `HueSaturation.with_torch`."""
    hue, ratio = tl.load(own), tl.load(own + 1)
    value = tl.maximum(tl.maximum(tl.maximum(red, green), blue), _TINY)
    lowest = tl.minimum(tl.minimum(red, green), blue)
    chroma = tl.maximum(value - lowest, _TINY)
    distance = (((green + blue) - red) - lowest) / chroma + 1
    angle = tl.where(green - blue < 0, -distance, distance) + hue * 6
    angle -= 6 * tl.floor(angle / 6 + 0.5)
    chroma *= chroma / value * -tl.maximum(ratio, 0.0) + (1 + ratio)
    lowest = value - chroma
    distance = tl.abs(angle)
    below = tl.minimum(tl.maximum(1 - distance, -1.0), 0.0)
    mean = (distance + below) * 0.5
    deviation = tl.minimum(distance, 1.0) - mean
    deviation = tl.where(angle < 0, -deviation, deviation)
    red = value + chroma * below
    return (
        _clipped(red),
        _clipped(lowest + chroma * (mean + deviation)),
        _clipped(lowest + chroma * (mean - deviation)),
    )


@triton.jit
def _restained(red, green, blue, own):
    """Changed stains, by the formula of `hed_map`."""
    red = tl.log(tl.maximum(red, _DARKEST))
    green = tl.log(tl.maximum(green, _DARKEST))
    blue = tl.log(tl.maximum(blue, _DARKEST))
    first = tl.load(own) * red + tl.load(own + 1) * green + tl.load(own + 2) * blue + tl.load(own + 9)
    second = tl.load(own + 3) * red + tl.load(own + 4) * green + tl.load(own + 5) * blue + tl.load(own + 10)
    third = tl.load(own + 6) * red + tl.load(own + 7) * green + tl.load(own + 8) * blue + tl.load(own + 11)
    return tl.minimum(tl.exp2(first), 1.0), tl.minimum(tl.exp2(second), 1.0), tl.minimum(tl.exp2(third), 1.0)


@triton.jit
def _blurred(plane, own, place, inside, RADIUS: tl.constexpr, SIZE: tl.constexpr):
    """Separable blur; the picture is mirrored beyond the edge without repeating it."""
    row, column = place // SIZE, place % SIZE
    total = tl.zeros(place.shape, tl.float32)
    for down in range(-RADIUS, RADIUS + 1):
        y = tl.abs(row + down)
        y = SIZE - 1 - tl.abs(SIZE - 1 - y)
        along = tl.zeros(place.shape, tl.float32)
        for across in range(-RADIUS, RADIUS + 1):
            x = tl.abs(column + across)
            x = SIZE - 1 - tl.abs(SIZE - 1 - x)
            along += tl.load(own + tl.abs(across)) * tl.load(plane + y * SIZE + x, inside, 0.0)
        total += tl.load(own + tl.abs(down)) * along
    return tl.minimum(total, 1.0)
