from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from histo_monai.slides.annotations import LeftOut, Point, Region, read_geojson, write_geojson
from histo_monai.utils.errors import InputError

SQUARE = [[0, 0], [8, 0], [8, 4], [0, 4], [0, 0]]
HOLE = [[1, 1], [1, 2], [2, 2], [2, 1], [1, 1]]
POLYGON = {"type": "Polygon", "coordinates": [SQUARE, HOLE]}


def feature(geometry: Any, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "id": "a-b-c", "geometry": geometry, "properties": properties}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Any], Path]:
    def write(content: Any) -> Path:
        path = tmp_path / "slide.geojson"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def test_what_is_written_is_what_qupath_imports(tmp_path: Path) -> None:
    region = Region(
        np.array([(0.5, 1), (0.5, 9), (7, 9)]),
        (np.array([(1, 3.25), (2, 4), (1, 4)]),),
        "Tumor",
        "near the edge",
        {"score": 0.25},
    )
    path = tmp_path / "new" / "a.geojson"
    write_geojson(path, [region, Region(np.eye(3, 2))], [Point((5, 6.5), "Cell: Mitosis", {"n": 2})])
    written = json.loads(path.read_text())
    assert written["type"] == "FeatureCollection"
    full, bare, point = written["features"]
    assert full["geometry"] == {
        "type": "Polygon",
        "coordinates": [
            [[1, 0.5], [9, 0.5], [9, 7], [1, 0.5]],  # x before y, and closed
            [[3.25, 1], [4, 2], [4, 1], [3.25, 1]],
        ],
    }
    color = full["properties"]["classification"].pop("color")
    assert len(color) == 3
    assert all(isinstance(part, int) and 0 <= part <= 255 for part in color)
    assert full["properties"] == {
        "objectType": "annotation",
        "name": "near the edge",
        "classification": {"name": "Tumor"},
        "measurements": {"score": 0.25},
    }
    assert bare["properties"] == {"objectType": "annotation"}
    assert point["geometry"] == {"type": "Point", "coordinates": [6.5, 5]}
    assert point["properties"]["objectType"] == "detection"
    assert point["properties"]["classification"]["names"] == ["Cell", "Mitosis"]
    assert point["properties"]["measurements"] == {"n": 2}
    assert {one["type"] for one in written["features"]} == {"Feature"}


