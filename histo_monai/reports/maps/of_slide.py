"""All map files of one slide from its scores; runs in a process without networks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from histo_monai.reports.maps.slide_maps import MapStyle, SlidePicture, write_slide_maps
from histo_monai.slides.annotations import Frame
from histo_monai.slides.annotations.outlines import read_regions
from histo_monai.utils.roles import MODELS
from histo_monai.wsi.heatmaps.heatmap import read_heatmap


def row_title(row: Mapping[str, Any]) -> str:
    """Slide, size of its metastases and split, as far as known."""
    return " ".join(str(row[name]) for name in ("slide_id", "size", "split") if row[name])


def write_maps_of_slide(
    row: Mapping[str, Any], is_shown: bool, *, folder: Path, scores: Path, style: MapStyle
) -> tuple[int, list[np.ndarray], dict[str, float]]:
    """Write TIFF, GeoJSON and PNG of every model; number of cells, pictures for the mosaic, and tissue unlike training.

    Args:
        is_shown: whether to return pictures.
        folder: holds a folder per model.
        scores: folder of `write_heatmap`.
    """
    slide_id = row["slide_id"]
    heatmap = read_heatmap(scores / f"{slide_id}.csv")
    frame = Frame(heatmap.grid.bounds_yx, row["annotation_origin"])
    reference = read_regions(row["annotation"], frame) if row["annotation"] else []
    all_known = bool(row["exhaustive"])
    picture = SlidePicture.read(Path(row["path"]), heatmap, style, reference, is_exhaustive=all_known)
    for name in MODELS:
        title = f"{row_title(row)}, {name}"
        write_slide_maps(folder / name, slide_id, title, heatmap, name, picture, style)
    unlike = {name: heatmap.unlike_training(name) for name in MODELS}
    if not is_shown:
        return len(heatmap.cells), [], unlike
    maps = [picture.blended(heatmap, name, style.classes) for name in MODELS]
    return len(heatmap.cells), [picture.thumbnail, picture.truth(), *maps], unlike
