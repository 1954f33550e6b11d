"""Small slides written for the tests."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image

from histo_monai.slides import Slide, open_slide, reader

TILE = 64
_FILE_NUMBER = itertools.count()


def reduce_exactly(image: NDArray[np.uint8], factor: int, size_yx: tuple[int, int]) -> NDArray[np.uint8]:
    """Means over factor x factor blocks; what does not fill a block is repeated first, then cut to size."""
    height, width = (size * factor for size in size_yx)
    pad = [(0, max(0, height - image.shape[0])), (0, max(0, width - image.shape[1])), (0, 0)]
    full = np.pad(image, pad, mode="edge")[:height, :width].astype(float)
    blocks = full.reshape(size_yx[0], factor, size_yx[1], factor, 3).mean((1, 3))
    return np.rint(blocks).astype(np.uint8)


def jpeg_tiles(image: NDArray[np.uint8]) -> Iterator[bytes]:
    for y in range(0, image.shape[0], TILE):
        for x in range(0, image.shape[1], TILE):
            part = image[y : y + TILE, x : x + TILE]
            tile = np.pad(part, [(0, TILE - part.shape[0]), (0, TILE - part.shape[1]), (0, 0)], mode="edge")
            buffer = io.BytesIO()
            Image.fromarray(tile).save(buffer, "JPEG", quality=95, subsampling=0)
            yield buffer.getvalue()


@pytest.fixture
def write_slide(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes a tiled pyramid: whole-number factors, level sizes rounded down."""

    def write(
        image: NDArray[np.uint8],
        factors: Sequence[int] = (1, 2, 4),
        name: str = "slide.tif",
        jpeg: bool = False,
        mpp: float | None = 0.25,
        **tags: Any,
    ) -> Path:
        path = tmp_path / name
        if mpp is not None:
            tags = {"resolution": (10_000 / mpp, 10_000 / mpp), "resolutionunit": "CENTIMETER", **tags}
        with tifffile.TiffWriter(path) as writer:
            for factor in factors:
                size_yx = (image.shape[0] // factor, image.shape[1] // factor)
                level = reduce_exactly(image, factor, size_yx)
                data = {"shape": level.shape, "dtype": np.uint8} if jpeg else {}
                writer.write(
                    jpeg_tiles(level) if jpeg else level,
                    **data,
                    tile=(TILE, TILE),
                    photometric="rgb",
                    compression="deflate" if jpeg else None,
                    subfiletype=0 if factor == 1 else 1,
                    metadata=None,
                    **tags,
                )
        if jpeg:  # tifffile encodes JPEG with an optional package only; the tiles are JPEG already.
            with tifffile.TiffFile(path, mode="r+") as file:
                for page in file.pages:
                    page.tags["Compression"].overwrite(7)
                    page.tags["PhotometricInterpretation"].overwrite(6)
        # Inodes come back and clocks are coarse: without a nanosecond of its own, cuCIM may take a file for another.
        changed_ns = 10**18 + next(_FILE_NUMBER)
        os.utime(path, ns=(changed_ns, changed_ns))
        return path

    return write


@pytest.fixture(params=["cucim", "openslide"])
def open_with(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Slide]:
    """`open_slide` through each of the two libraries."""
    if request.param == "cucim":
        pytest.importorskip("cucim.clara")
    else:
        monkeypatch.setattr(reader, "why_not_cucim", lambda path, pages: "the test asks for OpenSlide")

    def open_and_check(path: Path, mpp: float | None = None) -> Slide:
        slide = open_slide(path, mpp=mpp)
        assert slide.backend == request.param
        return slide

    return open_and_check


@pytest.fixture(scope="session")
def noise() -> NDArray[np.uint8]:
    """A random picture, 400 x 520, smooth enough for its fourth level to show it."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (10, 13, 3), np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((520, 400), Image.Resampling.BICUBIC))
