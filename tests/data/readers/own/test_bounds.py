"""Labels of slides with bounds lie on what was outlined, whichever program drew them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.path import Path as Outlined

from histo_monai.data.readers.own import reader as own
from histo_monai.data.tables.patches import LabeledDataset
from histo_monai.slides import Box, choose_level, open_slide
from histo_monai.slides.annotations import BOUNDS, CANVAS, write_geojson
from histo_monai.slides.annotations.frames import statement
from histo_monai.slides.tiles.cells import slide_grid
from histo_monai.wsi.diagnosis.detections import find_regions
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from tests.slides.drawn_scn import Drawing

DRAWING = Drawing((1200, 1500), (500, 700), (3000, 4000), (500 + 600, 700 + 750), 480)
PATCH_PX = 64


def _qupath(path: Path, drawing: Drawing, origin_yx: Sequence[int]) -> None:
    feature = {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [drawing.outline_xy(origin_yx)]},
        "properties": {"objectType": "annotation", "classification": {"name": "Tumor"}},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))


def _asap(path: Path, drawing: Drawing, origin_yx: Sequence[int]) -> None:
    places = "".join(
        f'<Coordinate Order="{order}" X="{x}" Y="{y}" />'
        for order, (x, y) in enumerate(drawing.outline_xy(origin_yx)[:-1])
    )
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        '<?xml version="1.0"?><ASAP_Annotations><Annotations><Annotation Name="t" Type="Polygon" PartOfGroup="Tumor">'
        f"<Coordinates>{places}</Coordinates></Annotation></Annotations></ASAP_Annotations>"
    )


def _patches(folder: Path, mpp: float = DRAWING.mpp) -> LabeledDataset:
    return own.labeled_patches(
        folder, patch_px=PATCH_PX, region_mpp=mpp, min_region_fraction=0.9, num_per_region=48
    )


def _tumor_fractions(rows: pd.DataFrame, drawing: Drawing) -> np.ndarray:
    """Part of each square that shows the tumor's color."""
    with open_slide(rows["path"].iloc[0]) as slide:
        boxes = [
            Box((y, x), PATCH_PX, mpp) for y, x, mpp in zip(rows["y"], rows["x"], rows["mpp"], strict=True)
        ]
        patches = slide.read_many(boxes)
    return drawing.is_tumor(patches.transpose(0, 2, 3, 1)).mean(axis=(1, 2))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    DRAWING.write(tmp_path / "a.scn")
    (tmp_path / "slides.csv").write_text("slide_id,path\na,a.scn\n")
    return tmp_path


@pytest.mark.parametrize(
    ("write", "name", "origin_yx", "stated"),
    [
        (_qupath, "a.geojson", (500, 700), ""),
        (_qupath, "a.geojson", (500, 700), BOUNDS),
        (_qupath, "a.geojson", (0, 0), CANVAS),
        (_asap, "a.xml", (0, 0), ""),
        (_asap, "a.xml", (0, 0), CANVAS),
        (_asap, "a.xml", (500, 700), BOUNDS),
    ],
    ids=["QuPath", "QuPath stated", "GeoJSON of the canvas", "ASAP", "ASAP stated", "XML of the bounds"],
)
def test_squares_of_an_outlined_tumor_lie_on_tumor(
    folder: Path, write: Callable[..., None], name: str, origin_yx: tuple[int, int], stated: str
) -> None:
    write(folder / "annotations" / name, DRAWING, origin_yx)
    (folder / "slides.csv").write_text(f"slide_id,path,annotation_origin\na,a.scn,{stated}\n")
    table = _patches(folder).table
    assert len(table) == 48
    assert _tumor_fractions(table, DRAWING).min() > 0.85
    slides, _ = own.whole_slides(folder)
    assert slides["annotation_origin"].tolist() == [stated]


