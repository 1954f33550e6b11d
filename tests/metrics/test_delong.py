import time

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from histo_monai.metrics import auc, delong_test

OVARIAN_CANCER = """
3.0 5.8 10 0  3.2 6.3 5 1  3.9 6.8 3 1  2.8 4.8 6 0  3.2 5.8 3 1  0.9 4.0 5 0  2.5 5.7 8 0  1.6 5.6 5 1
3.8 5.7 5 1  3.7 6.7 6 1  3.2 5.4 4 1  3.8 6.6 6 1  4.1 6.6 5 1  3.6 5.7 5 1  4.3 7.0 4 1  3.6 6.7 4 0
2.3 4.4 6 1  4.2 7.6 4 0  4.0 6.6 6 0  3.5 5.8 6 1  3.8 6.8 7 1  3.0 4.7 8 0  4.5 7.4 5 1  3.7 7.4 5 1
3.1 6.6 6 1  4.1 8.2 6 1  4.3 7.0 5 1  4.3 6.5 4 1  3.2 5.1 5 1  2.6 4.7 6 1  3.3 6.8 6 0  1.7 4.0 7 0
3.7 6.1 5 1  3.3 6.3 7 1  4.2 7.7 6 1  3.5 6.2 5 1  2.9 5.7 9 0  2.1 4.8 7 1  2.8 6.2 8 0  4.0 7.0 7 1
3.3 5.7 6 1  3.7 6.9 5 1  3.6 6.6 5 1
"""
"""DeLong, DeLong & Clarke-Pearson 1988: albumin, total protein, K-G score, outcome of 43 patients.

As the manual of SAS/STAT, procedure LOGISTIC, "Comparing Receiver Operating Characteristic Curves", has them.
"""


@pytest.fixture(scope="module")
def ovarian():
    albumin, protein, score, outcome = np.array(OVARIAN_CANCER.split(), float).reshape(-1, 4).T
    return {"outcome": outcome, "albumin": albumin, "protein": protein, "score": 10 - score}


@pytest.mark.parametrize(
    ("name", "area", "low", "high"),
    [
        ("albumin", 0.7366, 0.5549, 0.9182),
        ("score", 0.7258, 0.5243, 0.9273),
        ("protein", 0.6478, 0.4518, 0.8439),
    ],
)
def test_the_patients_of_delong_1988_give_the_areas_that_sas_prints(ovarian, name, area, low, high):
    estimate = auc(ovarian["outcome"], ovarian[name])
    printed = tuple(round(number, 4) for number in (estimate.value, estimate.low, estimate.high))
    assert printed == (area, low, high)
    assert estimate.n == 43


@pytest.mark.parametrize(
    ("name", "difference", "low", "high", "chi_square", "p"),
    [
        ("albumin", 0.0108, -0.1761, 0.1976, 0.0127, 0.9102),
        ("protein", -0.0780, -0.2830, 0.1271, 0.5554, 0.4561),
    ],
)
def test_the_patients_of_delong_1988_give_the_tests_that_sas_prints(
    ovarian, name, difference, low, high, chi_square, p
):
    test = delong_test(ovarian["outcome"], ovarian[name], ovarian["score"])
    estimate = test.difference
    printed = [
        round(number, 4) for number in (estimate.value, estimate.low, estimate.high, test.z**2, test.p)
    ]
    assert printed == [difference, low, high, chi_square, p]


def test_the_ratings_of_hanley_and_mcneil_1982_give_the_interval_that_stata_prints():
    """109 tomograms rated 1-5: their table 1; area, standard error and interval as Stata's roctab manual."""
    normal, abnormal = [33, 6, 6, 11, 2], [3, 2, 2, 11, 33]
    scores = np.concatenate([np.repeat(np.arange(1, 6), counts) for counts in (normal, abnormal)])
    estimate = auc(np.repeat([0, 1], [58, 51]), scores)
    assert round(estimate.value, 4) == 0.8932
    assert (round(estimate.low, 5), round(estimate.high, 5)) == (0.83295, 0.95339)


def components_by_loops(labels, scores):
    """DeLong's structural components by comparing all pairs."""
    positive = [s for s, label in zip(scores, labels, strict=True) if label == 1]
    negative = [s for s, label in zip(scores, labels, strict=True) if label == 0]

    def kernel(x, y):
        return 1.0 if x > y else 0.5 if x == y else 0.0

    v10 = [sum(kernel(x, y) for y in negative) / len(negative) for x in positive]
    v01 = [sum(kernel(x, y) for x in positive) / len(positive) for y in negative]
    return v10, v01


