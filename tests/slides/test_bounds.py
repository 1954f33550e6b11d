"""Slides with bounds: what counts from the canvas, what from the bounds, and what each other program counts from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import openslide
import pytest

from histo_monai.data.readers.coordinates import read_patch_centers
from histo_monai.slides import Box, open_slide, tissue_mask
from histo_monai.slides.annotations import (
    BOUNDS,
    CANVAS,
    Frame,
    Point,
    Region,
    read_annotations,
    read_geojson,
    write_annotations,
    write_geojson,
)
from histo_monai.slides.annotations.outlines import read_regions
from histo_monai.slides.openslide_backend import _bounds_corner
from tests.slides.drawn_scn import Drawing

DRAWING = Drawing((600, 800), (500, 700), (1500, 2000), (500 + 250, 700 + 350), 150)
BOX = np.array([(10, 20), (10, 50.25), (40, 50.25), (40, 20)])


@pytest.fixture(scope="module")
def scn(module_folder: Any) -> Path:
    return DRAWING.write(module_folder("scn") / "a.scn")


def _seen_by_qupath(path: Path, x: float, y: float) -> np.ndarray:
    """The pixel that QuPath shows at x, y: its reader adds the four `openslide.bounds`' corner to what it asks for."""
    with openslide.OpenSlide(path) as slide:
        left, top = (int(slide.properties[f"openslide.bounds-{axis}"]) for axis in "xy")
        return np.asarray(slide.read_region((int(x) + left, int(y) + top), 0, (1, 1)))[0, 0, :3]


def _seen_by_openslide(path: Path, x: float, y: float) -> np.ndarray:
    """The pixel that ASAP, CLAM and TRIDENT show at x, y: they pass both to OpenSlide as they are."""
    with openslide.OpenSlide(path) as slide:
        return np.asarray(slide.read_region((int(x), int(y)), 0, (1, 1)))[0, 0, :3]


def _tumor(origin_yx: tuple[int, int]) -> list[Any]:
    """As GeoJSON: the disc of tumor, counted from a corner of the canvas."""
    return [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [DRAWING.outline_xy(origin_yx)]},
            "properties": {"objectType": "annotation", "classification": {"name": "Tumor"}},
        }
    ]


@pytest.mark.parametrize("name", ["a.scn", "a.tif"])
@pytest.mark.parametrize("macro_first", [False, True])
def test_an_scn_states_its_bounds_whatever_its_name(tmp_path: Path, name: str, macro_first: bool) -> None:
    path = DRAWING.write(tmp_path / name, macro_first=macro_first)
    with openslide.OpenSlide(path) as truth:
        stated = {key: truth.properties[f"openslide.{key}"] for key in ("vendor", "bounds-x", "bounds-y")}
    assert stated == {"vendor": "leica", "bounds-x": "700", "bounds-y": "500"}
    with open_slide(path) as slide:
        assert (slide.backend, slide.bounds_yx) == ("openslide", (500, 700))
        assert (slide.size_yx, slide.mpp, slide.objective_power) == (DRAWING.canvas_yx, DRAWING.mpp, 20)
        assert slide.level_downsamples == (1, 2, 4)
        side = 64
        patch = slide.read(Box((500 + 300, 700 + 400), side, DRAWING.mpp))
    half = side // 2
    truth_pixels = DRAWING.pixels()[300 - half : 300 + half, 400 - half : 400 + half]
    assert (patch == truth_pixels.transpose(2, 0, 1)).all()


def test_a_slide_without_bounds_counts_from_its_corner(tmp_path: Path) -> None:
    with open_slide(DRAWING.write_tiff(tmp_path / "a.tif")) as slide:
        assert slide.bounds_yx == (0, 0)


@pytest.mark.parametrize(
    ("change", "corner"),
    [
        ({}, (500, 700)),
        ({"x": "-3"}, (500, -3)),
        ({"x": "700.5"}, (0, 0)),
        ({"width": "wide"}, (0, 0)),
        ({"y": ""}, (0, 0)),
        ({"height": None}, (0, 0)),
    ],
)
def test_bounds_count_where_all_four_are_whole_numbers(
    change: Mapping[str, str | None], corner: tuple[int, int]
) -> None:
    stated = {"x": "700", "y": "500", "width": "80", "height": "60"} | dict(change)
    properties = {f"openslide.bounds-{key}": value for key, value in stated.items() if value is not None}
    assert _bounds_corner(properties) == corner


