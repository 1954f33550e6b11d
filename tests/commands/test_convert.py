from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from histo_monai.pipeline.commands import convert
from histo_monai.slides.annotations import (
    Frame,
    Point,
    Region,
    rasterize,
    rasterize_regions,
    read_annotations,
    read_asap_xml,
    write_annotations,
    write_asap_xml,
)
from tests.slides.drawn_scn import Drawing

BOX = np.array([(0, 0), (0, 10), (10, 10), (10, 0)], float)
SCN = Drawing((128, 192), (500, 700), (900, 1100), (560, 760), 40)


def test_the_real_outline_with_decimal_commas_goes_to_geojson_and_back_and_covers_the_same_pixels(
    real_slides: Path, tmp_path: Path
) -> None:
    source = real_slides / "asap-example.xml"
    convert.run(str(source), str(tmp_path / "a.geojson"))
    convert.run(str(tmp_path / "a.geojson"), str(tmp_path / "b.xml"))
    truth = rasterize(read_asap_xml(source).outlines, downsample=2, shape=(345, 736))
    assert truth.mean() > 0.01
    for name in ("a.geojson", "b.xml"):
        regions, _ = read_annotations(tmp_path / name)
        np.testing.assert_array_equal(rasterize_regions(regions, downsample=2, shape=truth.shape), truth)


def test_classes_holes_and_points_come_through_both_ways(tmp_path: Path) -> None:
    regions = [Region(BOX, (BOX / 4 + 2,), "Tumor", "first"), Region(BOX + 20, label="Stroma", name="second")]
    points = [Point((1, 2), "Mitosis"), Point((3.5, 4))]
    write_annotations(tmp_path / "a.geojson", regions, points, bounds_yx=None)
    convert.run(str(tmp_path / "a.geojson"), str(tmp_path / "b.xml"))
    convert.run(str(tmp_path / "b.xml"), str(tmp_path / "c.geojson"))
    assert (tmp_path / "c.geojson").read_bytes() == (tmp_path / "a.geojson").read_bytes()


def test_colors_that_somebody_chose_come_through_both_ways(tmp_path: Path) -> None:
    chosen = (12, 200, 255)
    regions = [Region(BOX, (), "Tumor", "first", color=chosen), Region(BOX + 20, (), "Stroma", "second")]
    points = [Point((1, 2), "Mitosis", color=(1, 2, 3))]
    write_annotations(tmp_path / "a.geojson", regions, points, bounds_yx=None)
    convert.run(str(tmp_path / "a.geojson"), str(tmp_path / "b.xml"))
    assert '<Group Name="Tumor" PartOfGroup="None" Color="#0cc8ff">' in (tmp_path / "b.xml").read_text()
    convert.run(str(tmp_path / "b.xml"), str(tmp_path / "c.geojson"))
    assert (tmp_path / "c.geojson").read_bytes() == (tmp_path / "a.geojson").read_bytes()
    back, places = read_annotations(tmp_path / "c.geojson")
    assert [region.color for region in back] == [chosen, None]
    assert places[0].color == (1, 2, 3)