def covariance_by_loops(a, b):
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    return sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / (len(a) - 1)


@pytest.mark.parametrize("levels", [4, 10**6])
def test_areas_intervals_and_tests_equal_the_definition_over_all_pairs(levels):
    random = np.random.default_rng(levels)
    labels = random.integers(2, size=60)
    a = np.floor(levels * random.random(60)) / levels + 0.5 * labels
    b = np.floor(levels * (0.5 * a + random.random(60))) / levels
    (a10, a01), (b10, b01) = components_by_loops(labels, a), components_by_loops(labels, b)

    def covariance(x10, x01, y10, y01):
        return covariance_by_loops(x10, y10) / len(x10) + covariance_by_loops(x01, y01) / len(x01)

    variance = covariance(a10, a01, a10, a01)
    estimate = auc(labels, a)
    assert estimate.value == pytest.approx(sum(a10) / len(a10))
    assert estimate.value == pytest.approx(roc_auc_score(labels, a))
    assert estimate.low == pytest.approx(estimate.value - stats.norm.ppf(0.975) * np.sqrt(variance))
    assert estimate.high == pytest.approx(min(estimate.value + stats.norm.ppf(0.975) * np.sqrt(variance), 1))
    spread = variance + covariance(b10, b01, b10, b01) - 2 * covariance(a10, a01, b10, b01)
    test = delong_test(labels, a, b)
    z = (sum(a10) / len(a10) - sum(b10) / len(b10)) / np.sqrt(spread)
    assert test.z == pytest.approx(z)
    assert test.p == pytest.approx(2 * stats.norm.cdf(-abs(z)))


def test_the_test_rejects_equal_scores_as_often_as_it_says():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 60)
    rejected = 0
    for _ in range(600):
        shared = labels + random.normal(size=120)
        rejected += delong_test(labels, *(shared + random.normal(size=(2, 120)))).p < 0.05
    assert 0.025 < rejected / 600 < 0.08


def test_complete_separation_has_the_exact_interval_of_disjoint_pairs():
    estimate = auc([0, 0, 0, 1, 1], [1, 2, 3, 4, 5])
    assert (estimate.value, estimate.high) == (1, 1)
    # Two of two disjoint pairs: Clopper & Pearson.
    assert estimate.low == pytest.approx(stats.beta.ppf(0.025, 2, 1))
    reversed_ = auc([1, 1, 0, 0, 0], [1, 2, 3, 4, 5])
    assert (reversed_.value, reversed_.low) == (0, 0)
    assert reversed_.high == pytest.approx(1 - estimate.low)


def test_a_single_row_of_a_class_leaves_the_interval_open():
    estimate = auc([0, 0, 0, 1], [1, 2, 3, 2.5])
    assert estimate.value == pytest.approx(2 / 3)
    assert np.isnan([estimate.low, estimate.high]).all()
    assert np.isnan(delong_test([0, 0, 0, 1], [1, 2, 3, 2.5], [1, 2, 3, 4]).p)


def test_scores_that_order_alike_do_not_differ_and_no_variance_is_no_verdict():
    labels = np.array([0, 0, 1, 1, 0, 1])
    scores = np.array([0.1, 0.4, 0.35, 0.8, 0.3, 0.2])
    same = delong_test(labels, scores, np.exp(scores))
    assert (same.difference.value, same.z, same.p) == (0, 0, 1)
    separated_or_constant = delong_test(labels, labels, np.zeros(6))
    assert separated_or_constant.difference.value == 0.5
    assert np.isnan(
        [separated_or_constant.z, separated_or_constant.p, separated_or_constant.difference.low]
    ).all()


def test_a_million_rows_take_seconds():
    random = np.random.default_rng(0)
    labels = random.integers(2, size=10**6)
    scores = labels + random.normal(size=10**6)
    start = time.process_time()
    estimate = auc(labels, scores)
    assert time.process_time() - start < 5
    # Two normal distributions one standard deviation apart.
    assert estimate.low < stats.norm.cdf(1 / np.sqrt(2)) < estimate.high


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([0, 1, 2], [1, 2, 3], "labels row 2 is 2"),
        ([1, 1], [1, 2], "labels are all 1"),
        ([0, 1], [1, np.nan], "scores row 1 is nan"),
        ([0, 1], [1, 2, 3], "labels 2, scores 3"),
    ],
)
def test_what_has_no_area_is_refused(labels, scores, message):
    with pytest.raises(ValueError, match=message):
        auc(labels, scores)