def test_glass_outside_of_the_bounds_is_no_tissue(scn: Path, tmp_path: Path) -> None:
    masks = []
    for path in (scn, DRAWING.write_tiff(tmp_path / "a.tif")):
        with open_slide(path) as slide:
            masks.append(tissue_mask(slide.thumbnail(4.0)))
    on_canvas, alone = masks
    (top, left), (height, width) = (np.array(DRAWING.corner_yx) // 8, alone.shape)
    inside = on_canvas[top : top + height + 1, left : left + width + 1]
    assert inside.sum() == on_canvas.sum()
    disc = np.pi * (DRAWING.TISSUE_RADII * DRAWING.radius / 8) ** 2
    assert on_canvas.sum() == pytest.approx(disc, rel=0.08)
    assert alone.sum() == pytest.approx(disc, rel=0.08)


def test_qupath_counts_from_the_corner_of_the_bounds(scn: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.geojson"
    features = _tumor(DRAWING.corner_yx)
    point = {"type": "Feature", "geometry": {"type": "Point", "coordinates": [350, 250]}, "properties": {}}
    path.write_text(json.dumps({"type": "FeatureCollection", "features": [*features, point]}))
    assert DRAWING.is_tumor(_seen_by_qupath(scn, 350, 250))
    with open_slide(scn) as slide:
        regions, points = read_annotations(path, frame=Frame(slide.bounds_yx))
        patch = slide.read(Box(points[0].yx, 8, slide.mpp))
    assert points[0].yx == DRAWING.center_yx
    assert DRAWING.is_tumor(patch.transpose(1, 2, 0)).all()
    distance = np.hypot(*(regions[0].exterior_yx - DRAWING.center_yx).T)
    assert distance == pytest.approx(DRAWING.radius)
    assert (read_regions(path, Frame(slide.bounds_yx))[0].exterior_yx == regions[0].exterior_yx).all()


def test_asap_counts_from_the_corner_of_the_canvas(scn: Path, tmp_path: Path) -> None:
    y, x = DRAWING.center_yx
    assert DRAWING.is_tumor(_seen_by_openslide(scn, x, y))
    places = "".join(
        f'<Coordinate Order="{order}" X="{px}" Y="{py}" />'
        for order, (px, py) in enumerate(DRAWING.outline_xy((0, 0))[:-1])
    )
    path = tmp_path / "a.xml"
    path.write_text(
        '<?xml version="1.0"?><ASAP_Annotations><Annotations><Annotation Name="t" Type="Polygon" PartOfGroup="Tumor">'
        f"<Coordinates>{places}</Coordinates></Annotation></Annotations></ASAP_Annotations>"
    )
    frame = Frame(DRAWING.corner_yx)
    for regions in (read_annotations(path, frame=frame)[0], read_regions(path, frame)):
        assert np.hypot(*(regions[0].exterior_yx - DRAWING.center_yx).T) == pytest.approx(DRAWING.radius)


@pytest.mark.parametrize(
    "about",
    [
        {"patch_size": 32, "patch_level": 0},
        {"patch_size": 16, "patch_level": 1, "downsample": (2.0, 2.0)},
        {"patch_size": 64, "patch_size_level0": 32},
    ],
    ids=["CLAM", "CLAM level 1", "TRIDENT"],
)
def test_clam_and_trident_count_from_the_corner_of_the_canvas(
    scn: Path, tmp_path: Path, about: Mapping[str, Any]
) -> None:
    y, x = (int(place) for place in DRAWING.center_yx)
    assert DRAWING.is_tumor(_seen_by_openslide(scn, x, y))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        coords = file.create_dataset("coords", data=np.array([(x - 16, y - 16), (x + 84, y - 16)]))
        coords.attrs.update(about)
    centers = read_patch_centers(tmp_path / "a.h5")
    assert centers.tolist() == [[y, x], [y, x + 100]]
    with open_slide(scn) as slide, openslide.OpenSlide(scn) as truth:
        patches = slide.read_many([Box((py, px), 32, slide.mpp) for py, px in centers])
        for patch, (py, px) in zip(patches, centers.astype(int), strict=True):
            seen = np.asarray(truth.read_region((int(px) - 16, int(py) - 16), 0, (32, 32)))
            assert (patch.transpose(1, 2, 0) == seen[..., :3]).all()


def test_what_is_written_for_qupath_is_shown_where_it_lies(scn: Path, tmp_path: Path) -> None:
    y, x = DRAWING.center_yx
    region = Region(np.array([(y, x), (y, x + 9), (y + 9, x)]), (BOX / 9 + np.array([y, x]),), "Tumor", "a")
    write_geojson(tmp_path / "a.geojson", [region], [Point((y, x), "Tumor")], (500, 700))
    content = json.loads((tmp_path / "a.geojson").read_text())
    assert content["histo_monai"] == {"origin": BOUNDS, "bounds_xy": [700, 500]}
    assert content["features"][1]["geometry"]["coordinates"] == [x - 700, y - 500]
    assert content["features"][0]["geometry"]["coordinates"][0][0] == [x - 700, y - 500]
    assert DRAWING.is_tumor(_seen_by_qupath(scn, *content["features"][1]["geometry"]["coordinates"]))
    for frame in (Frame((500, 700)), Frame((500, 700), BOUNDS), Frame(None)):
        regions, points = read_geojson(tmp_path / "a.geojson", frame=frame)
        assert points[0].yx == (y, x)
        assert (regions[0].exterior_yx == region.exterior_yx).all()
        assert regions[0].holes_yx[0] == pytest.approx(region.holes_yx[0])
        assert (regions[0].label, regions[0].name) == ("Tumor", "a")


@pytest.mark.parametrize(
    ("stated", "given", "corner"),
    [
        (None, "", (500, 700)),
        (None, BOUNDS, (500, 700)),
        (None, CANVAS, (0, 0)),
        ({"origin": CANVAS}, "", (0, 0)),
        ({"origin": BOUNDS}, "", (500, 700)),
        ({"origin": BOUNDS, "bounds_xy": [700, 500]}, BOUNDS, (500, 700)),
        ({"origin": CANVAS, "bounds_xy": [1, 2]}, CANVAS, (0, 0)),
    ],
)
def test_the_origin_is_what_is_stated_else_that_of_the_program(
    tmp_path: Path, stated: Any, given: str, corner: tuple[int, int]
) -> None:
    content = {"type": "FeatureCollection", "features": _tumor(corner)}
    (tmp_path / "a.geojson").write_text(json.dumps(content | ({"histo_monai": stated} if stated else {})))
    ((region,), _) = read_geojson(tmp_path / "a.geojson", frame=Frame((500, 700), given))
    assert np.hypot(*(region.exterior_yx - DRAWING.center_yx).T) == pytest.approx(DRAWING.radius)


@pytest.mark.parametrize("given", ["", CANVAS])
def test_asap_outlines_may_be_stated_to_count_from_the_bounds(tmp_path: Path, given: str) -> None:
    write_annotations(tmp_path / "a.xml", [Region(BOX, label="Tumor")])
    ((region,), _) = read_annotations(tmp_path / "a.xml", frame=Frame((500, 700), BOUNDS))
    assert (region.exterior_yx == BOX + np.array([500, 700])).all()
    ((region,), _) = read_annotations(tmp_path / "a.xml", frame=Frame((500, 700), given))
    assert (region.exterior_yx == BOX).all()


@pytest.mark.parametrize(
    ("stated", "given"),
    [
        ({"origin": BOUNDS}, CANVAS),
        ({"origin": CANVAS}, BOUNDS),
        ({"origin": BOUNDS, "bounds_xy": [500, 700]}, ""),
        ({"origin": BOUNDS, "bounds_xy": [0, 0]}, ""),
        ({"origin": BOUNDS, "bounds_xy": [700]}, ""),
        ({"origin": BOUNDS, "bounds_xy": [700.5, 500]}, ""),
        ({"origin": BOUNDS, "bounds_xy": [1e300, 500]}, ""),
        ({"origin": BOUNDS, "bounds_xy": "700, 500"}, ""),
        ({"origin": "middle"}, ""),
        ({"origin": ["bounds"]}, ""),
        ({}, ""),
        ("bounds at 700", ""),
        ([1], ""),
    ],
)
def test_a_statement_that_contradicts_or_is_none_is_one_line(tmp_path: Path, stated: Any, given: str) -> None:
    content = {"type": "FeatureCollection", "features": _tumor((0, 0)), "histo_monai": stated}
    (tmp_path / "a.geojson").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"a\.geojson: .* Fix: ") as error:
        read_geojson(tmp_path / "a.geojson", frame=Frame((500, 700), given))
    assert "\n" not in str(error.value)
