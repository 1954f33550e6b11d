import math

import numpy as np
import pytest
from scipy import ndimage

from histo_monai.data.readers.camelyon16.release import read_lesions
from histo_monai.data.simulated.datasets.camelyon16 import lesion_mask, lesion_regions, slide_specs
from histo_monai.slides.annotations import Outline, Point, write_asap_xml
from histo_monai.wsi.diagnosis.lesions import MASK_MPP, evaluation_mask, match

SLIDE_MPP = 0.5


def disc(y_um, x_um, diameter_um):
    """A circle on a slide of `SLIDE_MPP`."""
    angle = np.arange(200) * (2 * np.pi / 200)
    circle = np.column_stack([y_um + np.sin(angle) * diameter_um / 2, x_um + np.cos(angle) * diameter_um / 2])
    return Outline("", "Tumor", circle / SLIDE_MPP)


def box(top_um, left_um, bottom_um, right_um):
    corners = [(top_um, left_um), (top_um, right_um), (bottom_um, right_um), (bottom_um, left_um)]
    return Outline("", "Tumor", np.array(corners) / SLIDE_MPP)


def mask_of(*outlines, holes=(), size_um=(2000, 2400), mask_mpp=MASK_MPP):
    size_yx = tuple(int(side / SLIDE_MPP) for side in size_um)
    return evaluation_mask(outlines, holes, slide_mpp=SLIDE_MPP, size_yx=size_yx, mask_mpp=mask_mpp)


def point(y_um, x_um, probability):
    return Point((y_um / SLIDE_MPP, x_um / SLIDE_MPP), measurements={"probability": probability})


def test_a_mask_has_the_resolution_asked_for():
    mask = mask_of(size_um=(1000, 777), mask_mpp=8)
    assert mask.labels.shape == (125, math.ceil(777 / 8))
    assert mask.downsample == 16


@pytest.mark.parametrize(("gap_um", "num_lesions"), [(60, 1), (72, 1), (84, 2), (100, 2)])
@pytest.mark.parametrize("mask_mpp", [2.0, 4.0])
def test_lesions_less_than_75_um_apart_are_one(gap_um, num_lesions, mask_mpp):
    left, right = box(200, 200, 800, 800), box(200, 800 + gap_um, 800, 1400 + gap_um)
    assert mask_of(left, right, mask_mpp=mask_mpp).num_lesions == num_lesions


@pytest.mark.parametrize(("diameter_um", "isolated"), [(100, True), (185, True), (215, False), (500, False)])
@pytest.mark.parametrize("mask_mpp", [2.0, MASK_MPP])
def test_lesions_shorter_than_200_um_are_isolated_tumor_cells(diameter_um, isolated, mask_mpp):
    mask = mask_of(disc(1000, 1200, diameter_um), mask_mpp=mask_mpp)
    assert mask.num_lesions == (0 if isolated else 1)
    assert mask.isolated == ((1,) if isolated else ())


def test_a_chain_of_isolated_cells_less_than_75_um_apart_is_a_lesion():
    chain = [disc(500, 300 + 140 * n, 80) for n in range(4)]
    assert mask_of(*chain).num_lesions == 1
    assert mask_of(*chain[::2]).num_lesions == 0


def test_the_mask_reaches_half_of_75_um_beyond_an_outline_and_fills_its_holes():
    mask = mask_of(box(500, 500, 1500, 1500), holes=[box(800, 800, 1200, 1200)], mask_mpp=2)
    for y_um, x_um, inside in [
        (1000, 1000, True),
        (1000, 466, True),
        (1000, 458, False),
        (1537 - 3, 900, True),
    ]:
        assert (mask.labels[int(y_um / 2), int(x_um / 2)] == 1) == inside
    corner_um = 37.5 / np.sqrt(2)
    assert mask.labels[int((500 - corner_um + 4) / 2), int((500 - corner_um + 4) / 2)] == 1
    assert mask.labels[int((500 - corner_um - 4) / 2), int((500 - corner_um - 4) / 2)] == 0


def test_the_mask_is_the_challenges_arithmetic_on_the_whole_slide():
    """Distance to tumor below 75 µm / 2, holes closed, parts that touch numbered: here without a window."""
    discs = [(60, 80, 150), (1000, 700, 420), (1300, 1100, 90), (1950, 2380, 700)]
    mask = mask_of(*(disc(*one) for one in discs))
    y, x = np.meshgrid(*((np.arange(n) + 0.5) * MASK_MPP for n in mask.labels.shape), indexing="ij")
    tumor = np.any([np.hypot(y - cy, x - cx) < diameter / 2 for cy, cx, diameter in discs], axis=0)
    grown = ndimage.binary_fill_holes(ndimage.distance_transform_edt(~tumor) * MASK_MPP < 37.5)
    assert ((mask.labels > 0) != grown).mean() < 1e-4  # The circles are polygons.
    of_disc = [mask.labels[int(cy / MASK_MPP), int(cx / MASK_MPP)] for cy, cx, _ in discs]
    assert sorted(of_disc) == [1, 2, 3, 4]
    assert set(mask.isolated) == {of_disc[0], of_disc[2]}


