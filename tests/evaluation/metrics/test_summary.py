import time

import numpy as np
import pytest

from histo_monai.evaluation import metrics
from histo_monai.evaluation.metrics import (
    classification_estimates,
    grouped_bootstrap,
    human_estimates,
    intraclass_correlation,
    regression_estimates,
    score_estimates,
)


def classified(num_rows, num_classes, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(num_classes, size=num_rows)
    probabilities = random.dirichlet(np.ones(num_classes), size=num_rows)
    probabilities[np.arange(num_rows), labels] += 0.3
    return labels, probabilities / probabilities.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("num_groups", [6, None])
def test_classification_estimates_equal_a_bootstrap_of_each_point_value(num_groups):
    labels, probabilities = classified(90, 3)
    probabilities = np.round(probabilities, 2)  # Ties between scores.
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    groups = None if num_groups is None else np.random.default_rng(1).integers(num_groups, size=90)
    estimates = classification_estimates(labels, probabilities, groups, seed=3, num_replicates=40)
    for name in ("accuracy", "mean_one_versus_rest_accuracy", "weighted_f1", "macro_auc", "brier"):
        statistic = metrics.brier_score if name == "brier" else getattr(metrics, name)
        expected = grouped_bootstrap(statistic, (labels, probabilities), groups, seed=3, num_replicates=40)
        assert estimates[name].as_dict() == expected.as_dict(), name


def test_the_interval_of_the_calibration_error_holds_its_value_and_has_the_width_of_the_replicates():
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(2), size=400)
    labels = (random.random(400) < probabilities[:, 1]).astype(int)
    ece = classification_estimates(labels, probabilities, None, seed=0, num_replicates=300)["ece"]
    plain = grouped_bootstrap(
        metrics.expected_calibration_error, (labels, probabilities), None, seed=0, num_replicates=300
    )
    assert ece.value == pytest.approx(plain.value)
    # Resampling inflates it: the plain percentiles lie around a larger value than the one they belong to.
    assert (plain.low + plain.high) / 2 > 1.15 * plain.value
    assert 0 < ece.low < ece.value < ece.high
    assert (ece.low + ece.high) / 2 == pytest.approx(ece.value, rel=0.05)
    assert ece.high - ece.low == pytest.approx(plain.high - plain.low)


def test_few_groups_of_one_class_each_are_handled_without_a_warning():
    labels, probabilities = classified(60, 2)
    groups = np.where(labels == 0, "slide 1", "slide 2")
    estimates = classification_estimates(labels, probabilities, groups, seed=0, num_replicates=50)
    assert estimates["macro_auc"].n == 2
    assert 0 < estimates["macro_auc"].value < 1


def test_one_class_alone_has_no_auc_but_an_accuracy():
    estimates = classification_estimates(np.zeros(20, int), classified(20, 2)[1], None, seed=0)
    assert estimates["macro_auc"].as_dict() == {"value": None, "low": None, "high": None, "n": 20}
    assert np.isfinite(estimates["accuracy"].low)


@pytest.mark.slow
@pytest.mark.parametrize(("num_rows", "num_classes"), [(7180, 9), (40_000, 2)])
def test_the_largest_test_sets_take_seconds(num_rows, num_classes):
    start = time.process_time()
    estimates = classification_estimates(*classified(num_rows, num_classes), None, seed=0)
    assert time.process_time() - start < 30  # Of computing, however busy the machine; about 3.
    accuracy = estimates["accuracy"]
    error = 1.96 * np.sqrt(accuracy.value * (1 - accuracy.value) / num_rows)
    assert accuracy.high - accuracy.value == pytest.approx(error, rel=0.1)
    assert accuracy.value - accuracy.low == pytest.approx(error, rel=0.1)


def rated(num_rows=80, num_groups=9):
    random = np.random.default_rng(0)
    truth = random.random(num_rows)
    a, b, predicted = np.round(truth + 0.1 * random.normal(size=(3, num_rows)), 1)
    return a, b, predicted, random.integers(num_groups, size=num_rows)


def test_score_estimates_equal_a_bootstrap_of_each_point_value_and_the_correlations():
    reference, _, predicted, groups = rated()
    estimates = score_estimates(reference, predicted, groups, seed=3, num_replicates=60)
    for name, statistic in (("pk", metrics.prediction_probability), ("mae", metrics.mean_absolute_error)):
        expected = grouped_bootstrap(statistic, (reference, predicted), groups, seed=3, num_replicates=60)
        assert estimates[name].as_dict() == expected.as_dict(), name
    ratings = np.column_stack([reference, predicted])
    for name, form in (("icc", "ICC2"), ("icc1", "ICC1"), ("icc3", "ICC3")):
        assert estimates[name] == intraclass_correlation(ratings, form)


def test_two_raters_have_their_keys_and_the_ceiling_is_their_agreement():
    a, b, predicted, groups = rated()
    both = regression_estimates(a, b, predicted, groups, seed=3, num_replicates=60)
    assert list(both) == [
        f"{name}_{rater}" for rater in "ab" for name in ("icc", "icc1", "icc3", "pk", "mae")
    ]
    of_b = score_estimates(b, predicted, groups, seed=3, num_replicates=60)
    assert {name: both[f"{name}_b"] for name in of_b} == of_b
    ceiling = human_estimates(a, b, None, seed=3, num_replicates=60)
    assert ceiling["icc"] == intraclass_correlation(np.column_stack([a, b]))
    assert ceiling["pk"].n == 80