def test_what_was_written_is_read_to_the_last_digit_and_writing_it_again_changes_no_byte(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(0)
    regions = [
        Region(
            rng.uniform(-5, 1e5, (5, 2)), (rng.normal(size=(3, 2)),), "Tumor: Positive", "ä\n", {"p": 1 / 3}
        ),
        Region(rng.integers(0, 99, (4, 2)).astype(float)),
    ]
    points = [Point((1 / 3, 2.0), "x", {"a b": 1e-9}), Point((0.0, 0.0))]
    write_geojson(tmp_path / "a.geojson", regions, points)
    again, points_again = read_geojson(tmp_path / "a.geojson")
    for one, other in zip(regions, again, strict=True):
        np.testing.assert_array_equal(one.exterior_yx, other.exterior_yx)
        assert len(one.holes_yx) == len(other.holes_yx)
        for hole, hole_again in zip(one.holes_yx, other.holes_yx, strict=True):
            np.testing.assert_array_equal(hole, hole_again)
        assert (one.label, one.name, one.measurements) == (other.label, other.name, other.measurements)
    assert points_again == points
    write_geojson(tmp_path / "b.geojson", again, points_again)
    assert (tmp_path / "b.geojson").read_bytes() == (tmp_path / "a.geojson").read_bytes()


@pytest.mark.parametrize(
    ("region", "point", "message"),
    [
        (Region(np.array([(0, 0), (0, np.nan), (1, 1)])), Point((0, 0)), "region 1: a coordinate"),
        (
            Region(np.eye(3, 2), measurements={"p": np.inf}),
            Point((0, 0)),
            "region 1: a coordinate or a measurement",
        ),
        (Region(np.eye(2, 2)), Point((0, 0)), "region 1: an outline of 2 points"),
        (Region(np.eye(3, 2), (np.empty((0, 2)),)), Point((0, 0)), "region 1: an outline of 0 points"),
        (Region(np.eye(3, 2)), Point((0, np.inf)), "point 1: a coordinate"),
    ],
)
def test_what_cannot_be_written_is_named_and_the_file_before_it_stays(
    tmp_path: Path, region: Region, point: Point, message: str
) -> None:
    path = tmp_path / "a.geojson"
    path.write_text("before")
    with pytest.raises(ValueError, match=f"a.geojson, {message}"):
        write_geojson(path, [region], [point])
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["a.geojson"]


@pytest.mark.parametrize("wrap", ["collection", "list", "feature"])
def test_a_collection_a_list_and_one_feature_are_the_same(write: Callable[[Any], Path], wrap: str) -> None:
    one = feature(POLYGON, objectType="annotation", classification={"name": "Stroma", "color": [1, 2, 3]})
    content = {"collection": {"type": "FeatureCollection", "features": [one]}, "list": [one], "feature": one}
    ((region,), points) = read_geojson(write(content[wrap]))
    assert points == []
    assert region.label == "Stroma"
    assert region.exterior_yx.tolist() == [[0, 0], [0, 8], [4, 8], [4, 0]]  # y before x, and open
    assert [hole.tolist() for hole in region.holes_yx] == [[[1, 1], [2, 1], [2, 2], [1, 2]]]


@pytest.mark.parametrize(
    ("properties", "label"),
    [
        ({}, ""),
        ({"classification": None}, ""),
        ({"classification": {"name": None, "color": [0, 0, 0]}}, ""),
        ({"classification": {"name": "Tumor", "colorRGB": -3670016}}, "Tumor"),
        ({"classification": "Tumor"}, "Tumor"),
        ({"classification": '{"name": "Tumor", "colorRGB": -3670016}'}, "Tumor"),  # of GeoPandas
        ({"classification": {"name": "Tumor: Positive", "color": [0, 0, 0]}}, "Tumor: Positive"),
        ({"classification": {"names": ["Tumor", "Positive"], "color": [0, 0, 0]}}, "Tumor: Positive"),
        ({"classification": {"parentClass": {"name": "Tumor"}, "name": "Positive"}}, "Tumor: Positive"),
    ],
)
def test_a_class_is_read_as_old_and_new_versions_write_it(
    write: Callable[[Any], Path], properties: dict[str, Any], label: str
) -> None:
    assert read_geojson(write([feature(POLYGON, **properties)]))[0][0].label == label


@pytest.mark.parametrize("text", ["{'name': 'Tumor', 'colorRGB': np.int32(255)}", "{", "{" * 100_000])
def test_an_object_that_is_written_as_text_and_is_no_json_is_no_class(
    write: Callable[[Any], Path], text: str
) -> None:
    with pytest.raises(InputError, match=r"feature 1.* JSON"):
        read_geojson(write([feature(POLYGON, classification=text)]))


@pytest.mark.parametrize(
    "measurements",
    [
        {"Area µm^2": 12.5, "Circularity": "NaN", "Length": None},
        [{"name": "Area µm^2", "value": 12.5}, {"name": "Circularity", "value": "NaN"}],
    ],
)
def test_measurements_are_read_from_a_table_or_a_list_without_those_that_are_no_number(
    write: Callable[[Any], Path], measurements: Any
) -> None:
    (region,) = read_geojson(write([feature(POLYGON, measurements=measurements)]))[0]
    assert region.measurements == {"Area µm^2": 12.5}


def test_several_polygons_and_points_of_one_feature_share_its_class_and_children_follow(
    write: Callable[[Any], Path],
) -> None:
    child = feature({"type": "Point", "coordinates": [3, 4, 0]}, classification={"name": "Mitosis"})
    parts = feature(
        {"type": "MultiPolygon", "coordinates": [[SQUARE, HOLE], [HOLE]]},
        classification={"name": "Tumor"},
        childObjects=[child],
    )
    dots = feature({"type": "MultiPoint", "coordinates": [[1, 2], [5, 6]]})
    regions, points = read_geojson(write([parts, dots]))
    assert [(one.label, len(one.holes_yx)) for one in regions] == [("Tumor", 1), ("Tumor", 0)]
    assert [(one.label, one.yx) for one in points] == [("Mitosis", (4, 3)), ("", (2, 1)), ("", (6, 5))]


def test_lines_are_left_out_and_a_warning_states_how_many(
    write: Callable[[Any], Path], caplog: pytest.LogCaptureFixture
) -> None:
    line = feature({"type": "LineString", "coordinates": [[0, 0], [1, 1]]})
    with caplog.at_level(logging.WARNING):
        regions, _ = read_geojson(write([line, feature(POLYGON), line]))
    assert len(regions) == 1
    assert "2 shapes of type LineString left out: 'feature 1', 'feature 3'" in caplog.text


def test_a_collection_of_geometries_is_each_of_them_with_the_class_of_the_feature(
    write: Callable[[Any], Path],
) -> None:
    inner = {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [3, 4]}]}
    whole = {"type": "GeometryCollection", "geometries": [POLYGON, inner, POLYGON]}
    regions, points = read_geojson(write([feature(whole, classification={"name": "Tumor"})]))
    assert [one.label for one in regions] == ["Tumor", "Tumor"]
    assert points == [Point((4, 3), "Tumor")]
    np.testing.assert_array_equal(regions[1].exterior_yx, regions[0].exterior_yx)


