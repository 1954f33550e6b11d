from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import openslide
import pytest
import tifffile
from scipy.signal import lfilter

from histo_monai.slides import SlideError, openslide_backend
from histo_monai.slides.openslide_backend import OpenSlideBackend, _undo_shift
from histo_monai.utils.process.threads import decode_with


@pytest.mark.parametrize("late_px", [0.25, 0.1, -0.2, 0.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_mixing_of_neighbors_is_undone(late_px, axis):
    rng = np.random.default_rng(0)
    pixels = np.moveaxis(rng.integers(0, 256, (60, 50, 3), np.uint8), 0, axis)
    neighbor = np.roll(pixels, -1 if late_px > 0 else 1, axis)
    late_px = round(late_px * 128) / 128
    mixed = np.rint((1 - abs(late_px)) * pixels.astype(float) + abs(late_px) * neighbor).astype(np.uint8)
    result = np.moveaxis(_undo_shift(mixed, late_px, axis), axis, 0)[8:-8]
    assert np.abs(result.astype(int) - np.moveaxis(pixels, axis, 0)[8:-8]).max() <= 2
    late = abs(late_px)
    along = np.moveaxis(mixed, axis, 0)[:: -1 if late_px > 0 else 1].astype(np.float64)
    filtered, _ = lfilter([1 / (1 - late)], [1, late / (1 - late)], along, 0, -late / (1 - late) * along[:1])
    filtered = np.rint(filtered).clip(0, 255)[:: -1 if late_px > 0 else 1]
    assert np.array_equal(result, filtered[8:-8])


def test_pixels_are_white_where_openslide_covers_less_than_half():
    rgba = np.random.default_rng(0).integers(0, 256, (7, 5, 4), np.uint8)
    expected = [[pixel[:3] if pixel[3] >= 128 else [255] * 3 for pixel in row] for row in rgba.tolist()]
    assert openslide_backend._on_white(rgba).tolist() == expected


def test_the_cache_of_decoded_tiles_does_not_grow_with_the_open_slides(tmp_path, monkeypatch):
    """Each slide has 16 MiB of decoded tiles; by default OpenSlide would hold them for each."""
    monkeypatch.setattr(openslide_backend, "MAX_BYTES", 2**22)
    openslide_backend._decoded_tiles.cache_clear()
    backends, resident = [], []
    for number in range(5):
        path = tmp_path / f"{number}.tif"
        tifffile.imwrite(
            path, np.zeros((2048, 2048, 3), np.uint8), tile=(256, 256), compression="deflate", metadata=None
        )
        backends.append(OpenSlideBackend(path, [path]))
        for _ in backends[-1].read_regions(
            0, [(y, x) for y in range(0, 2048, 256) for x in range(0, 2048, 256)], (9, 9)
        ):
            pass
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    openslide_backend._decoded_tiles.cache_clear()
    assert resident[-1] - resident[0] < 2**24


def test_openslide_gives_the_levels_own_pixels_at_any_corner(tmp_path):
    """Downsample 1.9985: OpenSlide itself begins a fraction of a pixel off nearly everywhere."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 256, (668, 668, 3), np.uint8)
    with tifffile.TiffWriter(tmp_path / "a.tif") as writer:
        for image, kind in ((np.zeros((1335, 1335, 3), np.uint8), 0), (level, 1)):
            writer.write(image, tile=(64, 64), photometric="rgb", subfiletype=kind, metadata=None)
    backend = OpenSlideBackend(tmp_path / "a.tif", [tmp_path / "a.tif"])
    corners = [(0, 0), (100, 57), (333, 501), (601, 605), (548, 548)]
    for (y, x), pixels in zip(corners, backend.read_regions(1, corners, (63, 60)), strict=True):
        truth = level[y : y + 63, x : x + 60]
        assert np.abs(pixels.astype(int) - truth).mean() < 1
        plain = openslide.OpenSlide(tmp_path / "a.tif").read_region(
            (round(x * 1.9985), round(y * 1.9985)), 1, (60, 63)
        )
        if (y, x) == (601, 605):
            assert np.abs(np.asarray(plain)[..., :3].astype(int) - truth).mean() > 4  # what is undone


def test_threads_change_no_pixel_and_name_the_damaged_region_alone(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (640, 640, 3), np.uint8)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, pixels, tile=(64, 64), compression="deflate", photometric="rgb", metadata=None)
    with tifffile.TiffFile(path) as file:
        damaged = file.pages[0].dataoffsets[37]  # row 3, column 7
    with path.open("r+b") as file:
        file.seek(damaged)
        file.write(bytes(40))
    corners = [(y, x) for y in range(0, 640, 64) for x in range(0, 640, 64)]
    backend = OpenSlideBackend(path, [path])
    try:
        decode_with(4)
        for _ in range(3):
            read = backend.read_regions(0, corners, (64, 64))
            for (y, x), region in zip(corners[:37], read, strict=False):
                assert np.array_equal(region, pixels[y : y + 64, x : x + 64])
            with pytest.raises(SlideError, match="rows 192 to 256, columns 448 to 512"):
                next(read)
            for (y, x), region in zip(
                corners[38:], backend.read_regions(0, corners[38:], (64, 64)), strict=True
            ):
                assert np.array_equal(region, pixels[y : y + 64, x : x + 64])
    finally:
        decode_with(1)
    backend.close()
