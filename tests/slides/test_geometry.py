from __future__ import annotations

import pytest

from histo_monai.slides import Box, choose_level, concentric_boxes
from histo_monai.slides.geometry import level_downsample


def test_concentric_boxes_share_one_center_and_one_side():
    boxes = concentric_boxes((120.5, 88.0), 256, (0.25, 0.5, 1.0))
    assert {box.center_yx for box in boxes} == {(120.5, 88.0)}
    assert [box.side_um for box in boxes] == [64.0, 128.0, 256.0]


@pytest.mark.parametrize(
    ("box", "named"),
    [
        ({"side_px": 0, "mpp": 1.0, "center_yx": (0, 0)}, "side_px"),
        ({"side_px": 8, "mpp": -1.0, "center_yx": (0, 0)}, "mpp"),
        ({"side_px": 8, "mpp": float("nan"), "center_yx": (0, 0)}, "mpp"),
        ({"side_px": 8, "mpp": 1.0, "center_yx": (0, float("inf"))}, "center_yx"),
    ],
)
def test_an_impossible_box_is_refused_by_the_name_of_its_field(box, named):
    with pytest.raises(ValueError, match=named):
        Box(**box)


@pytest.mark.parametrize(
    ("level_mpps", "mpp", "level"),
    [
        ((0.25, 0.5, 1.0), 0.25, 0),
        ((0.25, 0.5, 1.0), 0.5, 1),
        ((0.25, 0.5, 1.0), 0.9, 1),
        ((0.25, 0.5, 1.0), 8.0, 2),
        ((0.25, 1.0, 4.0), 0.5, 0),
        ((0.25, 1.0, 4.0), 2.0, 1),
        ((0.499,), 2.0, 0),
        ((0.2528, 0.5056), 0.5, 1),  # 1.1 % coarser counts as equal
        ((0.263, 0.526), 0.5, 0),  # 5.2 % coarser does not
        ((0.263, 0.526), 0.25, 0),  # level 0 serves a box up to 10 % finer
    ],
)
def test_the_next_finer_level_is_chosen(level_mpps, mpp, level):
    assert choose_level(level_mpps, mpp) == level


def test_a_box_finer_than_the_slide_by_more_than_ten_percent_is_refused_naming_both_resolutions():
    with pytest.raises(ValueError, match=r"0\.25 .*0\.5 "):
        choose_level((0.5, 1.0), 0.25)
    assert choose_level((0.5,), 0.455) == 0
    with pytest.raises(ValueError, match="10 %"):
        choose_level((0.5,), 0.454)


@pytest.mark.parametrize(
    ("size", "level_size", "tile", "downsample"),
    [
        ((3567, 4443), (1783, 2221), (256, 256), 2.0),  # Aperio rounds down
        ((11685, 13198), (366, 413), (256, 256), 32.0),  # halved five times, rounded up
        ((690, 1472), (172, 368), (512, 512), 4.0),
        ((221184, 97792), (7168, 3072), (512, 512), 32.0),  # Camelyon16 pads to tiles: 6912 x 3056
        ((221184, 97792), (512, 512), (512, 512), 512.0),  # ... 432 x 191
        ((3000, 3000), (1000, 1000), None, 3.0),
        ((3000, 2000), (1200, 800), (256, 256), 2.5),  # nothing explains it: the ratio itself
        ((1000, 1000), (1000, 1000), None, 1.0),
    ],
)
def test_the_nominal_downsample_is_taken_where_rounding_or_padding_explains_the_sizes(
    size, level_size, tile, downsample
):
    assert level_downsample(size, level_size, tile) == downsample