def test_on_simulated_slides_what_lies_on_tumor_is_a_hit_and_what_lies_off_it_is_false(tmp_path):
    """Through the annotation file, against the tumor that was rendered; 37.5 µm are within two mask pixels."""
    specs = slide_specs(seed=0, num_slides=2, num_test_slides=4, side_px=2048, mpp=0.5)
    for spec in (one for one in specs.values() if one.kind != "normal"):
        write_asap_xml(tmp_path / f"{spec.name}.xml", lesion_regions(spec))
        lesions = read_lesions(tmp_path / f"{spec.name}.xml")
        mask = evaluation_mask(lesions.outlines, lesions.holes, slide_mpp=0.5, size_yx=(2048, 2048))
        truth = lesion_mask(spec, downsample=8)
        distance_um = ndimage.distance_transform_edt(~ndimage.binary_fill_holes(truth)) * 4
        for far, where in [(False, distance_um == 0), (True, distance_um > 37.5 + 2 * MASK_MPP)]:
            places = np.argwhere(where)[:: where.sum() // 200] * 4.0 + 2
            matched = match([point(y, x, 0.5) for y, x in places], mask)
            assert len(matched.false_positives) == far * len(places)
            assert list(matched.lesions) == [0.5 * (not far)] * mask.num_lesions
        assert 1 <= mask.num_lesions <= len(lesions.outlines)


def test_a_normal_slide_has_no_lesion_and_all_detections_are_false():
    mask = mask_of()
    assert mask.num_lesions == 0
    matched = match([point(10, 10, 0.5), point(1999, 2399, 0.75)], mask)
    assert list(matched.false_positives) == [0.5, 0.75]
    assert list(matched.lesions) == []


def test_the_best_detection_in_a_lesion_counts_and_those_outside_are_false():
    mask = mask_of(disc(500, 500, 400), disc(500, 1500, 400), disc(1500, 500, 100))
    points = [
        point(500, 500, 0.5),
        point(520, 600, 0.75),  # The same lesion.
        point(500, 500 + 230, 0.625),  # In the 37.5 µm around it.
        point(500, 500 + 245, 0.25),  # Beyond.
        point(1500, 500, 0.875),  # Isolated tumor cells.
        point(1500, 1500, 0.125),
    ]
    matched = match(points, mask)
    lesions = dict(
        zip(
            [int(mask.labels[int(500 / MASK_MPP), int(x / MASK_MPP)]) for x in (500, 1500)],
            [0.75, 0],
            strict=True,
        )
    )
    assert mask.isolated == (3,)
    assert list(matched.lesions) == [lesions[1], lesions[2]]
    assert sorted(matched.false_positives) == [0.125, 0.25]


def test_isolated_cells_between_lesions_leave_the_others_in_order():
    mask = mask_of(disc(300, 300, 400), disc(900, 300, 100), disc(1500, 300, 400))
    assert mask.isolated == (2,)
    assert list(match([point(1500, 300, 0.5)], mask).lesions) == [0, 0.5]


def test_a_slide_without_detections_has_missed_lesions():
    matched = match([], mask_of(disc(500, 500, 400)))
    assert (list(matched.false_positives), list(matched.lesions)) == ([], [0])


def test_the_middle_of_the_last_cell_may_lie_beyond_the_edge():
    mask = mask_of(box(1600, 2000, 2000, 2400))
    assert list(match([point(2020, 2430, 0.5)], mask).lesions) == [0.5]


@pytest.mark.parametrize(
    "bad",
    [
        Point((-1.0, 5.0), measurements={"probability": 0.5}),
        Point((1.0, 5.0)),
        point(1, 5, 0.0),
        point(1, 5, math.nan),
    ],
)
def test_points_that_are_no_detections_are_refused(bad):
    with pytest.raises(ValueError, match="Fix: give a position on the slide and 'probability' above 0"):
        match([bad], mask_of())


def test_lengths_must_be_positive():
    with pytest.raises(ValueError, match="slide_mpp 0"):
        evaluation_mask([], slide_mpp=0, size_yx=(10, 10))
