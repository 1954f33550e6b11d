"""Files of a slide for the viewer: tiles and script; runs in its own process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import pandas as pd

from histo_monai.reports.site.tiles import Pyramid, write_tiles
from histo_monai.reports.site.viewer import SlideEntry, slide_script
from histo_monai.slides import open_slide
from histo_monai.slides.annotations import Frame, read_geojson
from histo_monai.slides.annotations.outlines import read_regions
from histo_monai.utils.roles import MODELS
from histo_monai.utils.storage import read_json
from histo_monai.utils.storage.shapes import COUNT, POSITIVE
from histo_monai.wsi.heatmaps.heatmap import read_heatmap

_DONE = "pyramid.json"
_PYRAMID = {"width": COUNT, "height": COUNT, "mpp": POSITIVE}
VERSION = 1
"""Version of the tiles; another version is made again."""


@dataclass(frozen=True)
class ShownSlide:
    """Slide with its maps.

    Attributes:
        slide_id: as in the tables.
        path: slide file.
        mpp: of level 0, if the file has none; else None.
        about: split, label and size, in words.
        content: digest of the file.
        annotation: outline file; None without.
        annotation_origin: its coordinate origin (`Frame`).
        heatmaps: folder with scores/ and a folder per model.
        radius_um: of a detection.
    """

    slide_id: str
    path: Path
    mpp: float | None
    about: str
    content: str
    annotation: Path | None
    annotation_origin: str
    heatmaps: Path
    radius_um: float

    @classmethod
    def of(cls, row: Mapping[str, Any], heatmaps: Path, radius_um: float) -> Self:
        """Slide of a row of whole_slides.csv."""
        return cls(
            slide_id=str(row["slide_id"]),
            path=Path(row["path"]),
            mpp=None if pd.isna(row["mpp"]) else float(row["mpp"]),
            about=", ".join(str(row[name]) for name in ("split", "label", "size") if row[name]),
            content=str(row["content"]),
            annotation=Path(row["annotation"]) if row["annotation"] else None,
            annotation_origin=str(row["annotation_origin"]),
            heatmaps=heatmaps,
            radius_um=radius_um,
        )


@dataclass(frozen=True)
class Tiling:
    """Target and resolution of tiles.

    Attributes:
        page: folder of the new page.
        before: folder of the replaced page; tiles of an unchanged slide and size are reused.
        folder: of slides, in both.
        mpp: finest µm/px.
        max_side_px: longest side.
    """

    page: Path
    before: Path
    folder: str
    mpp: float
    max_side_px: int

    def of(self, slide: ShownSlide) -> tuple[Pyramid, str]:
        """Tiles of a slide, new or reused; their folder, relative to the page."""
        made_from = [VERSION, slide.slide_id, slide.content, slide.mpp, self.mpp, self.max_side_px]
        name = f"{self.folder}/{_short(json.dumps(made_from))}"
        tiles, earlier = self.page / name, self.before / name
        if (earlier / _DONE).is_file():
            shutil.copytree(earlier, tiles, copy_function=_linked, dirs_exist_ok=True)
            about = read_json(tiles / _DONE, f"remove {self.before}", _PYRAMID)
            return Pyramid(about["width"], about["height"], about["mpp"]), name
        with open_slide(slide.path, slide.mpp) as opened:
            pyramid = Pyramid.of(opened, self.mpp, self.max_side_px)
            write_tiles(opened, pyramid, tiles)
        (tiles / _DONE).write_text(json.dumps(asdict(pyramid)), encoding="utf-8")
        return pyramid, name


def write_shown_slide(slide: ShownSlide, *, tiling: Tiling) -> tuple[SlideEntry, tuple[str, ...]]:
    """Write tiles and script; viewer entry and mapped classes."""
    heatmap = read_heatmap(slide.heatmaps / "scores" / f"{slide.slide_id}.csv")
    pyramid, tiles = tiling.of(slide)
    frame = Frame(heatmap.grid.bounds_yx)
    outlines = (
        read_regions(slide.annotation, replace(frame, origin=slide.annotation_origin))
        if slide.annotation
        else []
    )
    found = {
        name: read_geojson(slide.heatmaps / name / f"{slide.slide_id}.geojson", frame=frame)[1]
        for name in MODELS
    }
    detections = {
        name: [point for point in points if "probability" in point.measurements]
        for name, points in found.items()
    }
    script = f"{tiling.folder}/{_short(slide.slide_id)}.js"
    content = slide_script(
        slide.slide_id, pyramid, f"{tiles}/", heatmap, outlines, detections, slide.radius_um
    )
    (tiling.page / script).write_text(content, encoding="utf-8")
    classes = tuple(dict.fromkeys(name.partition(":")[2] for name in heatmap.values if ":" in name))
    title = f"{slide.slide_id} ({slide.about})" if slide.about else slide.slide_id
    size = " × ".join(f"{side * pyramid.mpp / 1000:.1f}" for side in (pyramid.width, pyramid.height))
    about = (
        f"{slide.slide_id}: {size} mm, shown to {pyramid.mpp:.3g} µm/px, {len(heatmap.cells):,} cells mapped"
    )
    return SlideEntry(slide.slide_id, title, about, script), classes


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _linked(source: str, target: str) -> None:
    """Hard-link a file, or copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
