from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from histo_monai.finetuning import learners
from histo_monai.finetuning.learners import (
    LEARNERS,
    NEIGHBORS,
    STRENGTHS,
    Candidate,
    Model,
    choose_model,
    errors_of,
    label_folds,
)


@pytest.fixture(autouse=True)
def small_forests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEARNERS, "forest", replace(LEARNERS["forest"], settings=(30,)))
    monkeypatch.setattr(learners, "TREES_IN_FOLDS", 30)


def _scaled(learning: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return (rows - learning.mean(axis=0)) / learning.std(axis=0)


def _classes(
    num: int = 90, num_classes: int = 3, shift: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and patients of unequal sizes; a patient has all classes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, num)
    features = rng.normal(size=(num, 4))
    features[:, 0] += shift * labels
    return features, labels, np.array([f"patient {i}" for i in np.sort(rng.integers(0, 7, num))], object)


def _pairs_of(folds: list[tuple[np.ndarray, np.ndarray]], num: int) -> None:
    held_out = np.concatenate([rows for _, rows in folds])
    assert sorted(held_out) == list(range(num))
    for learning, rows in folds:
        assert sorted([*learning, *rows]) == list(range(num))


@pytest.mark.parametrize("num_groups", [2, 3, 7])
@pytest.mark.parametrize("num_classes", [3, None])
def test_no_patient_is_on_both_sides_of_a_fold(num_groups: int, num_classes: int | None) -> None:
    rng = np.random.default_rng(num_groups)
    groups = np.array([f"patient {i}" for i in rng.permutation(np.arange(60) % num_groups)], object)
    targets = rng.integers(0, 3, 60) if num_classes else rng.random(60)
    folds, apart = label_folds(targets, groups, num_classes)
    assert apart
    assert len(folds) == min(num_groups, 5)
    _pairs_of(folds, 60)
    for learning, held_out in folds:
        assert not set(groups[learning]) & set(groups[held_out])
        assert num_classes is None or set(targets[learning]) == {0, 1, 2}


def test_fewer_folds_are_made_where_a_class_is_of_few_patients() -> None:
    """Class 1 is in two of eight patients: were both held out at once, nothing would be known of it."""
    groups = np.repeat([f"patient {i}" for i in range(8)], 6).astype(object)
    targets = np.isin(groups, ["patient 0", "patient 1"]).astype(int)
    folds, apart = label_folds(targets, groups, 2)
    assert apart
    assert len(folds) >= 2
    for learning, held_out in folds:
        assert not set(groups[learning]) & set(groups[held_out])
        assert set(targets[learning]) == {0, 1}


def test_a_class_of_one_patient_is_held_out_row_by_row() -> None:
    groups = np.repeat(["patient 0", "patient 1", "patient 2"], 8).astype(object)
    targets = (groups == "patient 1").astype(int)
    folds, apart = label_folds(targets, groups, 2)
    assert not apart
    assert len(folds) == 5
    _pairs_of(folds, 24)
    for learning, held_out in folds:
        assert set(targets[learning]) == set(targets[held_out]) == {0, 1}


@pytest.mark.parametrize(
    ("counts", "num_folds"), [([1], 0), ([1, 1, 1], 0), ([2, 1], 2), ([3, 0, 9], 3), ([30, 30], 5)]
)
def test_few_labels_have_few_folds_and_those_that_cannot_be_held_out_none(
    counts: list[int], num_folds: int
) -> None:
    targets = np.repeat(np.arange(len(counts)), counts)
    groups = np.array([f"patch {i}" for i in range(len(targets))], object)
    folds, _ = label_folds(targets, groups, max(len(counts), 2))
    assert len(folds) == num_folds
    if folds:
        _pairs_of(folds, len(targets))
    assert label_folds(np.array([0.5]), np.array(["slide"], object), None) == ([], False)


def _naive_scores(
    features: np.ndarray, targets: np.ndarray, groups: np.ndarray, classes: bool
) -> list[float]:
    """Of each strength, the error over all rows, each predicted by a model of the other folds."""
    folds, _ = label_folds(targets, groups, 3 if classes else None)
    scores = []
    for strength in STRENGTHS:
        total = 0.0
        for learning, held_out in folds:
            rows = _scaled(features[learning], features)
            if classes:
                fitted = LogisticRegression(C=strength, max_iter=100).fit(rows[learning], targets[learning])
            else:
                fitted = Ridge(alpha=1 / strength).fit(rows[learning], targets[learning])
            for row in held_out:
                if classes:
                    probabilities = fitted.predict_proba(rows[[row]])[0]
                    total += sum((probabilities[k] - (targets[row] == k)) ** 2 for k in range(3))
                else:
                    total += (min(max(fitted.predict(rows[[row]])[0], 0.0), 1.0) - targets[row]) ** 2
        scores.append(total / len(targets))
    return scores


@pytest.mark.parametrize("shift", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("classes", [True, False])
def test_the_strength_is_that_of_the_lowest_score_in_a_loop_over_folds(shift: float, classes: bool) -> None:
    features, labels, groups = _classes(shift=shift)
    targets = labels if classes else np.clip(0.5 + 0.1 * shift * features[:, 0] - 0.1 * labels, 0, 1)
    chosen = choose_model(
        {"x": features}, targets, groups, 3 if classes else None, names=("x",), learners=("linear",)
    )
    scores = _naive_scores(features, targets, groups, classes)
    assert chosen.score == pytest.approx(min(scores), rel=1e-6)
    assert scores[STRENGTHS.index(chosen.model.candidate.setting)] == pytest.approx(min(scores), rel=1e-6)
    about = chosen.as_dict()
    assert (about["features"], about["learner"], about["num_folds"], about["groups_apart"]) == (
        *("x", "linear", 5),
        True,
    )


def _ring(num: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(num, 2))
    return points, (np.linalg.norm(points, axis=1) > 1.1).astype(int)


def test_the_informative_features_and_the_suitable_learner_are_chosen() -> None:
    points, labels = _ring()
    noise = np.random.default_rng(2).normal(size=points.shape)
    groups = np.array([f"patch {i}" for i in range(len(labels))], object)
    features = {"noise": noise, "points": points, "radius": np.linalg.norm(points, axis=1)[:, None]}

    def chosen(*names: str) -> tuple[str, str]:
        best = choose_model(features, labels, groups, 2, names=names, learners=("linear", "forest"))
        return best.model.candidate.features, best.model.candidate.learner

    assert chosen("noise", "points") == ("points", "forest")  # No line cuts a ring out.
    assert chosen("noise", "radius")[0] == "radius"
    line = (points[:, 0] + 0.3 * noise[:, 0] > 0).astype(int)
    best = choose_model(features, line, groups, 2, names=("points",), learners=("linear", "forest"))
    assert best.model.candidate.learner == "linear"


def test_the_choice_and_its_predictions_are_the_same_each_time() -> None:
    features, labels, groups = _classes()
    first, second = (
        choose_model(
            {"x": features}, labels, groups, 3, names=("x",), learners=("linear", "forest", "neighbors")
        )
        for _ in range(2)
    )
    assert first.as_dict() == second.as_dict()
    np.testing.assert_array_equal(first.model.predict({"x": features}), second.model.predict({"x": features}))


@pytest.mark.parametrize("num_neighbors", [1, 3, 15])
@pytest.mark.parametrize("classes", [True, False])
def test_nearest_neighbors_are_those_of_the_smallest_angle(num_neighbors: int, classes: bool) -> None:
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(40, 5)), rng.integers(0, 3, 40)
    features *= rng.uniform(0.1, 10, (40, 1))  # Lengths do not count.
    targets = labels if classes else rng.random(40)
    model = Model(
        Candidate("x", "neighbors", num_neighbors), {"x": features}, targets, 3 if classes else None
    )
    asked = rng.normal(size=(12, 5))
    for row, predicted in zip(asked, model.predict({"x": asked}), strict=True):
        cosines = [row @ other / np.linalg.norm(row) / np.linalg.norm(other) for other in features]
        nearest = sorted(range(40), key=lambda i: -cosines[i])[:num_neighbors]
        if classes:
            expected = [sum(labels[i] == k for i in nearest) / num_neighbors for k in range(3)]
        else:
            expected = [sum(targets[i] for i in nearest) / num_neighbors]
        np.testing.assert_allclose(predicted, expected, atol=1e-12)


def test_there_are_never_more_neighbors_than_rows_to_learn_from() -> None:
    features, labels, groups = _classes(num=12, num_classes=2)
    chosen = choose_model({"x": features}, labels, groups, 2, names=("x",), learners=("neighbors",))
    learning = min(len(rows) for rows, _ in label_folds(labels, groups, 2)[0])
    assert chosen.model.candidate.setting <= learning < max(NEIGHBORS)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_class_without_a_label_has_no_probability(learner: str) -> None:
    features, _, groups = _classes(num=40)
    labels = np.random.default_rng(0).permutation(np.repeat([0, 2], 20))
    chosen = choose_model({"x": features}, labels, groups, 3, names=("x",), learners=(learner,))
    predictions = chosen.model.predict({"x": features})
    assert predictions.shape == (40, 3)
    assert (predictions[:, 1] == 0).all()
    np.testing.assert_allclose(predictions.sum(axis=1), 1)


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_lonely_class_and_one_label_of_each_are_learned_from_all_the_same(learner: str) -> None:
    features = np.random.default_rng(0).normal(size=(6, 3))
    groups = np.array([f"patch {i}" for i in range(6)], object)
    for labels, score in ((np.array([0, 0, 0, 0, 0, 1]), True), (np.arange(6), False)):
        chosen = choose_model({"x": features}, labels, groups, 6, names=("x",), learners=(learner,))
        assert (chosen.score is not None) == score
        predictions = chosen.model.predict({"x": features})
        if learner != "means" or not score:  # the mean of five random rows recalls none of them
            assert (predictions.argmax(axis=1) == labels).sum() >= 5
    alone = choose_model(
        {"x": features}, np.zeros(6, int), groups, 2, names=("x",), learners=(learner,)
    ).model.predict({"x": features})
    np.testing.assert_array_equal(alone, np.tile([1.0, 0.0], (6, 1)))


@pytest.mark.parametrize("learner", [name for name, learner in LEARNERS.items() if learner.regressor])
def test_scores_are_regressed_and_stay_on_their_scale(learner: str) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 3))
    scores = np.clip(0.5 + 0.3 * features[:, 1], 0, 1).astype(np.float32)
    groups = np.array([f"slide {i // 5}" for i in range(100)], object)
    chosen = choose_model(
        {"x": features[:100]}, scores[:100], groups, None, names=("x",), learners=(learner,)
    )
    predictions = chosen.model.predict({"x": 3 * features})
    assert predictions.shape == (200, 1)
    assert predictions.min() >= 0
    assert predictions.max() <= 1
    assert np.corrcoef(predictions[:, 0], scores)[0, 1] > 0.7


