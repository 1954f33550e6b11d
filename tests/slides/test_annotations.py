from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.path import Path as Outlined

from histo_monai.data.simulated.datasets.camelyon16 import lesion_mask, lesion_regions, slide_specs
from histo_monai.slides import open_slide, tissue_mask
from histo_monai.slides.annotations import (
    LeftOut,
    Outline,
    Region,
    Rule,
    rasterize,
    rasterize_regions,
    read_annotations,
    read_asap_xml,
    write_asap_xml,
)

Points = list[tuple[float, float]]
RULES: tuple[Rule, ...] = ("center", "whole", "touched")
SQUARE: Points = [(0, 0), (0, 8), (8, 8), (8, 0)]


def outline(points: Points | np.ndarray) -> Outline:
    return Outline("", "", np.array(points, float))


def shoelace(points: np.ndarray) -> float:
    y, x = points.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def winds_around(points: np.ndarray, y: float, x: float) -> bool:
    """The sum of the angles under which the edges are seen, one point at a time."""
    angle = np.unwrap(np.arctan2(*(np.concatenate([points, points[:1]]) - (y, x)).T))
    return round((angle[-1] - angle[0]) / (2 * np.pi)) != 0


def annotation(points: Points, kind: str = "Polygon", group: str = "Tumor", name: str = "A") -> str:
    rows = "".join(f'<Coordinate Order="{i}" X="{x}" Y="{y}" />' for i, (y, x) in enumerate(points))
    return (
        f'<Annotation Name="{name}" Type="{kind}" PartOfGroup="{group}" Color="#F4FA58">'
        f"<Coordinates>{rows}</Coordinates></Annotation>"
    )


@pytest.fixture
def write_xml(tmp_path: Path) -> Callable[..., Path]:
    def write(*annotations: str) -> Path:
        path = tmp_path / "tumor_001.xml"
        path.write_text(
            f"<ASAP_Annotations><Annotations>{''.join(annotations)}</Annotations></ASAP_Annotations>"
        )
        return path

    return write


def test_an_outline_is_read_with_its_name_group_and_points(write_xml: Callable[..., Path]) -> None:
    (one,) = read_asap_xml(write_xml(annotation([(1.5, 2), (3, 4), (5, 6.25)], name="Annotation 3"))).outlines
    assert (one.name, one.group) == ("Annotation 3", "Tumor")
    assert one.points_yx.dtype == np.float64
    np.testing.assert_array_equal(one.points_yx, [(1.5, 2), (3, 4), (5, 6.25)])


def test_points_come_in_the_order_that_order_gives(write_xml: Callable[..., Path]) -> None:
    text = annotation(SQUARE)
    for old, new in (("0", "11"), ("2", "4")):  # 11, 1, 4, 3
        text = text.replace(f'Order="{old}"', f'Order="{new}"')
    (one,) = read_asap_xml(write_xml(text)).outlines
    np.testing.assert_array_equal(one.points_yx, [(0, 8), (8, 0), (8, 8), (0, 0)])


def test_commas_and_points_are_the_same_decimals(write_xml: Callable[..., Path]) -> None:
    points = [(0.25, 1.5), (2.75, 1e-3), (4, 4)]
    with_points = read_asap_xml(write_xml(annotation(points)))
    with_commas = read_asap_xml(write_xml(annotation(points).replace(".", ",")))
    np.testing.assert_array_equal(with_points.outlines[0].points_yx, with_commas.outlines[0].points_yx)


def test_what_encloses_nothing_is_left_out(write_xml: Callable[..., Path]) -> None:
    path = write_xml(
        annotation([(1, 1)], "Dot"),
        annotation(SQUARE, "Rectangle", name="R"),
        annotation([(1, 1), (2, 2)], "Measurement"),
        annotation(SQUARE, "Spline", name="S"),
        annotation([(1, 1), (2, 2), (3, 1)], "PointSet"),
    )
    assert [one.name for one in read_asap_xml(path).outlines] == ["R", "S"]


def test_points_alone_are_read_and_a_file_without_annotation_is_counted(
    write_xml: Callable[..., Path],
) -> None:
    left_out: list[LeftOut] = []
    path = write_xml(annotation([(3, 1)], "Dot"), annotation([(5, 6), (7, 8)], "PointSet"))
    regions, points = read_annotations(path, left_out.append)
    assert (regions, [one.yx for one in points], left_out) == ([], [(3, 1), (5, 6), (7, 8)], [])
    path = write_xml()
    assert read_annotations(path, left_out.append) == ([], [])
    assert [(one.path, one.kind, one.why) for one in left_out] == [(path, "file", "without annotation")]