@pytest.mark.parametrize(("origin", "corner"), [(BOUNDS, (500, 700)), (CANVAS, (0, 0)), ("", (0, 0))])
def test_rows_of_patches_csv_count_from_the_canvas_unless_they_state_bounds(
    folder: Path, origin: str, corner: tuple[int, int]
) -> None:
    y, x = np.array(DRAWING.center_yx) - corner
    rows = [f"a,{y:g},{x:g},0.5,Tumor,{origin}", "a,1100,1450,1.0,Tumor,canvas"]
    (folder / "patches.csv").write_text("slide_id,y,x,mpp,label,origin\n" + "\n".join(rows) + "\n")
    table = _patches(folder).table
    assert table[["y", "x"]].to_numpy().tolist() == [[1100, 1450], [1100, 1450]]
    assert (_tumor_fractions(table, DRAWING) == 1).all()


def test_a_row_outside_names_its_place_and_the_bounds(folder: Path) -> None:
    (folder / "patches.csv").write_text("slide_id,y,x,mpp,label,origin\na,2600,900,0.5,Tumor,bounds\n")
    with pytest.raises(ValueError, match=r"row 2: the patch around y 3100, .* begin at y 500, x 700"):
        _patches(folder)


@pytest.mark.parametrize("wrong", ["Bounds", "center", "0", "bounds;canvas"])
def test_another_origin_is_refused_with_its_row(folder: Path, wrong: str) -> None:
    (folder / "patches.csv").write_text(f"slide_id,y,x,mpp,label,origin\na,900,900,0.5,Tumor,{wrong}\n")
    with pytest.raises(ValueError, match=rf"patches\.csv, row 2: origin is '{wrong}'\. Fix: "):
        _patches(folder)
    (folder / "slides.csv").write_text(f"slide_id,path,annotation_origin\na,a.scn,{wrong}\n")
    with pytest.raises(ValueError, match=rf"slides\.csv, row 2: annotation_origin is '{wrong}'\. Fix: "):
        own.whole_slides(folder)


def _drawn_at_random(random: np.random.Generator, number: int) -> tuple[Drawing, bool]:
    """A slide, and whether it has bounds."""
    view = tuple(int(side) for side in random.integers(420, 700, 2))
    has_bounds = number % 4 != 0
    corner = tuple(int(place) for place in random.integers(0, 900, 2)) if has_bounds else (0, 0)
    more = random.integers(0, 500, 2) if has_bounds else (0, 0)
    canvas = tuple(view[axis] + corner[axis] + int(more[axis]) for axis in (0, 1))
    radius = float(random.uniform(140, 170))
    center = tuple(corner[axis] + float(random.uniform(radius, view[axis] - radius)) for axis in (0, 1))
    mpp = float(random.choice([0.25, 0.5, 0.8]))
    return Drawing(view, corner, canvas, center, radius, mpp), has_bounds


@pytest.mark.parametrize("seed", range(10))
def test_slides_drawn_at_random_are_read_labeled_and_mapped_where_they_are(tmp_path: Path, seed: int) -> None:
    """Ten slides each: size, µm/px, patches at three resolutions, squares of an outline in, a map's outline out."""
    random = np.random.default_rng(seed)
    drawings: dict[str, tuple[Drawing, Path]] = {}
    for number in range(10):
        drawing, has_bounds = _drawn_at_random(random, number)
        factors = [(1,), (1, 2), (1, 2, 4), (1, 4)][random.integers(4)]
        name = f"s{number}"
        path = tmp_path / f"{name}.{'scn' if has_bounds else 'tif'}"
        if has_bounds:
            drawing.write(path, factors, macro_first=bool(random.integers(2)))
        else:
            drawing.write_tiff(path, factors)
        _qupath(tmp_path / "annotations" / f"{name}.geojson", drawing, drawing.corner_yx)
        drawings[name] = drawing, path
    rows = "\n".join(f"{name},{path.name}" for name, (_, path) in drawings.items())
    (tmp_path / "slides.csv").write_text(f"slide_id,path\n{rows}\n")
    table = _patches(tmp_path, 0.8).table
    for name, (drawing, path) in drawings.items():
        squares = table[table["slide_id"] == name]
        assert len(squares) >= 1
        assert _tumor_fractions(squares, drawing).min() > 0.85, name
        _check_patches(path, drawing, random)
        _check_map(path, drawing, tmp_path / f"{name}.map.geojson")


