"""Laws that hold for any regions, masks and boxes, looked for by hypothesis."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from histo_monai.slides.annotations import (
    Outline,
    Point,
    Region,
    asap_regions,
    mask_regions,
    rasterize,
    rasterize_each,
    rasterize_regions,
    read_asap_xml,
    read_geojson,
    write_annotations,
)
from histo_monai.slides.annotations.areas import enclose_area
from histo_monai.slides.annotations.boxes import BoxTree

FEW = settings(deadline=None, max_examples=40, derandomize=True)

coordinates = st.floats(-1e9, 1e9, allow_subnormal=False) | st.integers(-300, 300).map(float)
labels = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cn", "Zl", "Zp", "Zs"), exclude_characters=":"), max_size=9
).filter(lambda text: text not in ("_2", "Exclusion", "None") and text == text.strip())
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=9)
numbers = st.dictionaries(names, st.floats(allow_nan=False, allow_infinity=False), max_size=2)


def outlines(values: st.SearchStrategy[float] = coordinates) -> st.SearchStrategy[np.ndarray]:
    """With an area, and not closed by their last point, as readers give them."""
    points = st.lists(st.tuples(values, values), min_size=3, max_size=8).map(np.array)
    return points.filter(lambda some: enclose_area([some])[0] and (some[0] != some[-1]).any())


regions = st.builds(Region, outlines(), st.lists(outlines(), max_size=2).map(tuple), labels, names, numbers)
points = st.builds(Point, st.tuples(coordinates, coordinates), labels, numbers)
small = st.integers(-8, 24).map(lambda value: value / 2)


@FEW
@given(st.lists(regions, max_size=3), st.lists(points, max_size=2))
def test_any_regions_and_points_come_back_from_geojson(some: list[Region], marks: list[Point]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.geojson"
        write_annotations(path, some, marks)
        again, marks_again = read_geojson(path)
    assert marks_again == marks
    for one, other in zip(some, again, strict=True):
        assert (one.label, one.name, one.measurements) == (other.label, other.name, other.measurements)
        np.testing.assert_array_equal(one.exterior_yx, other.exterior_yx)
        for hole, hole_again in zip(one.holes_yx, other.holes_yx, strict=True):
            np.testing.assert_array_equal(hole, hole_again)


@FEW
@given(st.lists(st.tuples(outlines(), labels), min_size=1, max_size=3), st.lists(points, max_size=2))
def test_any_outlines_and_points_come_back_from_asap(
    some: list[tuple[np.ndarray, str]], marks: list[Point]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xml"
        write_annotations(path, [Region(points_yx, label=label) for points_yx, label in some], marks)
        annotations = read_asap_xml(path)
    assert [(one.yx, one.label) for one in annotations.points] == [(one.yx, one.label) for one in marks]
    for (points_yx, label), again in zip(some, asap_regions(annotations), strict=True):
        np.testing.assert_array_equal(points_yx, again.exterior_yx)
        assert again.label == label


def winding(outline: np.ndarray, y: float, x: float) -> int:
    """How often an outline goes around a place: the edges to its left, up less down."""
    points_yx = outline.tolist()
    turns = 0
    for (y0, x0), (y1, x1) in zip(points_yx, points_yx[1:] + points_yx[:1], strict=True):
        if (y0 <= y) != (y1 <= y) and x0 + (y - y0) / (y1 - y0) * (x1 - x0) < x:
            turns += 1 if y1 > y0 else -1
    return turns


def inside(region: Region, y: float, x: float) -> bool:
    holes = any(winding(hole, y, x) for hole in region.holes_yx)
    return winding(region.exterior_yx, y, x) != 0 and not holes


# Off the middles of pixels, where it is nobody's business which side of a line a place is on.
places = st.integers(-40, 120).map(lambda value: value * 0.0918273 + np.pi / 1000)
shapes = st.builds(Region, outlines(places), st.lists(outlines(places), max_size=2).map(tuple), st.just(""))


@FEW
@given(st.lists(shapes, max_size=4), st.tuples(st.integers(-3, 3), st.integers(-3, 3)))
def test_pixels_are_inside_as_by_a_loop_over_edges(some: list[Region], corner: tuple[int, int]) -> None:
    mask = rasterize_regions(some, downsample=1, shape=(7, 8), corner_yx=corner)
    each = rasterize_each(
        some, downsample=1, shape=(7, 8), corners_yx=np.tile(np.array(corner, float), (len(some), 1))
    )
    truth = np.zeros((len(some), 7, 8), bool)
    for number, y, x in np.ndindex(truth.shape):
        truth[number, y, x] = inside(some[number], y + corner[0] + 0.5, x + corner[1] + 0.5)
    np.testing.assert_array_equal(each, truth)
    np.testing.assert_array_equal(mask, truth.any(axis=0))


@FEW
@given(st.lists(shapes, min_size=1, max_size=3))
def test_whole_pixels_are_inside_and_untouched_ones_outside(some: list[Region]) -> None:
    areas = [Outline("", "", one.exterior_yx) for one in some]
    holes = [Outline("", "", hole) for one in some for hole in one.holes_yx]
    center, whole, touched = (
        rasterize(areas, holes, downsample=1, shape=(7, 8), rule=rule)
        for rule in ("center", "whole", "touched")
    )
    assert not (whole & ~center).any()
    assert not (center & ~touched).any()
    fine = rasterize(areas, holes, downsample=1 / 8, shape=(56, 64)).reshape(7, 8, 8, 8).mean((1, 3))
    assert (fine[whole] == 1).all()
    assert (fine[~touched] == 0).all()


@FEW
@given(
    arrays.arrays(bool, st.tuples(st.integers(1, 12), st.integers(1, 12))),
    st.sampled_from([1.0, 4.0, 1 / 3, 37.03]),
    st.tuples(st.integers(-4, 4), st.integers(-4, 4)),
)
def test_any_mask_comes_back_from_its_regions(
    mask: np.ndarray, downsample: float, corner: tuple[int, int]
) -> None:
    result = mask_regions(mask, downsample, corner_yx=corner)
    window = {"downsample": downsample, "shape": mask.shape, "corner_yx": corner}
    np.testing.assert_array_equal(rasterize_regions(result, **window), mask)
    assert enclose_area([points for one in result for points in (one.exterior_yx, *one.holes_yx)]).all()
    assert mask.any() or not result


@FEW
@given(st.lists(st.tuples(small, small), max_size=9))
def test_an_outline_has_an_area_where_pixels_see_one(some: list[tuple[float, float]]) -> None:
    outline = np.add(np.reshape(some, (-1, 2)), (0.0123, 0.0077))  # Off the middles of pixels.
    seen = len(outline) > 0 and rasterize(
        [Outline("", "", outline)], downsample=1 / 8, shape=(160, 160), corner_yx=(-40, -40)
    )
    if np.any(seen):
        assert enclose_area([outline])[0]


@pytest.mark.parametrize(
    ("outline", "has_area"),
    [
        ([], False),
        ([(3, 3)], False),
        ([(0, 0), (4, 9)], False),
        ([(3, 3)] * 5, False),
        ([(0, 0), (4, 9), (0, 0), (4, 9)], False),
        ([(0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (1e5, 1e5)], False),
        ([(0, 0), (0, 8), (8, 8), (0, 8)], False),  # there and back around a corner
        ([(0, 0), (0, 8), (0, 4), (3, 4), (0, 4)], False),  # a T
        ([(0, 0), (8, 8), (0, 8), (8, 0)], True),  # a bow tie, whose signed area is none
        ([(1e8, 1e8), (1e8, 1e8 + 1), (1e8 + 1, 1e8)], True),
        ([(0, 0), (0, 1e5), (0.001, 5e4)], True),  # a needle
    ],
)
def test_outlines_with_and_without_an_area_are_distinguished(
    outline: list[tuple[float, float]], has_area: bool
) -> None:
    points_yx = np.array(outline, float).reshape(-1, 2)
    square = np.array([(0, 0), (0, 1), (1, 1)], float)
    assert enclose_area([square, points_yx, square]).tolist() == [True, has_area, True]


boxes = st.tuples(small, small, st.integers(0, 40), st.integers(0, 40), st.integers(0, 2))


@FEW
@given(st.lists(boxes, max_size=70), st.lists(boxes, max_size=9), st.booleans())
def test_a_tree_of_boxes_finds_what_comparing_each_with_each_finds(
    some: list[tuple[float, ...]], asked: list[tuple[float, ...]], labeled: bool
) -> None:
    (low, high, label), (low_asked, high_asked, label_asked) = (
        (table[:, :2], table[:, :2] + table[:, 2:4], table[:, 4].astype(np.int64))
        for table in (np.array(rows, float).reshape(-1, 5) for rows in (some, asked))
    )
    tree = BoxTree(low, high, label) if labeled else BoxTree(low, high)
    result = list(tree.pairs(low_asked, high_asked, label_asked if labeled else None))
    truth = [
        (number, other)
        for number in range(len(asked))
        for other in range(len(some))
        if (low[other] < high_asked[number]).all()
        and (high[other] > low_asked[number]).all()
        and (not labeled or label[other] != label_asked[number])
    ]
    assert result == truth


def test_heaps_of_boxes_are_split_where_too_many_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("histo_monai.slides.annotations.boxes._MOST_PAIRS", 50)
    low = np.random.default_rng(0).uniform(0, 10, (300, 2))
    result = list(BoxTree(low, low + 3).pairs(low, low + 3))
    near = (np.abs(low[:, None] - low[None]) < 3).all(axis=2)
    assert result == [tuple(pair) for pair in np.argwhere(near).tolist()]
