"""First labels without a model: one typical point of every cluster, clusters with labels last."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from histo_monai.utils.errors import InputError
from histo_monai.wsi.suggestion import Fields
from histo_monai.wsi.typical import choose_typical

SIZES = (40, 30, 60, 20, 50, 25)


def blobs(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Clusters far apart, and the number of each point's cluster."""
    generator = np.random.default_rng(seed)
    centers = 20 * np.eye(len(SIZES), 12)
    cluster = np.repeat(np.arange(len(SIZES)), SIZES)
    return centers[cluster] + generator.normal(size=(sum(SIZES), 12)), cluster


def squares(num: int, slides: NDArray[np.object_], side: float = 1.0) -> Fields:
    return Fields(slides, np.stack([np.arange(num) * 2.0, np.zeros(num)], axis=1), np.full(num, side))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_cluster_gives_one_and_the_largest_first(seed: int) -> None:
    points, cluster = blobs(seed)
    chosen = choose_typical(points, len(SIZES), seed=seed)
    assert cluster[chosen].tolist() == np.argsort([-size for size in SIZES], kind="stable").tolist()


def test_the_point_among_the_nearest_neighbors_is_chosen() -> None:
    """Of each cluster the mean distance to its 20 nearest neighbors decides, by a naive loop."""
    points, cluster = blobs()
    scaled = (points - points.mean(axis=0)) / points.std(axis=0)
    unit = scaled / np.linalg.norm(
        scaled, axis=1, keepdims=True
    )  # 12 numbers: the components keep all distances.
    for number in choose_typical(points, len(SIZES), seed=0):
        members = np.flatnonzero(cluster == cluster[number])
        means = [np.sort(np.linalg.norm(unit[members] - unit[i], axis=1))[1:21].mean() for i in members]
        assert means[members.tolist().index(number)] == pytest.approx(min(means), rel=1e-4)


def test_clusters_with_labels_come_last() -> None:
    points, cluster = blobs()
    labeled = np.array([np.flatnonzero(cluster == number)[0] for number in (0, 2, 4)])
    chosen = choose_typical(points, 3, seed=0, labeled_features=points[labeled])
    assert sorted(cluster[chosen]) == [1, 3, 5]


def test_no_square_overlaps_and_slides_share() -> None:
    points, _ = blobs()
    slides = np.array(["a"] * 150 + ["b"] * 75, object)
    fields = squares(len(points), slides, side=3.0)  # Neighbors on the line overlap.
    chosen = choose_typical(points, 30, seed=0, fields=fields, most_per_slide=17)
    assert len(chosen) == 30
    assert max(np.unique(slides[chosen], return_counts=True)[1]) <= 17
    for number in chosen:
        assert fields.overlapping(fields, int(number))[chosen].sum() == 1


def test_a_full_slide_gives_more_when_no_other_has_any() -> None:
    points, _ = blobs()
    slides = np.array(["a"] * 220 + ["b"] * 5, object)
    chosen = choose_typical(points, 40, seed=0, fields=squares(225, slides), most_per_slide=10)
    assert len(chosen) == len(set(chosen)) == 40


def test_few_candidates_are_all_chosen() -> None:
    points, _ = blobs()
    assert sorted(choose_typical(points[:4], 9, seed=0)) == [0, 1, 2, 3]
    assert len(choose_typical(np.zeros((30, 5)), 7, seed=0)) == 7  # All points are one.
    four = np.repeat(np.eye(4), 15, axis=0)
    assert len(choose_typical(four, 6, seed=0, labeled_features=four[[0, 20, 40]])) == 6


def test_one_seed_gives_one_choice() -> None:
    points = np.random.default_rng(0).normal(size=(400, 30))
    first, again, other = (choose_typical(points, 20, seed=seed) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_wrong_arguments_are_errors() -> None:
    points, _ = blobs()
    three = squares(3, np.array(["a"] * 3, object))
    with pytest.raises(InputError, match="num: got 0"):
        choose_typical(points, 0, seed=0)
    with pytest.raises(InputError, match="labeled"):
        choose_typical(points, 3, seed=0, labeled_features=np.zeros((2, 5)))
    with pytest.raises(InputError, match="one per candidate"):
        choose_typical(points, 3, seed=0, fields=three)
    points[3, 3] = np.nan
    with pytest.raises(InputError, match="not finite"):
        choose_typical(points, 3, seed=0)