def test_what_is_neither_area_nor_point_is_counted_by_its_type(write_xml: Callable[..., Path]) -> None:
    left_out: list[LeftOut] = []
    ruler, flat = annotation(SQUARE[:2], "Measurement", name="M"), annotation(SQUARE[:2], name="B")
    assert read_annotations(write_xml(ruler, flat, ruler), left_out.append) == ([], [])
    assert [(one.kind, one.why, one.names) for one in left_out] == [
        ("annotation", "of type Measurement", ("M", "M")),
        ("outline", "without area", ("B",)),
    ]


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ([annotation(SQUARE, "Ellipse")], "annotation 'A': type 'Ellipse' is unknown"),
        ([annotation(SQUARE).replace('X="8"', 'X="8px"', 1)], "annotation 'A': X of a coordinate is '8px'"),
        ([annotation(SQUARE).replace('Y="8"', 'Y="nan"', 1)], "annotation 'A': Y of a coordinate is 'nan'"),
        ([annotation(SQUARE).replace('X="8"', 'X="1,024.5"', 1)], "X of a coordinate is '1,024.5'"),
        ([annotation(SQUARE).replace('X="8"', 'X="1_0"', 1)], "X of a coordinate is '1_0'"),
        ([annotation(SQUARE).replace('Y="8"', 'Y="٨"', 1)], "Y of a coordinate is '٨'"),
        ([annotation(SQUARE).replace(' X="8"', "", 1)], "X of a coordinate is ''"),
        ([annotation(SQUARE).replace('Order="2"', 'Order="1"')], "Order '1' is not whole or comes twice"),
        ([annotation(SQUARE, name="").replace('X="8"', 'X=""', 1)], "annotation 'number 0'"),
        (["<Annotation"], "not XML"),
    ],
)
def test_a_bad_file_is_one_line_that_names_file_and_annotation(
    write_xml: Callable[..., Path], annotations: list[str], message: str
) -> None:
    path = write_xml(*annotations)
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the message is what is tested
        read_asap_xml(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_other_xml_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.xml: cannot be read"):
        read_asap_xml(tmp_path / "none.xml")
    (tmp_path / "other.xml").write_text("<Annotations />")
    with pytest.raises(ValueError, match=r"other\.xml: its root is <Annotations>"):
        read_asap_xml(tmp_path / "other.xml")


def random_polygon(rng: np.random.Generator, num_points: int = 7) -> np.ndarray:
    """Any order of any points: it crosses itself, more often than not."""
    return rng.uniform(-6, 30, (num_points, 2))


@pytest.mark.parametrize("seed", range(8))
def test_pixels_are_inside_where_the_outline_winds_around_their_middle(seed: int) -> None:
    points = random_polygon(np.random.default_rng(seed))
    mask = rasterize([outline(points * 3)], downsample=3, shape=(20, 24))
    truth = [[winds_around(points, y + 0.5, x + 0.5) for x in range(24)] for y in range(20)]
    np.testing.assert_array_equal(mask, truth)
    assert 0 < mask.sum() < mask.size


@pytest.mark.parametrize("seed", range(4))
def test_whole_pixels_hold_no_outside_and_others_than_touched_ones_no_inside(seed: int) -> None:
    rng = np.random.default_rng(seed)
    areas = [outline(random_polygon(rng)) for _ in range(2)]
    holes = [outline(random_polygon(rng, 3))]
    fine, fine_hole = (rasterize(some, downsample=1 / 40, shape=(640, 800)) for some in (areas, holes))
    fraction = (fine & ~fine_hole).reshape(16, 40, 20, 40).mean((1, 3))
    whole, touched = (
        rasterize(areas, holes, downsample=1, shape=(16, 20), rule=r) for r in ("whole", "touched")
    )
    assert (fraction[whole] == 1).all()
    assert (fraction[~touched] == 0).all()


def test_whole_and_touched_pixels_differ_only_along_the_line() -> None:
    rng = np.random.default_rng(0)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 30))
    points = 12 + rng.uniform(6, 11, (30, 1)) * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    fraction = (
        rasterize([outline(points)], downsample=1 / 40, shape=(960, 960)).reshape(24, 40, 24, 40).mean((1, 3))
    )
    whole, touched = (rasterize([outline(points)], downsample=1, shape=(24, 24), rule=r) for r in RULES[1:])
    # A sliver narrower than a fortieth of a pixel may be missed by counting.
    assert ((fraction == 1) & ~whole).sum() <= 5
    assert ((fraction == 0) & touched).sum() <= 5


def test_the_area_is_that_of_the_shoelace_formula() -> None:
    turn = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    radius = 2000 * (1 + 0.3 * np.cos(5 * turn))
    points = 3000 + np.stack([radius * np.sin(turn), radius * np.cos(turn)], axis=1)
    for downsample in (8, 32):
        side = 6000 // downsample
        area = rasterize([outline(points)], downsample=downsample, shape=(side, side)).sum() * downsample**2
        assert area == pytest.approx(shoelace(points), rel=1e-3)
    square = outline(SQUARE)
    assert rasterize([square], downsample=1, shape=(10, 10)).sum() == 64
    assert rasterize([square], downsample=4, shape=(10, 10), rule="whole").sum() <= 4