def _check_patches(path: Path, drawing: Drawing, random: np.random.Generator) -> None:
    """Size, µm/px, and 33 random patches at each of three resolutions show what is drawn there."""
    with open_slide(path) as slide:
        assert (slide.size_yx, slide.bounds_yx) == (drawing.canvas_yx, drawing.corner_yx)
        assert slide.mpp == pytest.approx(drawing.mpp)
        for factor in (1, 2, 4):
            places = random.uniform(0, drawing.canvas_yx, (33, 2))
            patches = slide.read_many([Box((y, x), 2, slide.mpp * factor) for y, x in places.tolist()])
            distance = np.hypot(*(places - drawing.center_yx).T)
            # A pixel of the level that is read, whose corner OpenSlide rounds, and half a patch on either side.
            level = slide.level_downsamples[choose_level(slide.level_mpps, slide.mpp * factor)]
            is_clear = np.abs(distance - drawing.radius) > 3 * factor + 2 * level
            shows = drawing.is_tumor(patches.transpose(0, 2, 3, 1)).all(axis=(1, 2))
            assert (shows == (distance < drawing.radius))[is_clear].all()


def _check_map(path: Path, drawing: Drawing, target: Path) -> None:
    """The outline of a map of the tumor covers the tumor, counted as QuPath counts."""
    with open_slide(path) as slide:
        grid = slide_grid(slide, 8 * slide.mpp)
        thumbnail = slide.thumbnail(grid.stride_um)
    assert (
        np.abs(np.subtract(thumbnail.shape[:2], grid.shape)).max() <= 1
    )  # of a level whose size was rounded
    raster = np.zeros(grid.shape, np.float32)
    shown = drawing.is_tumor(thumbnail)[: grid.shape[0], : grid.shape[1]]
    raster[: shown.shape[0], : shown.shape[1]] = shown
    cells, values = np.argwhere(np.ones(grid.shape, bool)), raster.ravel()
    heatmap = Heatmap(grid, cells, np.ones(len(cells), np.float32), {"model": values})
    regions = find_regions(heatmap, "model", threshold=0.5, label="Tumor")
    write_geojson(target, regions, bounds_yx=grid.bounds_yx)
    features = json.loads(target.read_text())["features"]
    (ring,) = (ring for feature in features for ring in feature["geometry"]["coordinates"])
    y, x = np.array(drawing.center_yx) - drawing.corner_yx
    places = np.stack(
        np.meshgrid(np.arange(0, drawing.view_yx[1], 3), np.arange(0, drawing.view_yx[0], 3)), -1
    )
    truth = np.hypot(places[..., 0] - x, places[..., 1] - y) < drawing.radius
    mapped = Outlined(ring).contains_points(places.reshape(-1, 2)).reshape(truth.shape)
    assert (mapped & truth).sum() / (mapped | truth).sum() > 0.93


def test_a_mask_states_its_origin_where_outlines_of_the_slide_count_from_the_canvas(folder: Path) -> None:
    """Files of QuPath and of TRIDENT look alike."""
    mask = folder / "masks/a.geojson"
    _qupath(mask, DRAWING, DRAWING.corner_yx)
    mask.write_text(mask.read_text().replace("Tumor", "tissue"))
    assert own.pretraining_slides(folder)["outlines"].tolist() == [str(mask)]
    (folder / "slides.csv").write_text("slide_id,path,annotation_origin\na,a.scn,canvas\n")
    with pytest.raises(
        ValueError, match=r"masks/a\.geojson: annotation_origin of this slide is canvas, and the file"
    ):
        own.pretraining_slides(folder)
    bare = mask.read_text()
    mask.write_text(f"{bare[:-1]}, {statement(DRAWING.corner_yx)}}}")
    assert own.pretraining_slides(folder)["outlines"].tolist() == [str(mask)]
    mask.write_text(bare)
    replace(DRAWING, corner_yx=(0, 0)).write(folder / "a.scn")
    assert own.pretraining_slides(folder)["outlines"].tolist() == [str(mask)]
