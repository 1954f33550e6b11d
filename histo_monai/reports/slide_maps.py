"""Scores of a slide's cells -> what a pathologist opens: TIFF over the slide, GeoJSON, overlay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import image
from numpy.typing import NDArray

from histo_monai.diagnosis.detections import find_detections, find_regions
from histo_monai.mapping.heatmap import Heatmap
from histo_monai.mapping.tiff_map import write_map
from histo_monai.reports.map_mosaic import mask_picture
from histo_monai.reports.overlay import blend, overlay
from histo_monai.slides import open_slide
from histo_monai.slides.annotations import Region, write_geojson
from histo_monai.storage import whole_file

Pixels = NDArray[np.uint8]

MAP_SUFFIXES = (".tif", ".geojson", ".png")
"""Of the files that `write_slide_maps` writes."""

FEWEST_PX, MOST_PX = 640, 1600
"""Of an overlay's longer side: a smaller slide is shown finer, as far as it goes, and a larger one coarser."""


@dataclass(frozen=True)
class MapStyle:
    """What is drawn from scores.

    Attributes:
        positive: Class whose probability the map shows; None for a score.
        overlay_mpp: Resolution of the overlays, µm/px; finer or coarser where that would give a picture of fewer than
            `FEWEST_PX` or more than `MOST_PX`.
        region_threshold: Least value of the cells of a region, 0..1.
        threshold: Least value of a detection on the smoothed map, 0..1.
        radius_um: How far apart detections are.
        smoothing_um: Standard deviation of the Gaussian that the map is smoothed by before detections are looked for.
    """

    positive: str | None
    overlay_mpp: float
    region_threshold: float
    threshold: float
    radius_um: float
    smoothing_um: float

    @property
    def quantity(self) -> str:
        """What the colors stand for, in words."""
        return f"{self.positive} probability" if self.positive else "score"


@dataclass(frozen=True)
class SlidePicture:
    """A slide as overlays show it.

    Attributes:
        thumbnail: The whole slide, shape (h, w, 3), uint8.
        mpp: Its µm per pixel.
        slide_mpp: µm per level-0 pixel.
        reference: Outlines of the truth, in level-0 pixels; empty where none is known.
    """

    thumbnail: Pixels
    mpp: float
    slide_mpp: float
    reference: Sequence[Region]

    @classmethod
    def read(cls, path: Path, heatmap: Heatmap, style: MapStyle, reference: Sequence[Region]) -> SlidePicture:
        """Read the thumbnail of the slide that a map is of.

        Raises:
            SlideError: the slide cannot be read.
        """
        grid = heatmap.grid
        side_um = max(grid.size_yx) * grid.slide_mpp
        mpp = max(min(style.overlay_mpp, side_um / FEWEST_PX), side_um / MOST_PX, grid.slide_mpp)
        mpp = min(mpp, max(grid.stride_um, grid.slide_mpp))  # A cell has a pixel at least.
        with open_slide(path, grid.slide_mpp) as slide:
            return cls(slide.thumbnail(mpp), mpp, grid.slide_mpp, reference)

    def truth(self) -> Pixels:
        """The reference as a mask, white on black, of the thumbnail's size."""
        height, width, _ = self.thumbnail.shape
        return mask_picture(self.reference, (height, width), self.slide_mpp, self.mpp)

    def blended(self, heatmap: Heatmap, model: str) -> Pixels:
        """The thumbnail under the map, with the reference's outline."""
        return blend(self.thumbnail, self.mpp, heatmap, model, regions=self.reference)


def write_slide_maps(
    folder: Path,
    slide_id: str,
    title: str,
    heatmap: Heatmap,
    model: str,
    picture: SlidePicture,
    style: MapStyle,
) -> None:
    """Write `folder`/<slide_id>.tif, .geojson and .png: the map, its regions and detections, and the overlay.

    Args:
        folder: Made if missing.
        slide_id: Stem of the files.
        title: Above the overlay.
        heatmap: Of the slide.
        model: Whose values.
        picture: Of the same slide.
        style: See `MapStyle`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_map(folder / f"{slide_id}.tif", heatmap.raster(model), heatmap.grid.stride_um)
    label = style.positive or "score"
    regions = find_regions(heatmap, model, threshold=style.region_threshold, label=label)
    points = find_detections(
        heatmap,
        model,
        threshold=style.threshold,
        radius_um=style.radius_um,
        smoothing_um=style.smoothing_um,
        label=label,
    )
    write_geojson(folder / f"{slide_id}.geojson", regions, points)
    pixels = overlay(
        picture.thumbnail,
        picture.mpp,
        heatmap,
        model,
        regions=picture.reference,
        title=title,
        quantity=style.quantity,
    )
    with whole_file(folder / f"{slide_id}.png") as draft:
        image.imsave(draft, pixels)