def test_an_outline_smaller_than_a_pixel_touches_it() -> None:
    speck = outline([(5.1, 7.1), (5.1, 7.3), (5.3, 7.2)])
    assert not rasterize([speck], downsample=1, shape=(9, 9)).any()
    touched = rasterize([speck], downsample=1, shape=(9, 9), rule="touched")
    assert np.argwhere(touched).tolist() == [[5, 7]]


def test_a_window_is_that_part_of_the_whole() -> None:
    rng = np.random.default_rng(3)
    areas, holes = [outline(random_polygon(rng)) for _ in range(3)], [outline(random_polygon(rng, 4))]
    for rule in RULES:
        full = rasterize(areas, holes, downsample=0.3, shape=(120, 120), rule=rule)
        part = rasterize(areas, holes, downsample=0.3, shape=(30, 41), corner_yx=(17, 50), rule=rule)
        np.testing.assert_array_equal(part, full[17:47, 50:91])


def test_overlapping_outlines_count_once_and_holes_are_taken_from_all() -> None:
    other = outline([(4, 4), (4, 12), (12, 12), (12, 4)])
    hole = outline([(5, 5), (5, 7), (7, 7), (7, 5)])
    mask = rasterize([outline(SQUARE), other], [hole], downsample=1, shape=(14, 14))
    assert mask.sum() == 64 + 64 - 16 - 4
    assert not mask[5:7, 5:7].any()


def test_a_simulated_slides_annotation_gives_back_its_exact_mask(tmp_path: Path) -> None:
    spec = next(spec for spec in slide_specs(0, 2, 0, 3000, 0.5).values() if spec.hole)
    write_asap_xml(tmp_path / "tumor_001.xml", lesion_regions(spec))
    outlines = read_asap_xml(tmp_path / "tumor_001.xml").outlines
    tumors, holes = ([o for o in outlines if o.group == group] for group in ("Tumor", "Exclusion"))
    assert holes
    mask = rasterize(tumors, holes, downsample=4, shape=(750, 750))
    truth = lesion_mask(spec, 4)
    border = sum(np.abs(np.diff(truth.astype(int), axis=axis)).sum() for axis in (0, 1))
    # OpenCV, which the simulation fills with, also takes the pixels that the line itself runs over.
    assert (mask != truth).sum() < 0.75 * border
    exact = sum(shoelace(o.points_yx) for o in tumors) - sum(shoelace(o.points_yx) for o in holes)
    assert mask.sum() * 16 == pytest.approx(exact, rel=2e-3)


def test_regions_with_holes_are_filled_as_by_matplotlib_point_by_point() -> None:
    rng = np.random.default_rng(1)
    turn = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    star = np.stack([np.sin(turn), np.cos(turn)], axis=1) * rng.uniform(0.7, 1, (40, 1))
    regions = [
        Region(100 + 90 * star, (100 + 50 * star, (160, 100) + 8 * star)),
        Region(100 + 30 * star),  # an island in the hole
        Region(160 + 25 * star),
    ]
    truth = np.zeros((100, 110), bool)
    middles = (np.indices(truth.shape).reshape(2, -1).T + 0.5) * 2
    for region in regions:
        inside, *in_holes = (
            Outlined(points).contains_points(middles).reshape(truth.shape)
            for points in (region.exterior_yx, *region.holes_yx)
        )
        truth |= inside & ~np.any(in_holes or [np.zeros_like(truth)], axis=0)
    mask = rasterize_regions(regions, downsample=2, shape=truth.shape)
    np.testing.assert_array_equal(mask, truth)
    part = rasterize_regions(regions, downsample=2, shape=(30, 40), corner_yx=(20, 50))
    np.testing.assert_array_equal(part, truth[20:50, 50:90])


@pytest.mark.parametrize(("downsample", "shape"), [(0.0, (4, 4)), (float("nan"), (4, 4)), (1.0, (0, 4))])
def test_an_empty_window_or_no_resolution_is_refused(downsample: float, shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        rasterize([outline(SQUARE)], downsample=downsample, shape=shape)


def test_the_real_outline_with_decimal_commas_lies_on_its_tissue(real_slides: Path) -> None:
    outlines = read_asap_xml(real_slides / "asap-example.xml").outlines
    assert [one.group for one in outlines] == ["None"]
    np.testing.assert_allclose(outlines[0].points_yx[0], (335.044464, 543.020264))
    with open_slide(real_slides / "asap-example.tif") as slide:
        mpp = 4 * slide.mpp
        tissue = tissue_mask(slide.thumbnail(mpp))
    inside = rasterize(outlines, downsample=4, shape=tissue.shape)
    assert inside.sum() * 16 == pytest.approx(sum(shoelace(o.points_yx) for o in outlines), rel=0.02)
    assert tissue[inside].mean() > 0.97
    assert tissue[~inside].mean() < 0.25
    # It follows the edge of the tissue: shifted by its own width it leaves it.
    assert tissue[np.roll(inside, 25, axis=1)].mean() < 0.6