@pytest.mark.parametrize(
    ("classification", "color"),
    [
        ('{"name": "T", "color": [1, 2, 3]}', (1, 2, 3)),
        ('{"name": "T", "colorRGB": -16711681}', (0, 255, 255)),  # as QuPath 0.3 packs it
        ('{"name": "T", "color": [1, 2, 300]}', None),
        ('{"name": "T", "color": "red"}', None),
        ('{"name": "T", "colorRGB": 1.5}', None),
        ('"T"', None),
    ],
)
def test_a_color_is_read_where_it_is_one(
    tmp_path: Path, classification: str, color: tuple[int, int, int] | None
) -> None:
    write_annotations(tmp_path / "a.geojson", [Region(BOX, label="T")])
    text = (tmp_path / "a.geojson").read_text()
    start = text.index('"classification":') + len('"classification":')
    end = text.index("}", start) + 1
    (tmp_path / "b.geojson").write_text(text[:start] + classification + text[end:])
    ((region,), _) = read_annotations(tmp_path / "b.geojson")
    assert region.color == color


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    write_annotations(tmp_path / "a.geojson", [Region(BOX)])
    (tmp_path / "b.xml").write_text("mine")
    with pytest.raises(ValueError, match=r"b\.xml: exists, and"):
        convert.run(str(tmp_path / "a.geojson"), str(tmp_path / "b.xml"))
    assert (tmp_path / "b.xml").read_text() == "mine"
    (tmp_path / "b.xml").unlink()
    (tmp_path / "b.xml").symlink_to("not-there-yet.xml")
    with pytest.raises(ValueError, match=r"b\.xml: is a link"):
        convert.run(str(tmp_path / "a.geojson"), str(tmp_path / "b.xml"))
    assert (tmp_path / "b.xml").is_symlink()


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("none.geojson", "b.xml", r"none\.geojson: cannot be read"),
        ("a.geojson", "b.svg", r"b\.svg: unknown suffix"),
        ("a.svg", "b.xml", r"a\.svg: unknown suffix"),
    ],
)
def test_what_cannot_be_converted_is_one_line_and_leaves_no_file(
    tmp_path: Path, source: str, target: str, message: str
) -> None:
    write_annotations(tmp_path / "a.geojson", [Region(BOX)])
    with pytest.raises(ValueError, match=message):
        convert.run(str(tmp_path / source), str(tmp_path / target))
    assert [path.name for path in tmp_path.iterdir()] == ["a.geojson"]


def test_between_qupath_and_asap_the_bounds_of_the_slide_are_added_and_taken_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slide = str(SCN.write(tmp_path / "a.scn"))
    write_asap_xml(tmp_path / "a.xml", [Region(BOX + np.array([500, 700]), label="Tumor")])
    convert.run(str(tmp_path / "a.xml"), str(tmp_path / "b.geojson"), slide)
    content = json.loads((tmp_path / "b.geojson").read_text())
    assert content["histo_monai"] == {"origin": "bounds", "bounds_xy": [700, 500]}
    ((*corners, _),) = content["features"][0]["geometry"]["coordinates"]
    assert corners == BOX[:, ::-1].tolist()
    del content["histo_monai"]  # as QuPath exports it
    (tmp_path / "c.geojson").write_text(json.dumps(content))
    convert.run(str(tmp_path / "c.geojson"), str(tmp_path / "d.xml"), slide)
    assert (tmp_path / "d.xml").read_bytes() == (tmp_path / "a.xml").read_bytes()
    assert "without the slide" not in caplog.text
    # TRIDENT writes GeoJSON that counts from the canvas.
    convert.run(str(tmp_path / "c.geojson"), str(tmp_path / "e.geojson"), slide, "canvas")
    ((*corners, _),) = json.loads((tmp_path / "e.geojson").read_text())["features"][0]["geometry"][
        "coordinates"
    ]
    assert corners == (BOX - np.array([500, 700]))[:, ::-1].tolist()


def test_without_the_slide_coordinates_stay_and_the_file_and_a_warning_state_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_asap_xml(tmp_path / "a.xml", [Region(BOX, label="Tumor")])
    convert.run(str(tmp_path / "a.xml"), str(tmp_path / "b.geojson"))
    content = json.loads((tmp_path / "b.geojson").read_text())
    assert content["histo_monai"] == {"origin": "canvas"}
    assert "--slide" in caplog.text
    ((region,), _) = read_annotations(tmp_path / "b.geojson", frame=Frame((500, 700)))
    assert (region.exterior_yx == BOX).all()


@pytest.mark.parametrize(
    ("slide", "origin", "message"),
    [
        (None, "canvas", "--origin canvas: the slide is missing"),
        ("a.scn", "corner", "--origin: 'corner' is unknown. Fix: give bounds or canvas"),
        ("none.scn", None, r"none\.scn: no such file"),
    ],
)
def test_a_wrong_origin_or_slide_is_one_line(
    tmp_path: Path, slide: str | None, origin: str | None, message: str
) -> None:
    SCN.write(tmp_path / "a.scn")
    write_annotations(tmp_path / "a.geojson", [Region(BOX)])
    path = None if slide is None else str(tmp_path / slide)
    with pytest.raises(ValueError, match=message):
        convert.run(str(tmp_path / "a.geojson"), str(tmp_path / "b.xml"), path, origin)
    assert not (tmp_path / "b.xml").exists()
