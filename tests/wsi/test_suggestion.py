from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from histo_monai.wsi.suggestion import Fields, choose_diverse, disagreement, indecision


def _cloud(num: int, seed: int, width: int = 6) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(3, 2, (num, width)).astype(np.float32), random.random(num)


def _one_by_one(
    features: np.ndarray, uncertainty: np.ndarray, num: int, labeled: np.ndarray, min_distance: float
) -> list[int]:
    """The rule in words, pair by pair and in double precision."""
    features = features.astype(np.float64)
    pairs = [((a - b) ** 2).sum() for a, b in itertools.product(features, features)]
    unit = np.mean(pairs) ** 0.5
    chosen: list[int] = []
    for _ in range(num):
        best, most = None, 0.0
        for i, point in enumerate(features):
            near = [np.linalg.norm(point - other) / unit for other in (*labeled, *features[chosen])]
            distance = min(near, default=1.0)
            if i not in chosen and distance >= min_distance and uncertainty[i] * distance > most:
                best, most = i, uncertainty[i] * distance
        if best is None:
            break
        chosen.append(best)
    return chosen


@pytest.mark.parametrize("num_labeled", [0, 1, 9])
def test_the_choice_is_that_of_a_naive_loop(num_labeled: int) -> None:
    for seed in range(5):
        features, uncertainty = _cloud(60, seed)
        labeled = _cloud(num_labeled, 100 + seed)[0]
        chosen = choose_diverse(features, uncertainty, 12, labeled_features=labeled, min_distance=0.4)
        assert chosen.tolist() == _one_by_one(features, uncertainty, 12, labeled, 0.4)


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    features, uncertainty = _cloud(300, 1)
    labeled = _cloud(40, 2)[0]
    whole = choose_diverse(features, uncertainty, 30, labeled_features=labeled)
    monkeypatch.setattr("histo_monai.wsi.suggestion._CHUNK", 7)
    np.testing.assert_array_equal(choose_diverse(features, uncertainty, 30, labeled_features=labeled), whole)


def test_neither_the_scale_nor_the_origin_of_features_nor_the_scale_of_uncertainty_matters() -> None:
    features, uncertainty = _cloud(200, 3)
    plain = choose_diverse(features, uncertainty, 20)
    np.testing.assert_array_equal(choose_diverse(features * 64 + 8, uncertainty / 1000, 20), plain)


def test_every_cluster_is_visited_once_before_any_is_visited_twice() -> None:
    random = np.random.default_rng(0)
    centers = np.eye(8, 16) * 10
    sizes = [400, 1, 30, 2, 5, 100, 3, 9]  # rare kinds of tissue beside common ones
    cluster = np.repeat(np.arange(8), sizes)
    features = (centers[cluster] + random.normal(0, 0.2, (len(cluster), 16))).astype(np.float32)
    uncertainty = random.uniform(0.5, 1, len(cluster))
    chosen = choose_diverse(features, uncertainty, 8)
    assert sorted(cluster[chosen]) == list(range(8))
    rest = choose_diverse(features, uncertainty, 5, labeled_features=features[cluster < 3])
    assert sorted(cluster[rest]) == [3, 4, 5, 6, 7]


def test_near_duplicates_are_never_chosen_twice() -> None:
    features, uncertainty = _cloud(50, 4)
    copies = np.concatenate([features, features + 1e-3, features])
    chosen = choose_diverse(copies, np.tile(uncertainty, 3), 150)
    assert sorted(chosen % 50) == sorted(set(chosen % 50))
    assert len(chosen) == 50
    again = choose_diverse(copies, np.tile(uncertainty, 3), 150, labeled_features=features[:20])
    assert sorted(again % 50) == list(range(20, 50))


def test_what_is_certain_is_not_chosen_however_far_it_is() -> None:
    features, uncertainty = _cloud(40, 5)
    uncertainty[::2] = 0
    features[::2] *= 100
    chosen = choose_diverse(features, uncertainty, 40, min_distance=0)
    assert sorted(chosen) == list(range(1, 40, 2))


def _row_of_fields(slides: str, side: float) -> Fields:
    """Fields side by side, 100 px apart, on slides of one letter each."""
    centers = np.array([(50.0, 50.0 + 100 * i) for i in range(len(slides))])
    return Fields(np.array(list(slides), object), centers, np.full(len(slides), side))


def test_fields_that_share_an_area_of_a_slide_are_not_chosen_together() -> None:
    features = np.eye(6, dtype=np.float32)
    uncertainty = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    chosen = {
        side: choose_diverse(features, uncertainty, 6, fields=_row_of_fields("aaabbb", side)).tolist()
        for side in (100.0, 150.0, 250.0)
    }
    assert chosen == {100.0: [0, 1, 2, 3, 4, 5], 150.0: [0, 2, 3, 5], 250.0: [0, 3]}


def test_fields_over_a_labeled_one_are_not_chosen() -> None:
    labeled = Fields(np.array(["b"], object), np.array([[60.0, 390.0]]), np.array([50.0]))
    chosen = choose_diverse(
        np.eye(6, dtype=np.float32),
        np.full(6, 0.5),
        6,
        fields=_row_of_fields("aaabbb", 100.0),
        labeled_fields=labeled,
    )
    assert sorted(chosen) == [0, 1, 2, 5]  # the field reaches from x 365 to 415, over the edge of two