@pytest.mark.parametrize("geometry", [POLYGON, {"type": "GeometryCollection", "geometries": [POLYGON]}])
def test_a_geometry_alone_is_a_region_without_class(
    write: Callable[[Any], Path], geometry: dict[str, Any]
) -> None:
    (region,) = read_geojson(write(geometry))[0]
    assert region.label == ""
    np.testing.assert_array_equal(
        region.exterior_yx, read_geojson(write([feature(POLYGON)]))[0][0].exterior_yx
    )


EMPTY: list[Any] = [
    None,
    {"type": "Polygon", "coordinates": []},
    {"type": "MultiPolygon", "coordinates": []},
    {"type": "Point", "coordinates": []},
    {"type": "GeometryCollection", "geometries": []},
    {"type": "GeometryCollection", "geometries": [None, {"type": "MultiPoint", "coordinates": []}]},
]


@pytest.mark.parametrize("geometry", EMPTY)
def test_a_feature_of_null_or_empty_geometry_is_counted_and_its_children_are_read(
    write: Callable[[Any], Path], geometry: Any
) -> None:
    left_out: list[LeftOut] = []
    parent = feature(geometry, childObjects=[feature({"type": "Point", "coordinates": [3, 4]})])
    regions, points = read_geojson(write([feature(POLYGON), parent]), left_out.append)
    assert (len(regions), [one.yx for one in points]) == (1, [(4, 3)])
    assert [(one.kind, one.why, one.names) for one in left_out] == [
        ("feature", "without geometry", ("feature 2",))
    ]


def test_a_file_without_feature_is_counted(write: Callable[[Any], Path]) -> None:
    left_out: list[LeftOut] = []
    path = write({"type": "FeatureCollection", "features": []})
    assert read_geojson(path, left_out.append) == ([], [])
    assert [(one.path, one.kind, one.why) for one in left_out] == [(path, "file", "without annotation")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ({"type": "Topology"}, "not GeoJSON"),
        ("3", "not GeoJSON"),
        ([POLYGON], "feature 1: not a feature"),
        ([feature(POLYGON), feature({"coordinates": SQUARE})], "feature 2: its geometry has no type"),
        ([feature({"type": "Polygon"})], "feature 1: None is not a list of outlines"),
        ([feature({"type": "MultiPolygon", "coordinates": [[]]})], "feature 1: a polygon without an outline"),
        ([feature({"type": "GeometryCollection", "geometries": 3})], "feature 1: 3.0 is not a list of geom"),
        ([feature({"type": "GeometryCollection", "geometries": [3]})], "feature 1: its geometry has no type"),
        ([feature({"type": "Polygon", "coordinates": SQUARE})], r"feature 1: 0\.0 is no coordinate"),
        (
            '[{"type":"Feature","geometry":{"type":"Point","coordinates":[NaN,1]}}]',
            r"feature 1: \[nan, 1\.0\] is no coordinate",
        ),
        ([feature({"type": "Point", "coordinates": ["1", 2]})], r"feature 1: \['1', 2\.0\] is no coordinate"),
        ([feature({"type": "Point", "coordinates": [True, 2]})], "feature 1: "),
        ([feature({"type": "MultiPolygon", "coordinates": [SQUARE]})], r"feature 1: 0\.0 is no"),
        ([feature(POLYGON, classification=3)], "feature 1: its classification"),
        ([feature(POLYGON, measurements=3)], "feature 1: its measurements"),
        ([feature(POLYGON, childObjects=[feature(3)])], "feature 1, child 1: its geometry"),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_feature(
    write: Callable[[Any], Path], content: Any, message: str
) -> None:
    path = write(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_geojson(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 150


def test_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.geojson: cannot be read"):
        read_geojson(tmp_path / "none.geojson")
