from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from skimage import measure

from histo_monai.slides.annotations import (
    Annotations,
    Outline,
    Point,
    Region,
    asap_regions,
    rasterize,
    rasterize_regions,
    read_annotations,
    read_asap_xml,
    write_annotations,
    write_asap_xml,
)

BOX = np.array([(0, 0), (0, 10), (10, 10), (10, 0)], float)
HOLE = np.array([(2, 2), (2, 4), (4, 4), (4, 2)], float)


def drawn(*outlines: tuple[str, np.ndarray]) -> Annotations:
    """What ASAP draws: group and outline of each."""
    return Annotations(Path("a.xml"), tuple(Outline(f"A{n}", *one) for n, one in enumerate(outlines)))


def star(center: float, radius: float, num: int, seed: int) -> np.ndarray:
    turn = np.linspace(0, 2 * np.pi, num, endpoint=False)
    bends = np.random.default_rng(seed).normal(0, 0.01, num) + 0.2 * np.cos(7 * turn)
    return center + radius * (1 + bends)[:, None] * np.stack([np.sin(turn), np.cos(turn)], axis=1)


def test_written_outlines_are_read_to_the_last_digit_holes_in_the_group_exclusion(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tumor = Region(rng.uniform(0, 1e5, (6, 2)), (rng.normal(size=(4, 2)), HOLE), "Tumor", 'near "x" & <y>')
    bare = Region(rng.uniform(2e5, 3e5, (3, 2)), measurements={"p": 0.5})
    path = tmp_path / "new" / "a.xml"
    write_asap_xml(path, [tumor, bare], [Point((1.5, 2), "Mitosis"), Point((3, 4))])
    read = read_asap_xml(path)
    assert [(one.group, one.name) for one in read.outlines] == [
        ("Tumor", 'near "x" & <y>'),
        ("Exclusion", "Annotation 1"),
        ("Exclusion", "Annotation 2"),
        ("None", "Annotation 3"),
    ]
    for one, points in zip(
        read.outlines, (tumor.exterior_yx, *tumor.holes_yx, bare.exterior_yx), strict=True
    ):
        np.testing.assert_array_equal(one.points_yx, points)
    assert read.points == (Point((1.5, 2), "Mitosis"), Point((3, 4)))
    assert "," not in path.read_text()
    write_asap_xml(tmp_path / "b.xml", [tumor, bare], [Point((1.5, 2), "Mitosis"), Point((3, 4))])
    assert (tmp_path / "b.xml").read_bytes() == path.read_bytes()


def test_points_alone_are_written_and_come_back(tmp_path: Path) -> None:
    points = (Point((1.5, 2), "Mitosis"), Point((3, 4)))
    write_asap_xml(tmp_path / "a.xml", [], points)
    assert read_asap_xml(tmp_path / "a.xml").points == points


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([], "no region or point to write"),
        ([Region(BOX), Region(BOX[:2])], "region 2: an outline of fewer than three points"),
        ([Region(BOX, (BOX[:1],))], "region 1: an outline of fewer than three points"),
        ([Region(BOX * np.nan)], "region 1: a coordinate is not a finite number"),
        ([Region(BOX, label="_2")], "region 1: its label '_2' has a meaning in ASAP"),
        ([Region(BOX, label="None")], "region 1: its label 'None' has a meaning"),
        ([Region(BOX, (HOLE,)), Region(HOLE + 0.5)], "region 2: it lies in a hole of region 1"),
    ],
)
def test_what_asap_cannot_store_is_refused_in_a_line_and_nothing_is_written(
    tmp_path: Path, regions: list[Region], message: str
) -> None:
    with pytest.raises(ValueError, match=f"a.xml.*{message}") as caught:
        write_asap_xml(tmp_path / "a.xml", regions)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_hole_goes_to_every_region_that_it_overlaps_and_to_no_other() -> None:
    annotations = drawn(
        ("Tumor", BOX),
        ("_1", BOX + 100),
        ("_2", HOLE),
        ("Exclusion", BOX + 95),  # reaches into the second, and touches nothing of the first
        ("_0", BOX + np.array([10, 0])),  # shares a side with the first
        ("None", BOX + 1),
    )
    regions = asap_regions(annotations)
    assert [one.label for one in regions] == ["Tumor", "_1", "_0", ""]
    assert [one.name for one in regions] == ["A0", "A1", "A4", "A5"]
    assert [len(one.holes_yx) for one in regions] == [1, 1, 0, 1]
    assert [len(one.holes_yx) for one in asap_regions(annotations, hole_groups=("_2",))] == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("seed", range(6))
