"""Leica SCN files drawn for the tests: a view on a larger canvas, so that OpenSlide states bounds.

OpenSlide reads the XML in the first ImageDescription: lengths are in nanometers, each `dimension` names a page, the
`view` says where the image lies on the `collection`, and an image that fills the collection is the macro.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray

XMLNS = "http://www.leica-microsystems.com/scn/2010/10/01"
GLASS, TISSUE, TUMOR = (244, 244, 246), (226, 168, 200), (104, 60, 140)
_TILE_PX = 256


@dataclass(frozen=True)
class Drawing:
    """A slide in closed form: a disc of tumor in a larger disc of tissue, on glass; lengths in pixels of level 0.

    Attributes:
        view_yx: Height and width of what was scanned.
        corner_yx: Where that begins on the canvas: the bounds.
        canvas_yx: Height and width of the canvas.
        center_yx: Middle of both discs, on the canvas.
        radius: Of the tumor; that of the tissue is `TISSUE_RADII` times as much.
        mpp: µm per pixel.
    """

    view_yx: tuple[int, int]
    corner_yx: tuple[int, int]
    canvas_yx: tuple[int, int]
    center_yx: tuple[float, float]
    radius: float
    mpp: float = 0.5

    TISSUE_RADII = 1.4

    def pixels(self) -> NDArray[np.uint8]:
        """The view, shape (height, width, 3)."""
        y, x = np.ogrid[: self.view_yx[0], : self.view_yx[1]]
        distance = np.hypot(
            y + 0.5 + self.corner_yx[0] - self.center_yx[0], x + 0.5 + self.corner_yx[1] - self.center_yx[1]
        )
        pixels = np.empty((*self.view_yx, 3), np.uint8)
        pixels[:] = GLASS
        pixels[distance < self.TISSUE_RADII * self.radius] = TISSUE
        pixels[distance < self.radius] = TUMOR
        # A weave of two pixels, so that the stain is no flat color, which tissue seldom is.
        return pixels - (((y // 2 + x // 2) % 2) * 4).astype(np.uint8)[..., None]

    def outline_xy(self, origin_yx: Sequence[float], num: int = 256) -> list[list[float]]:
        """The closed outline of the tumor, x and y, counted from a corner of the canvas."""
        turn = np.linspace(0, 2 * np.pi, num, endpoint=False)
        x = self.center_yx[1] - origin_yx[1] + self.radius * np.cos(turn)
        y = self.center_yx[0] - origin_yx[0] + self.radius * np.sin(turn)
        ring = np.stack([x, y], axis=1).tolist()
        return [*ring, ring[0]]

    def is_tumor(self, pixels: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which pixels, shape (..., 3), show the tumor's color."""
        return np.abs(pixels.astype(int) - TUMOR).max(axis=-1) < 30

    def write(self, path: Path, factors: Sequence[int] = (1, 2, 4), macro_first: bool = False) -> Path:
        """Write it as SCN."""
        write_scn(
            path,
            self.pixels(),
            self.corner_yx,
            self.canvas_yx,
            mpp=self.mpp,
            factors=factors,
            macro_first=macro_first,
        )
        return path

    def write_tiff(self, path: Path, factors: Sequence[int] = (1, 2, 4)) -> Path:
        """Write its view as a plain tiled pyramid, which has no bounds."""
        with tifffile.TiffWriter(path, bigtiff=True) as writer:
            _write_levels(writer, self.pixels(), self.mpp, factors, "")
        return path


def write_scn(
    path: Path,
    image: NDArray[np.uint8],
    corner_yx: tuple[int, int],
    canvas_yx: tuple[int, int],
    *,
    mpp: float = 0.5,
    factors: Sequence[int] = (1, 2, 4),
    macro_first: bool = False,
    change_xml: Callable[[str], str] = str,
) -> None:
    """Write an image that begins at a corner of a canvas; with a macro of the canvas as the first page, if wanted.

    `change_xml` spoils the description before it is written.
    """
    nm = round(1000 * mpp)
    height, width = image.shape[:2]
    first = int(macro_first)
    dimensions = "".join(
        f'<dimension sizeX="{width // factor}" sizeY="{height // factor}" r="{number}" ifd="{first + number}"/>'
        for number, factor in enumerate(factors)
    )
    images = _image(
        dimensions, (height, width), (height * nm, width * nm), (corner_yx[0] * nm, corner_yx[1] * nm)
    )
    canvas_nm = canvas_yx[0] * nm, canvas_yx[1] * nm
    macro = np.full((canvas_yx[0] // 16, canvas_yx[1] // 16, 3), GLASS, np.uint8)
    if macro_first:
        page = f'<dimension sizeX="{macro.shape[1]}" sizeY="{macro.shape[0]}" r="0" ifd="0"/>'
        images = _image(page, macro.shape[:2], canvas_nm, (0, 0)) + images
    xml = (
        f'<?xml version="1.0"?><scn xmlns="{XMLNS}"><collection name="slide" sizeX="{canvas_nm[1]}" '
        f'sizeY="{canvas_nm[0]}">{images}</collection></scn>'
    )
    xml = change_xml(xml)
    with tifffile.TiffWriter(path, bigtiff=True) as writer:
        if macro_first:
            _write_levels(writer, macro, 16 * mpp, (1,), xml)
        _write_levels(writer, image, mpp, factors, "" if macro_first else xml)


def _image(
    dimensions: str, size: tuple[int, ...], view_nm: tuple[int, int], offset_nm: tuple[int, int]
) -> str:
    return (
        f'<image name="image"><device model="drawn" version="1"/><pixels sizeX="{size[1]}" sizeY="{size[0]}">'
        f'{dimensions}</pixels><view sizeX="{view_nm[1]}" sizeY="{view_nm[0]}" offsetX="{offset_nm[1]}" '
        f'offsetY="{offset_nm[0]}"/><scanSettings><objectiveSettings><objective>20</objective></objectiveSettings>'
        "<illuminationSettings><numericalAperture>0.75</numericalAperture>"
        "<illuminationSource>brightfield</illuminationSource></illuminationSettings></scanSettings></image>"
    )


def _write_levels(
    writer: tifffile.TiffWriter,
    image: NDArray[np.uint8],
    mpp: float,
    factors: Sequence[int],
    description: str,
) -> None:
    for number, factor in enumerate(factors):
        height, width = (side // factor for side in image.shape[:2])
        blocks = image[: height * factor, : width * factor].reshape(height, factor, width, factor, 3)
        per_cm = 10_000 / (mpp * factor)
        writer.write(
            np.rint(blocks.mean((1, 3))).astype(np.uint8) if factor > 1 else image,
            photometric="rgb",
            tile=(_TILE_PX, _TILE_PX),
            compression="deflate",
            resolution=(per_cm, per_cm),
            resolutionunit="CENTIMETER",
            description=None if number else description,
            metadata=None,
            subfiletype=int(number > 0),
        )
