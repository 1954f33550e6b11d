"""`finetuning.class_means`: what the head does against a naive loop, a closed form and scikit-learn's centroids."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestCentroid

from histo_monai.finetuning.class_means import ClassMeans, standardized
from histo_monai.finetuning.learners import Candidate, Model, choose_model

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 6))
CLASSES = RNG.integers(0, 3, 40)
OTHERS = RNG.normal(size=(25, 6))


def test_probabilities_are_those_of_a_naive_loop() -> None:
    means = []
    for number in range(3):
        total = np.zeros(6)
        for row, its_class in zip(ROWS, CLASSES, strict=True):
            if its_class == number:
                total += row / np.sqrt(np.square(row).sum())
        means.append(total / np.sqrt(np.square(total).sum()))
    expected = []
    for row in OTHERS:
        cosines = [float(row @ mean) / float(np.sqrt(row @ row)) for mean in means]
        weights = [np.exp(cosine / 0.1) for cosine in cosines]
        expected.append([weight / sum(weights) for weight in weights])
    np.testing.assert_allclose(ClassMeans(0.1).fit(ROWS, CLASSES).predict_proba(OTHERS), expected, rtol=1e-12)


def test_decisions_are_those_of_the_nearest_mean_on_the_sphere() -> None:
    """|x - m|² = 2 - 2 cos for rows and means of length 1: scikit-learn's centroids, put on the sphere."""
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    nearest = NearestCentroid().fit(unit, CLASSES)
    nearest.centroids_ /= np.linalg.norm(nearest.centroids_, axis=1, keepdims=True)
    ours = ClassMeans(0.2).fit(ROWS, CLASSES).predict_proba(OTHERS).argmax(axis=1)
    np.testing.assert_array_equal(
        ours, nearest.predict(OTHERS / np.linalg.norm(OTHERS, axis=1, keepdims=True))
    )


def test_two_opposite_classes_have_the_logistic_of_twice_the_cosine() -> None:
    """Means e and -e: p = 1 / (1 + exp(-2 cos / T))."""
    rows = np.array([[2.0, 0.0], [-3.0, 0.0]])
    probabilities = ClassMeans(0.5).fit(rows, np.array([1, 0])).predict_proba(np.array([[1.0, 1.0]]))
    assert probabilities[0, 1] == pytest.approx(1 / (1 + np.exp(-2 * np.sqrt(0.5) / 0.5)))


def test_length_of_a_row_and_temperature_change_no_decision() -> None:
    decisions = ClassMeans(0.05).fit(ROWS, CLASSES).predict_proba(OTHERS).argmax(axis=1)
    again = ClassMeans(0.2).fit(ROWS * 7, CLASSES).predict_proba(OTHERS * 3).argmax(axis=1)
    np.testing.assert_array_equal(decisions, again)


def test_a_row_of_zeros_is_equally_likely_of_all_classes() -> None:
    np.testing.assert_allclose(ClassMeans(0.1).fit(ROWS, CLASSES).predict_proba(np.zeros((1, 6))), 1 / 3)


def test_a_class_without_a_label_has_probability_0_as_with_every_learner() -> None:
    model = Model(Candidate("x", "means", 0.1), {"x": ROWS}, np.where(CLASSES == 1, 0, CLASSES), 3)
    predictions = model.predict({"x": OTHERS})
    assert (predictions[:, 1] == 0).all()
    np.testing.assert_allclose(predictions.sum(axis=1), 1)


def test_class_means_are_chosen_among_learners_and_know_no_scores() -> None:
    groups = np.arange(40).astype(str).astype(object)
    chosen = choose_model({"x": ROWS}, CLASSES, groups, 3, names=["x"], learners=["means"])
    assert chosen.model.candidate.learner == "means"
    assert chosen.num_folds == 5
    with pytest.raises(ValueError, match="means learns classes"):
        choose_model({"x": ROWS}, RNG.random(40), groups, None, names=["x"], learners=["means"])


def test_features_are_standardized_on_the_rows_asked_for() -> None:
    rows = np.array([0, 2, 3, 9])
    features = np.hstack([ROWS * 5 + 3, np.full((40, 1), 2.0)])
    whitened = standardized({"x": features}, rows)["x"]
    np.testing.assert_allclose(whitened[rows].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(whitened[rows][:, :-1].std(axis=0), 1)
    np.testing.assert_array_equal(whitened[:, -1], 0)
