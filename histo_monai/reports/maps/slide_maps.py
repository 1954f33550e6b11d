"""Map files of a slide from its scores: TIFF, GeoJSON, overlay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import image
from numpy.typing import NDArray

from histo_monai.reports.drawing import FAST_PNG
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

if TYPE_CHECKING:  # It imports torch.
    from histo_monai.evaluation.conformal import Abstention

Pixels = NDArray[np.uint8]

FEWEST_PX, MOST_PX = 640, 1600
"""Limits of an overlay's longer side; µm/px is adjusted to stay within them."""


@dataclass(frozen=True)
class MapStyle:
    """Settings of map files.

    Attributes:
        classes: mapped classes; empty for a score.
        overlay_mpp: µm/px of the overlays, adjusted to between `FEWEST_PX` and `MOST_PX`.
        region_threshold: minimum value of a region's cells, 0..1.
        threshold: minimum smoothed value of a detection, 0..1.
        radius_um: minimum distance of detections.
        smoothing_um: standard deviation of the Gaussian before detection.
        has_distance: whether `files` counts the map of distances.
        abstention: of the cells without a class; None: every cell has its probabilities alone.
        dicom: whether `files` counts a map in DICOM.
    """

    classes: tuple[str, ...]
    overlay_mpp: float
    region_threshold: float
    threshold: float
    radius_um: float
    smoothing_um: float
    has_distance: bool = False
    abstention: Abstention | None = None
    dicom: bool = False

    @property
    def quantity(self) -> str:
        """Quantity of the color scale, in words."""
        return f"{self.classes[0]} probability" if len(self.classes) == 1 else "score"

    def files(self, slide_id: str) -> list[str]:
        """File names of `write_slide_maps`, and of the map in DICOM: maps, regions, overlay."""
        return [
            *(f"{slide_id}{part}.tif" for part in self.parts().values()),
            f"{slide_id}.geojson",
            f"{slide_id}.png",
            *(
                [f"{slide_id}{self.distance_part}{end}" for end in (".tif", ".png")]
                if self.has_distance
                else []
            ),
            *([f"{slide_id}.dcm"] if self.dicom else []),
        ]

    @property
    def distance_part(self) -> str:
        """Part of the file names of the map of distances; no class has it."""
        classes = {part.casefold() for part in self.parts().values()}
        return ".distance" if ".distance" not in classes else ".training.distance"

    def columns(self, model: str) -> dict[str, str]:
        """Class, or `score` -> column of the map."""
        first = next(iter(self.classes), "score")
        return {label or first: column_of(model, label) for label in self.parts()}

    def parts(self) -> dict[str, str]:
        """Class (empty for a single map) -> part of the map's file name before the suffix."""
        if len(self.classes) < 2:
            return {"": ""}
        return {label: f".{word}" for label, word in file_words(self.classes).items()}


@dataclass(frozen=True)
class SlidePicture:
    """Slide for overlays.

    Attributes:
        thumbnail: whole slide, (h, w, 3), uint8.
        mpp: µm/px of the thumbnail.
        slide_mpp: µm per level-0 pixel.
        reference: true outlines in level-0 pixels; empty if unknown.
        is_exhaustive: whether the reference covers the whole slide.
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
        """Thumbnail and reference of a map's slide.

        Raises:
            SlideError: the slide cannot be read.
        """
        grid = heatmap.grid
        side_um = max(grid.size_yx) * grid.slide_mpp
        mpp = max(min(style.overlay_mpp, side_um / FEWEST_PX), side_um / MOST_PX, grid.slide_mpp)
        mpp = min(mpp, max(grid.stride_um, grid.slide_mpp))  # at least one pixel per cell
        with open_slide(path, grid.slide_mpp) as slide:
            return cls(slide.thumbnail(mpp), mpp, grid.slide_mpp, reference, is_exhaustive)

    def truth(self) -> Pixels:
        """Reference in thumbnail size: white on black if exhaustive, else class colors on gray."""
        height, width, _ = self.thumbnail.shape
        draw = mask_picture if self.is_exhaustive else reference_picture
        return draw(self.reference, (height, width), self.slide_mpp, self.mpp)

    def blended(self, heatmap: Heatmap, model: str, classes: Sequence[str]) -> Pixels:
        """Thumbnail with map and reference outlines."""
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
    """Write `folder`/<slide_id>.tif, .geojson and .png: map; regions and detections; overlay.

    Several classes: one map each, <slide_id>.<class>.tif, with regions and without detections, as lesions have one
    class. Cells without an answer have no region and no color. Distances: <slide_id>.distance.tif and .png, half of
    the distance, at most 1.

    Args:
        folder: created if missing.
        slide_id: stem of the files.
        title: above the overlay.
        model: column of the map.
        picture: of the slide.
    """
    folder.mkdir(parents=True, exist_ok=True)
    regions: list[Region] = []
    answered = heatmap.answered()
    for (name, column), part in zip(style.columns(model).items(), style.parts().values(), strict=True):
        write_map(
            folder / f"{slide_id}{part}.tif",
            heatmap.raster(column),
            heatmap.grid.stride_um,
            heatmap.grid.bounds_yx,
        )
        regions += find_regions(answered, column, threshold=style.region_threshold, label=name)
    points: list[Point] = []
    if len(style.classes) < 2:
        points = find_detections(
            answered,
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
        answered,
        model,
        regions=picture.reference,
        title=title,
        quantity=style.quantity,
        classes=style.classes,
    )
    with whole_file(folder / f"{slide_id}.png") as draft:
        image.imsave(draft, pixels, pil_kwargs=FAST_PNG)
    if model in heatmap.distances:
        _write_distances(folder, f"{slide_id}{style.distance_part}", title, heatmap, model, picture)


def _write_distances(
    folder: Path, stem: str, title: str, heatmap: Heatmap, model: str, picture: SlidePicture
) -> None:
    """Map of half of the distances to the training patches, at most 1, and its overlay: 0.5 is the threshold."""
    halves = {model: np.minimum(heatmap.distances[model] / 2, 1)}
    distances = Heatmap(heatmap.grid, heatmap.cells, heatmap.tissue, halves)
    write_map(folder / f"{stem}.tif", distances.raster(model), heatmap.grid.stride_um, heatmap.grid.bounds_yx)
    pixels = overlay(
        picture.thumbnail,
        picture.mpp,
        distances,
        model,
        regions=[],
        title=f"{title}, distance to the training patches",
        quantity="above 0.5: unlike them",
    )
    with whole_file(folder / f"{stem}.png") as draft:
        image.imsave(draft, pixels, pil_kwargs=FAST_PNG)
