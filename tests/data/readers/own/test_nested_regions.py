"""Regions of interest, and regions of one class inside regions of another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.path import Path as Outlined

from histo_monai.data.readers.own import reader as own
from histo_monai.data.readers.own.nesting import without_inner
from histo_monai.data.tables.patches import LabeledDataset
from histo_monai.slides.annotations import Point, Region, rasterize_regions, write_annotations

Take = Callable[..., LabeledDataset]


Box = tuple[int, int, int, int]


def corners(box: Box) -> np.ndarray:
    """Of a box from (y, x) to (y, x)."""
    top, left, bottom, right = box
    return np.array([(top, left), (top, right), (bottom, right), (bottom, left)], float)


def region(label: str, box: Box, *holes: Box) -> Region:
    return Region(corners(box), tuple(map(corners, holes)), label)


def common_area(one: Box, other: Box) -> int:
    height, width = (min(one[i + 2], other[i + 2]) - max(one[i], other[i]) for i in (0, 1))
    return max(0, height) * max(0, width)


@pytest.fixture
def take(folder: Path) -> Take:
    def take(*regions: Region, points: tuple[Point, ...] = (), **changes: Any) -> LabeledDataset:
        write_annotations(folder / "annotations/a.xml", regions, points)
        settings = {"patch_px": 64, "region_mpp": 1.0, "min_region_fraction": 0.75, "num_per_region": 99}
        return own.labeled_patches(folder, **{**settings, **changes})

    return take


ROI, TUMOR, STROMA = (0, 0, 384, 384), (64, 64, 192, 192), (256, 64, 320, 320)
TIGER = (region("roi", ROI), region("tumor", TUMOR), region("stroma", STROMA))


def squares(dataset: LabeledDataset, label: str) -> list[Box]:
    rows = dataset.table[dataset.table["label"] == label]
    return [(y - 32, x - 32, y + 32, x + 32) for y, x in rows[["y", "x"]].to_numpy()]


def test_a_region_of_interest_around_classes_is_refused_with_both_classes_and_the_params(take: Take) -> None:
    with pytest.raises(ValueError, match=r"region 1 .*\(roi, .*region 2 .*\(tumor, ") as caught:
        take(*TIGER)
    for mend in ("ends in", "labels.own.regions.ignored_classes", "labels.own.regions.overlaps: innermost"):
        assert mend.replace("ends in", 'end in "*"') in str(caught.value)
    assert len(str(caught.value)) < 800


def test_a_class_that_is_ignored_gives_no_square_and_is_counted(take: Take) -> None:
    dataset = take(*TIGER, ignored_classes=("roi",))
    assert dataset.table["label"].value_counts().to_dict() == {"tumor": 4, "stroma": 4}
    (line,) = dataset.warnings
    assert "1 regions or points have a class that is ignored" in line
    starred = take(region("roi*", ROI), *TIGER[1:])
    assert starred.table["label"].tolist() == dataset.table["label"].tolist()


def test_the_innermost_region_gives_the_class_and_is_cut_out_of_the_others(take: Take) -> None:
    dataset = take(*TIGER, innermost=True)
    assert len(squares(dataset, "tumor")) == 4
    assert len(squares(dataset, "stroma")) == 4
    assert len(squares(dataset, "roi")) == 36 - 8
    for square in squares(dataset, "roi"):
        assert common_area(square, TUMOR) + common_area(square, STROMA) <= 0.25 * 64**2
    deeper = take(*TIGER, region("necrosis", (64, 64, 128, 128)), innermost=True)
    assert [len(squares(deeper, name)) for name in ("roi", "tumor", "stroma", "necrosis")] == [28, 3, 4, 1]


def test_a_point_inside_a_region_of_another_class_is_the_innermost(take: Take) -> None:
    point = Point((160, 160), "mitosis")
    with pytest.raises(ValueError, match=r"point 1 \(mitosis"):
        take(region("tumor", ROI), points=(point,))
    dataset = take(region("tumor", ROI), points=(point,), innermost=True)
    (square,) = squares(dataset, "mitosis")
    assert all(common_area(one, square) <= 0.25 * 64**2 for one in squares(dataset, "tumor"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((0, 0, 192, 192), (96, 0, 288, 192), id="half in each other"),
        pytest.param((0, 0, 192, 192), (0, 0, 192, 192), id="one place with two classes"),
        pytest.param((0, 0, 192, 192), (1, 1, 191, 191), id="one outline drawn twice"),
    ],
)
def test_overlaps_that_are_not_one_inside_the_other_are_refused_all_the_same(
    take: Take, one: Box, other: Box
) -> None:
    with pytest.raises(ValueError, match="overlap in the patch"):
        take(region("tumor", one), region("stroma", other), innermost=True)


def star(rng: np.random.Generator, reach: float) -> np.ndarray:
    """Twelve corners around (256, 256), from `reach` to a third farther away."""
    turn = np.linspace(0, 2 * np.pi, 12, endpoint=False) + rng.uniform(0, 0.4, 12)
    away = reach * rng.uniform(1, 4 / 3, 12)
    return 256 + away[:, None] * np.stack([np.sin(turn), np.cos(turn)], axis=1)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_of_nested_stars_is_as_by_matplotlib_point_by_point(seed: int) -> None:
    """A star with two holes in another, and a box in the inner one: what is in the holes stays the outer one's."""
    rng = np.random.default_rng(seed)
    outer, inner, box = star(rng, 200), star(rng, 100), corners((240, 250, 262, 290))
    holes = [corners((200, 220, 230, 270)), corners((270, 230, 300, 285))[:: rng.choice([-1, 1])]]
    regions = [Region(outer, label="a"), Region(inner, tuple(holes), "b"), Region(box, label="c")]
    left = without_inner(regions)
    places = rng.uniform(-20, 532, (20_000, 2))
    in_outer, in_inner, in_box, *in_holes = (
        Outlined(points).contains_points(places) for points in (outer, inner, box, *holes)
    )
    ring = in_inner & ~in_holes[0] & ~in_holes[1]
    expected = [in_outer & ~ring & ~in_box, ring & ~in_box, in_box]
    assert ring.sum() > 500
    masks = [
        rasterize_regions([one], downsample=0.25, shape=(2300, 2300), corner_yx=(-100, -100)) for one in left
    ]
    for mask, truth in zip(masks, expected, strict=True):
        rows, columns = np.floor(places / 0.25).astype(int).T + 100
        assert (mask[rows, columns] != truth).mean() < 0.004  # within a quarter of a pixel of an outline


def test_a_small_region_in_the_hole_of_another_is_not_inside_it() -> None:
    ring = region("tumor", (0, 0, 90, 90), (10, 10, 80, 80))
    assert len(without_inner([ring, region("stroma", (20, 20, 40, 40))])[0].holes_yx) == 1
