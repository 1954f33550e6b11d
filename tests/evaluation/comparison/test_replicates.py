import numpy as np
import pytest

from histo_monai.evaluation.comparison.replicates import AGREEMENT, CLASSIFICATION, metric_replicates
from histo_monai.evaluation.metrics import (
    Resampling,
    accuracy,
    intraclass_correlation,
    macro_auc,
    mean_one_versus_rest_accuracy,
    weighted_f1,
)

FUNCTIONS = (accuracy, mean_one_versus_rest_accuracy, weighted_f1, macro_auc)


def rows_of_replicates(resampling):
    """Row numbers of each replicate, as often as they were drawn."""
    for counts in resampling.blocks():
        for times in resampling.weights(counts).T:
            yield np.repeat(np.arange(resampling.num_rows), times.astype(int))


@pytest.mark.parametrize("groups", [None, np.arange(60) // 7])
def test_replicates_of_classes_are_the_metrics_of_the_resampled_rows(groups):
    random = np.random.default_rng(0)
    labels, probabilities = random.integers(3, size=60), random.dirichlet(np.ones(3), size=60)
    resampling = Resampling(60, groups, seed=1, num_replicates=40)
    result = metric_replicates(labels, probabilities, resampling)
    assert tuple(result) == CLASSIFICATION
    for (value, replicates), metric in zip(result.values(), FUNCTIONS, strict=True):
        assert value == pytest.approx(metric(labels, probabilities))
        expected = [metric(labels[rows], probabilities[rows]) for rows in rows_of_replicates(resampling)]
        np.testing.assert_allclose(replicates, expected, rtol=1e-12)


@pytest.mark.parametrize("groups", [None, np.arange(50) // 6])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_replicates_of_scores_are_the_icc_of_the_resampled_rows(groups, offset):
    random = np.random.default_rng(2)
    truth = random.random(50) + offset
    predicted = truth + 0.1 + 0.2 * random.normal(size=50)
    resampling = Resampling(50, groups, seed=3, num_replicates=40)
    result = metric_replicates(truth, predicted, resampling)
    assert tuple(result) == AGREEMENT
    value, replicates = result["icc"]
    ratings = np.column_stack([truth, predicted])
    assert value == pytest.approx(intraclass_correlation(ratings).value)
    expected = [intraclass_correlation(ratings[rows]).value for rows in rows_of_replicates(resampling)]
    np.testing.assert_allclose(replicates, expected, rtol=1e-6)


def test_perfect_agreement_is_one_and_one_and_the_same_number_is_undefined():
    resampling = Resampling(6, None, seed=0, num_replicates=200)
    scores = np.array([0.1, 0.3, 0.3, 0.7, 0.9, 0.4])
    value, replicates = metric_replicates(scores, scores, resampling)["icc"]
    assert value == pytest.approx(1)
    np.testing.assert_allclose(replicates[~np.isnan(replicates)], 1)
    value, replicates = metric_replicates(np.full(6, 0.3), np.full(6, 0.3), resampling)["icc"]
    assert np.isnan(value)
    assert np.isnan(replicates).all()


def test_rows_of_another_resampling_are_refused():
    with pytest.raises(ValueError, match="5 references for a resampling of 6 rows"):
        metric_replicates(np.zeros(5), np.zeros(5), Resampling(6, None, seed=0, num_replicates=10))
    with pytest.raises(ValueError, match="predictions row 1 is nan"):
        metric_replicates(np.zeros(2), [1, np.nan], Resampling(2, None, seed=0, num_replicates=10))
