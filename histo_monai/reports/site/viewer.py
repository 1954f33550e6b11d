"""Data of a slide for the viewer: tiles, maps as numbers, outlines, detections."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from histo_monai.reports.site.tiles import FORMAT, TILE_PX, Pyramid
from histo_monai.slides.annotations import Point, Region
from histo_monai.utils.escapes import in_script
from histo_monai.wsi.heatmaps.heatmap import Heatmap

UNMAPPED = 255
"""Value of unmapped cells."""
_STEPS = 254
_MOST_OUTLINES = 200


@dataclass(frozen=True)
class SlideEntry:
    """Slide in the viewer's list.

    Attributes:
        slide_id: as in the tables.
        title: in the list.
        about: below the picture.
        script: path of the `slide_script`, relative to the page.
    """

    slide_id: str
    title: str
    about: str
    script: str

    def as_dict(self) -> dict[str, str]:
        """JSON form."""
        return {"slide_id": self.slide_id, "title": self.title, "about": self.about, "script": self.script}


def slide_script(
    slide_id: str,
    pyramid: Pyramid,
    tiles: str,
    heatmap: Heatmap,
    outlines: Sequence[Region],
    detections: Mapping[str, Sequence[Point]],
    radius_um: float,
) -> str:
    """Script with a slide's data for the page.

    Args:
        slide_id: as in the tables.
        tiles: folder relative to the page, with a final slash.
        heatmap: scores of the cells.
        outlines: annotations; holes are left out.
        detections: model -> points, level-0 pixels, with a measurement "probability".
    """
    scale = heatmap.grid.slide_mpp
    rows, columns = heatmap.grid.shape
    largest = sorted(outlines, key=lambda region: -_side(region))[:_MOST_OUTLINES]
    content = {
        "tiles": {
            "url": tiles,
            "format": FORMAT,
            "tile_px": TILE_PX,
            "width": pyramid.width,
            "height": pyramid.height,
        },
        "width_um": pyramid.width * pyramid.mpp,
        "height_um": pyramid.height * pyramid.mpp,
        "radius_um": radius_um,
        "grid": {"rows": rows, "columns": columns, "stride_um": heatmap.grid.stride_um},
        "maps": {name: _packed(heatmap.raster(name)) for name in heatmap.values},
        "outlines": [_outline(region, scale) for region in largest],
        "detections": {name: _places(points, scale) for name, points in detections.items()},
    }
    return f"histoSlide({in_script(slide_id)},{in_script(content)});\n"


def _packed(raster: NDArray[np.float32]) -> str:
    """One byte per cell, row by row: 0..254 for 0..1, and `UNMAPPED`."""
    steps = np.where(np.isnan(raster), UNMAPPED, np.round(np.nan_to_num(raster) * _STEPS)).astype(np.uint8)
    return base64.b64encode(steps.tobytes()).decode()


def _outline(region: Region, scale: float) -> dict[str, Any]:
    corners = region.exterior_yx * scale
    (top, left), (bottom, right) = corners.min(axis=0), corners.max(axis=0)
    return {
        "name": region.name or region.label or "outline",
        "points": " ".join(f"{x:.1f},{y:.1f}" for y, x in corners),
        "x": round((left + right) / 2, 1),
        "y": round((top + bottom) / 2, 1),
        "side": round(float(max(right - left, bottom - top)), 1),
    }


def _places(points: Sequence[Point], scale: float) -> list[dict[str, float]]:
    """Detections by descending probability, in µm."""
    found = [(point.measurements["probability"], *point.yx) for point in points]
    return [
        {"x": round(x * scale, 1), "y": round(y * scale, 1), "score": round(score, 4)}
        for score, y, x in sorted(found, reverse=True)
    ]


def _side(region: Region) -> float:
    return float((region.exterior_yx.max(axis=0) - region.exterior_yx.min(axis=0)).max())