def test_no_candidate_gives_no_choice() -> None:
    assert len(choose_diverse(np.zeros((0, 4), np.float32), np.zeros(0), 3)) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"uncertainty": np.ones(3)}, r"features \(5, 2\), uncertainty \(3,\)"),
        ({"uncertainty": np.array([1, 1, -1, 1, 1.0])}, "uncertainty: a value is negative"),
        ({"uncertainty": np.array([1, 1, np.nan, 1, 1.0])}, "uncertainty: .* Fix: give 0 or more"),
        ({"features": np.full((5, 2), np.inf, np.float32)}, "features: a value is not finite"),
        ({"labeled_features": np.ones((1, 3), np.float32)}, r"labeled_features: shape \(1, 3\)"),
        ({"fields": _row_of_fields("ab", 1.0)}, "fields: 2 for 5 candidates"),
        ({"num": 0}, "give num >= 1"),
    ],
)
def test_wrong_input_is_one_line(changes: dict[str, Any], message: str) -> None:
    right = {"features": np.ones((5, 2), np.float32), "uncertainty": np.ones(5), "num": 2}
    with pytest.raises(ValueError, match=message):
        choose_diverse(**{**right, **changes})


def test_indecision_is_the_entropy_in_parts_of_the_largest() -> None:
    predictions = np.array(
        [[0.5, 0.5, 0, 0], [1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0.5, 0.25, 0.125, 0.125]]
    )
    np.testing.assert_allclose(
        indecision(predictions), [0.5, 0, 1, 0.875], atol=1e-12
    )  # 1, 0, 2, 1.75 bits of 2


def test_disagreement_is_part_of_the_largest() -> None:
    first, second = np.array([0.1, 0.5, 0.9]), np.array([0.1, 0.6, 0.5])
    np.testing.assert_allclose(disagreement(first, second), [0, 0.25, 1])
    np.testing.assert_array_equal(disagreement(first, first), [0, 0, 0])


NUM_KINDS = 12


def _learned(features: np.ndarray, labels: np.ndarray) -> LogisticRegression:
    return LogisticRegression(max_iter=500).fit(features, labels)


def simulate(seed: int, num: int, ratio: float) -> dict[str, tuple[float, float]]:
    """What `num` more labels teach a linear classifier, by the way in which they were chosen.

    Features are of twelve kinds of tissue, every other one tumor, each kind `ratio` times as common as the one before;
    twelve of 1,500 candidates are labeled.

    Returns:
        Accuracy on other tissue, and on tissue in which all kinds are equally common.
    """
    random = np.random.default_rng(seed)
    centers = random.normal(0, 1, (NUM_KINDS, 16))
    fractions = ratio ** np.arange(NUM_KINDS) / (ratio ** np.arange(NUM_KINDS)).sum()

    def tissue(fractions: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        kind = random.choice(NUM_KINDS, 1500, p=fractions)
        return (centers[kind] + random.normal(0, 0.6, (1500, 16))).astype(np.float32), kind % 2

    pool, answers = tissue(fractions)
    tests = [tissue(fractions), tissue(None)]
    labeled = np.concatenate([np.flatnonzero(answers == label)[:6] for label in (0, 1)])
    unsure = indecision(_learned(pool[labeled], answers[labeled]).predict_proba(pool))
    known = {"labeled_features": pool[labeled]}
    ways = {
        "before": [],
        "random": random.permutation(np.setdiff1d(np.arange(1500), labeled))[:num],
        "unsure": np.setdiff1d(np.argsort(-unsure, kind="stable"), labeled, assume_unique=True)[:num],
        "far": choose_diverse(pool, np.ones(1500), num, **known),
        "both": choose_diverse(pool, unsure, num, **known),
    }
    result = {}
    for way, more in ways.items():
        rows = np.concatenate([labeled, more]).astype(np.int64)
        model = _learned(pool[rows], answers[rows])
        result[way] = (model.score(*tests[0]), model.score(*tests[1]))
    return result


def test_labels_chosen_so_teach_no_less_than_random_ones_and_more_of_rare_tissue() -> None:
    runs = [simulate(seed, num=12, ratio=0.7) for seed in range(40)]
    gain = np.mean([np.subtract(run["both"], run["random"]) for run in runs], axis=0)
    assert gain[0] > -0.02
    assert gain[1] > 0.04


def test_no_slide_exceeds_its_quota_while_others_have_any() -> None:
    random = np.random.default_rng(3)
    features = random.normal(size=(60, 4)).astype(np.float32)
    slides = np.array(["a"] * 50 + ["b"] * 6 + ["c"] * 4, object)
    places = Fields(slides, np.arange(120.0).reshape(60, 2) * 100, np.ones(60))
    uncertainty = np.where(slides == "a", 1.0, 0.2)
    free = slides[choose_diverse(features, uncertainty, 12, fields=places)]
    assert (free == "a").sum() > 8
    spread = slides[choose_diverse(features, uncertainty, 12, fields=places, most_per_slide=4)]
    assert {name: int((spread == name).sum()) for name in "abc"} == {"a": 4, "b": 4, "c": 4}
    more = slides[choose_diverse(features, uncertainty, 30, fields=places, most_per_slide=4)]
    assert (more == "a").sum() > 4  # when the others are used up
    assert len(more) == 30