def test_regions_hold_the_area_that_outlines_without_holes_hold(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [star(rng.uniform(40, 160), rng.uniform(10, 50), 30, number) for number in range(8)]
    annotations = drawn(*((("Tumor", "_2")[number % 2], shape) for number, shape in enumerate(shapes)))
    outlines, holes = annotations.outlines[::2], annotations.outlines[1::2]
    truth = rasterize(outlines, holes, downsample=1.5, shape=(160, 160))
    mask = rasterize_regions(asap_regions(annotations), downsample=1.5, shape=(160, 160))
    np.testing.assert_array_equal(mask, truth)
    assert truth.any()


@pytest.mark.parametrize(
    ("outline", "area"),
    [
        ([(0, 0), (8, 8), (0, 8), (8, 0)], 32),  # a bow tie: two triangles
        ([(0, 0), (0, 8), (4, 4), (8, 8), (8, 0), (4, 4)], 32),  # touches itself in the middle
        ([(0, 0), (0, 8), (8, 8), (8, 0), (0, 0), (0, 8), (8, 8), (8, 0)], 64),  # drawn twice
        ([(0, 0), (0, 8), (8, 8), (8, 0), (0, 0)], 64),  # closed by its last point
        ([(0, 0), (0, 8), (0, 12), (0, 8), (8, 8), (8, 0)], 64),  # with a spike of no width
    ],
)
def test_odd_outlines_keep_their_area_through_both_formats(
    tmp_path: Path, outline: list[tuple[float, float]], area: float
) -> None:
    regions = [Region(np.array(outline, float) * 10, label="Tumor")]
    write_annotations(tmp_path / "a.xml", regions)
    write_annotations(tmp_path / "a.geojson", read_annotations(tmp_path / "a.xml")[0])
    for again in (regions, read_annotations(tmp_path / "a.geojson")[0]):
        mask = rasterize_regions(again, downsample=0.5, shape=(200, 260))
        assert mask.sum() * 0.25 == pytest.approx(area * 100, rel=0.02)


def test_two_outlines_of_one_group_are_two_regions(tmp_path: Path) -> None:
    write_asap_xml(tmp_path / "a.xml", [Region(BOX, label="Tumor"), Region(BOX + 5, label="Tumor")])
    regions = asap_regions(read_asap_xml(tmp_path / "a.xml"))
    assert [one.label for one in regions] == ["Tumor", "Tumor"]
    assert rasterize_regions(regions, downsample=1, shape=(20, 20)).sum() == 100 + 100 - 25


def test_an_outline_of_30000_points_is_read_and_filled_in_a_second_or_two(tmp_path: Path) -> None:
    outline = star(10_000, 7500, 30_000, 0)
    write_asap_xml(tmp_path / "a.xml", [Region(outline, (star(10_000, 2000, 30_000, 1),), "Tumor")])
    start = time.process_time()
    regions = asap_regions(read_asap_xml(tmp_path / "a.xml"))
    mask = rasterize_regions(regions, downsample=8, shape=(2500, 2500))
    assert time.process_time() - start < 4  # 0.7 s on an idle machine
    assert len(regions[0].holes_yx) == 1
    y, x = outline.T
    outer = abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
    y, x = regions[0].holes_yx[0].T
    inner = abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
    assert mask.sum() * 64 == pytest.approx(outer - inner, rel=1e-4)
    places = np.random.default_rng(2).integers(0, 2500, (3000, 2))
    in_exterior, in_hole = (
        measure.points_in_poly((places + 0.5) * 8, points)
        for points in (outline, star(10_000, 2000, 30_000, 1))
    )
    np.testing.assert_array_equal(mask[tuple(places.T)], in_exterior & ~in_hole)


def test_another_suffix_names_the_two_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.json: unknown suffix.*\.geojson"):
        read_annotations(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"a\.txt: unknown suffix"):
        write_annotations(tmp_path / "a.txt", [Region(BOX)])