def test_what_color_predicts_is_learned_and_what_it_does_not_is_not() -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(400, 3)), rng.integers(0, 3, 400)
    groups = np.array([f"patch {i}" for i in range(300)], object)
    noise = features.copy()
    features[:, 0] += 4 * labels
    for given, low, high in ((features, 0.9, 1.0), (noise, 0.1, 0.6)):
        chosen = choose_model(
            {"x": given[:300]}, labels[:300], groups, 3, names=("x",), learners=("linear", "forest")
        )
        right = chosen.model.predict({"x": given[300:]}).argmax(axis=1) == labels[300:]
        assert low <= right.mean() <= high


def test_errors_are_the_brier_score_and_the_squared_error() -> None:
    probabilities = np.array([[0.2, 0.5, 0.3], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(errors_of(probabilities, np.array([1, 2, 1])), [0.04 + 0.25 + 0.09, 0, 2])
    np.testing.assert_allclose(errors_of(np.array([[0.2], [0.9]]), np.array([0.5, 0.5])), [0.09, 0.16])


@pytest.mark.parametrize("num_classes", [2, 3, None])
def test_a_linear_model_as_a_layer_predicts_the_same(num_classes: int | None) -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(3.0, 5.0, (60, 4))
    targets = rng.integers(0, num_classes, 60) if num_classes else rng.uniform(0.3, 0.7, 60)
    model = Model(Candidate("x", "linear", 0.1), {"x": features}, targets, num_classes)
    weights, biases = model.layer()
    outputs = features @ weights.T + biases
    if num_classes:
        np.testing.assert_allclose(outputs.sum(axis=1), 0.0, atol=1e-9)
        outputs = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    assert outputs.shape == (60, num_classes or 1)
    np.testing.assert_allclose(outputs, model.predict({"x": features}), rtol=1e-9)


def test_a_class_without_a_label_is_unlikely_in_the_layer() -> None:
    features, targets, _ = _classes(num_classes=2)
    weights, biases = Model(Candidate("x", "linear", 0.1), {"x": features}, 2 * targets, 4).layer()
    assert not weights[[1, 3]].any()
    np.testing.assert_allclose(biases[[1, 3]], np.log(1e-3))
    known = Model(Candidate("x", "linear", 0.1), {"x": features}, targets, 2).layer()
    np.testing.assert_array_equal(weights[[0, 2]], known[0])
