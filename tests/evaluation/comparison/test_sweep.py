from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from histo_monai.evaluation.comparison.replicates import metric_replicates
from histo_monai.evaluation.comparison.sweep import (
    Member,
    curve_points,
    labels_for_score,
    main_setting,
    of_setting,
    power_laws,
    saved_labels,
)
from histo_monai.evaluation.metrics import Resampling

NUM = 3000
LABELS = np.random.default_rng(0).integers(2, size=NUM)


def _says(accuracy: float, seed: int) -> np.ndarray:
    """Probabilities whose decision is right for exactly this fraction of the patches."""
    right = np.zeros(NUM, bool)
    right[np.random.default_rng(seed).permutation(NUM)[: round(accuracy * NUM)]] = True
    decided = np.where(right, LABELS, 1 - LABELS)
    return np.stack([1 - decided, decided], axis=1) * 0.8 + 0.1


def _member(accuracy: float, num_labels: int, **changes: object) -> Member:
    settings: dict[str, Any] = {
        "method": "random",
        "training": "finetune",
        "repeat": (0, 0),
        "mu": np.nan,
        "n_aug": np.nan,
    }
    settings |= {"alpha": num_labels / 1000, "num_labels": num_labels} | changes
    return Member(**settings, predictions=_says(accuracy, num_labels + sum(settings["repeat"])))


def _points(members: list[Member], groups: np.ndarray | None = None) -> list:
    return curve_points(members, {"": LABELS}, groups, seed=0, num_replicates=400)


def test_a_point_is_the_mean_over_seeds_of_the_metric() -> None:
    members = [_member(0.7, 100, repeat=(0, 0)), _member(0.8, 100, repeat=(0, 1))]
    (accuracy,) = (point for point in _points(members) if point.metric == "accuracy")
    assert accuracy.estimate.value == pytest.approx(0.75)
    assert accuracy.seed_sd == pytest.approx(0.1 / np.sqrt(2))
    assert (accuracy.num_encoders, accuracy.num_seeds) == (1, 2)
    assert accuracy.estimate.low < 0.7 < 0.8 < accuracy.estimate.high  # t with about one degree of freedom


def test_runs_of_one_encoder_count_as_one() -> None:
    of_seeds = [_member(0.9, 100, repeat=(1, seed)) for seed in range(4)]
    (accuracy,) = (point for point in _points([_member(0.7, 100), *of_seeds]) if point.metric == "accuracy")
    assert accuracy.estimate.value == pytest.approx(0.8)  # not 0.86, the mean over runs
    assert accuracy.seed_sd == pytest.approx(0.2 / np.sqrt(2))
    assert (accuracy.num_encoders, accuracy.num_seeds) == (2, 5)


def test_a_point_knows_each_of_its_runs() -> None:
    members = [_member(0.7, 100, repeat=(0, 0)), _member(0.8, 100, repeat=(1, 4))]
    (accuracy,) = (point for point in _points(members) if point.metric == "accuracy")
    rows = accuracy.run_rows()
    assert [(row["encoder"], row["seed"]) for row in rows] == [(0, 0), (1, 4)]
    assert [row["value"] for row in rows] == pytest.approx([0.7, 0.8])
    assert {(row["method"], row["num_labels"], row["metric"]) for row in rows} == {
        ("random", 100, "accuracy")
    }


def test_laws_are_those_of_curves_of_four_sizes() -> None:
    sizes = (50, 100, 200, 400)
    four = [_member(0.9 - 2.0 * size**-0.5, size) for size in sizes]
    three = [_member(0.9 - 2.0 * size**-0.5, size, method="rsp") for size in sizes[1:]]
    (law,) = power_laws(_points([*four, *three]), "accuracy").itertuples()
    assert (law.method, law.largest) == ("random", 400)
    assert law.ceiling == pytest.approx(0.9, abs=0.01)
    assert power_laws(_points(three), "accuracy").empty


def test_with_one_seed_replicates_are_those_of_the_resampling() -> None:
    member = _member(0.7, 100)
    groups = np.arange(NUM) // 30
    (accuracy,) = (point for point in _points([member], groups) if point.metric == "accuracy")
    resampling = Resampling(NUM, groups, seed=0, num_replicates=400)
    np.testing.assert_array_equal(
        accuracy.replicates, metric_replicates(LABELS, member.predictions, resampling)["accuracy"][1]
    )
    assert accuracy.estimate.n == 100


def test_a_fine_tuned_model_that_two_experiments_share_counts_once() -> None:
    same = _member(0.7, 100)
    students = [_member(0.75, 100, training="paper", mu=mu, n_aug=7.0) for mu in (1.0, 3.0)]
    points = [point for point in _points([same, same, *students]) if point.metric == "accuracy"]
    assert [(point.member.training, point.num_seeds) for point in points] == [
        ("finetune", 1),
        ("paper", 1),
        ("paper", 1),
    ]


def test_against_labels_students_have_one_setting_the_preferred_or_the_most_run() -> None:
    settings = [(1.0, 0.1), (3.0, 0.1), (3.0, 0.25), (7.0, 0.1)]
    members = [_member(0.7, int(1000 * alpha), training="paper", mu=mu, n_aug=7.0) for mu, alpha in settings]
    points = _points(members)
    assert main_setting(points, (7.0, 7.0)) == (7.0, 7.0)
    assert main_setting(points, (2.0, 7.0)) == (3.0, 7.0)
    chosen = of_setting([*points, *_points([_member(0.6, 100)])], 3.0, 7.0)
    assert {(point.member.training, point.member.alpha) for point in chosen} == {
        ("paper", 0.1),
        ("paper", 0.25),
        ("finetune", 0.1),
    }


def _sweep() -> list:
    """Supervised learning gains 0.1 for each doubling from 100 labels on; rsp is always one doubling ahead."""
    sizes = (100, 200, 400)
    supervised = [_member(0.6 + 0.1 * i, size) for i, size in enumerate(sizes)]
    ahead = [_member(0.7 + 0.1 * i, size, method="rsp") for i, size in enumerate(sizes)]
    return _points([*supervised, *ahead])


def test_labels_saved_of_a_method_that_is_one_doubling_ahead_are_half() -> None:
    saved = saved_labels(_sweep(), "accuracy").set_index("num_labels")
    assert list(saved.index) == [100, 200, 400]
    for num_labels in (100, 200):
        row = saved.loc[num_labels]
        assert row["ratio"] == pytest.approx(2.0, rel=1e-6)
        assert row["ratio_low"] < 2.0 < row["ratio_high"]
        assert row["needed_value"] == pytest.approx(2 * num_labels)
    assert np.isinf(saved.loc[400, "needed_value"])
    assert "more than" in saved.loc[400, "text"]


def test_labels_for_a_score_are_those_of_each_curve() -> None:
    needed = labels_for_score(_sweep(), "accuracy", 0.75).set_index("method")
    assert needed.loc["random", "num_labels"] == pytest.approx(200 * np.sqrt(2), rel=1e-6)
    assert needed.loc["rsp", "num_labels"] == pytest.approx(100 * np.sqrt(2), rel=1e-6)
    assert needed.loc["random", "low"] < 200 * np.sqrt(2) < needed.loc["random", "high"]


def test_nothing_is_saved_against_a_baseline_that_was_not_run() -> None:
    assert saved_labels(_points([_member(0.7, 100, method="rsp")]), "accuracy").empty
