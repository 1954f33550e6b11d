"""Scores of a slide's cells -> what a pathologist opens: TIFF over the slide, GeoJSON, overlay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib import image
from numpy.typing import NDArray

from histo_monai.reports.maps.mosaic import mask_picture
from histo_monai.reports.maps.overlay import blend, overlay
from histo_monai.reports.maps.winners import reference_picture
from histo_monai.slides import open_slide
from histo_monai.slides.annotations import Point, Region, write_geojson
from histo_monai.utils.escapes import file_words
from histo_monai.utils.storage import whole_file
from histo_monai.wsi.diagnosis.detections import find_detections, find_regions
from histo_monai.wsi.heatmaps.heatmap import Heatmap, column_of
from histo_monai.wsi.heatmaps.tiff_map import write_map

Pixels = NDArray[np.uint8]

FEWEST_PX, MOST_PX = 640, 1600
"""Of an overlay's longer side: a smaller slide is shown finer, as far as it goes, and a larger one coarser."""


@dataclass(frozen=True)
class MapStyle:
    """What is drawn from scores.

    Attributes:
        classes: Whose probabilities are mapped; none for a score.
        overlay_mpp: Resolution of the overlays, µm/px; finer or coarser where that would give a picture of fewer than
            `FEWEST_PX` or more than `MOST_PX`.
        region_threshold: Least value of the cells of a region, 0..1.
        threshold: Least value of a detection on the smoothed map, 0..1.
        radius_um: How far apart detections are.
        smoothing_um: Standard deviation of the Gaussian that the map is smoothed by before detections are looked for.
    """

    classes: tuple[str, ...]
    overlay_mpp: float
    region_threshold: float
    threshold: float
    radius_um: float
    smoothing_um: float

    @property
    def quantity(self) -> str:
        """What the colors stand for, in words."""
        return f"{self.classes[0]} probability" if len(self.classes) == 1 else "score"

    def files(self, slide_id: str) -> list[str]:
        """Names of what `write_slide_maps` writes: a map (of each of several classes), regions, overlay."""
        return [
            *(f"{slide_id}{part}.tif" for part in self.parts().values()),
            f"{slide_id}.geojson",
            f"{slide_id}.png",
        ]

    def parts(self) -> dict[str, str]:
        """Class (empty for a map of one class, or of a score) -> what the name of its map has before the suffix."""
        if len(self.classes) < 2:
            return {"": ""}
        return {label: f".{word}" for label, word in file_words(self.classes).items()}


@dataclass(frozen=True)
class SlidePicture:
    """A slide as overlays show it.

    Attributes:
        thumbnail: The whole slide, shape (h, w, 3), uint8.
        mpp: Its µm per pixel.
        slide_mpp: µm per level-0 pixel.
        reference: Outlines of the truth, in level-0 pixels; empty where none is known.
        is_exhaustive: Whether these are all that is on the slide.
    """

    thumbnail: Pixels
    mpp: float
    slide_mpp: float
    reference: Sequence[Region]
    is_exhaustive: bool = True

    @classmethod
    def read(
        cls,
        path: Path,
        heatmap: Heatmap,
        style: MapStyle,
        reference: Sequence[Region],
        *,
        is_exhaustive: bool = True,
    ) -> SlidePicture:
        """Read the thumbnail of the slide that a map is of.

        Raises:
            SlideError: the slide cannot be read.
        """
        grid = heatmap.grid
        side_um = max(grid.size_yx) * grid.slide_mpp
        mpp = max(min(style.overlay_mpp, side_um / FEWEST_PX), side_um / MOST_PX, grid.slide_mpp)
        mpp = min(mpp, max(grid.stride_um, grid.slide_mpp))  # A cell has a pixel at least.
        with open_slide(path, grid.slide_mpp) as slide:
            return cls(slide.thumbnail(mpp), mpp, grid.slide_mpp, reference, is_exhaustive)

    def truth(self) -> Pixels:
        """The reference, of the thumbnail's size: white on black where it is all there is, else classes on gray."""
        height, width, _ = self.thumbnail.shape
        draw = mask_picture if self.is_exhaustive else reference_picture
        return draw(self.reference, (height, width), self.slide_mpp, self.mpp)

    def blended(self, heatmap: Heatmap, model: str, classes: Sequence[str]) -> Pixels:
        """The thumbnail under the map, with the reference's outline."""
        return blend(self.thumbnail, self.mpp, heatmap, model, regions=self.reference, classes=classes)


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

    Of several classes there is a map each, <slide_id>.<class>.tif, and regions of each, but no detections: those are of
    lesions, which are of one class.

    Args:
        folder: Made if missing.
        slide_id: Stem of the files.
        title: Above the overlay.
        model: Whose values.
        picture: Of the same slide.
    """
    folder.mkdir(parents=True, exist_ok=True)
    regions: list[Region] = []
    for label, part in style.parts().items():
        column = column_of(model, label)
        write_map(
            folder / f"{slide_id}{part}.tif",
            heatmap.raster(column),
            heatmap.grid.stride_um,
            heatmap.grid.bounds_yx,
        )
        name = label or next(iter(style.classes), "score")
        regions += find_regions(heatmap, column, threshold=style.region_threshold, label=name)
    points: list[Point] = []
    if len(style.classes) < 2:
        points = find_detections(
            heatmap,
            model,
            threshold=style.threshold,
            radius_um=style.radius_um,
            smoothing_um=style.smoothing_um,
            label=next(iter(style.classes), "score"),
        )
    write_geojson(folder / f"{slide_id}.geojson", regions, points, heatmap.grid.bounds_yx)
    pixels = overlay(
        picture.thumbnail,
        picture.mpp,
        heatmap,
        model,
        regions=picture.reference,
        title=title,
        quantity=style.quantity,
        classes=style.classes,
    )
    with whole_file(folder / f"{slide_id}.png") as draft:
        image.imsave(draft, pixels)
