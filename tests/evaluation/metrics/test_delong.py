import time

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from histo_monai.evaluation.metrics import auc, delong_test

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


def clustered(random, num_patients, num_slides, is_positive, patient_sd=1.0):
    """Scores of slides that share what is their patient's, and the patients."""
    patients = np.repeat(np.arange(num_patients), num_slides)
    own = random.normal(size=len(patients)) + patient_sd * random.normal(size=num_patients)[patients]
    return own + is_positive, patients


def obuchowski_by_loops(labels, components, patients):
    """Obuchowski 1997, equations 3 to 5: components of slides of each patient less the AUC, crossed over patients."""
    (v10, v01), area = components, sum(components[0]) / len(components[0])
    x, y = iter(v10), iter(v01)
    excess = {patient: [0.0, 0.0] for patient in patients}
    holds = {0: set(), 1: set()}
    for label, patient in zip(labels, patients, strict=True):
        excess[patient][label] += (next(x) if label else next(y)) - area
        holds[label].add(patient)
    size = {1: len(v10), 0: len(v01)}

    def s(first, second, num):
        return num / (num - 1) * sum(e[first] * e[second] for e in excess.values())

    own = sum(s(c, c, len(holds[c])) / size[c] ** 2 for c in (0, 1))
    return own + 2 * s(0, 1, len(excess)) / (size[0] * size[1])


def test_intervals_and_tests_by_patient_equal_obuchowskis_sums_over_patients():
    random = np.random.default_rng(3)
    patients = np.sort(random.integers(12, size=60))
    labels = (random.random(60) < np.where(patients % 3 == 0, 0.5, patients % 3 == 1)).astype(int)
    a, b = (np.round(labels + patients % 4 + 2 * random.normal(size=60)) for _ in "ab")
    names = np.array([f"patient {number}" for number in patients], object)
    of_a, of_b = components_by_loops(labels, a), components_by_loops(labels, b)
    reach = stats.norm.ppf(0.975) * np.sqrt(obuchowski_by_loops(labels, of_a, patients))
    estimate = auc(labels, a, groups=names)
    assert estimate.n == len(set(patients)) == 12
    assert (estimate.low, estimate.high) == pytest.approx((estimate.value - reach, estimate.value + reach))
    both = [np.subtract(x, y).tolist() for x, y in zip(of_a, of_b, strict=True)]
    test = delong_test(labels, a, b, groups=names)
    assert test.z == pytest.approx(
        test.difference.value / np.sqrt(obuchowski_by_loops(labels, both, patients))
    )


def test_one_slide_a_patient_gives_delongs_own_interval_and_test(ovarian):
    names = [f"patient {number}" for number in range(43)][::-1]
    columns = ovarian["outcome"], ovarian["albumin"]
    assert auc(*columns, groups=names) == pytest.approx(auc(*columns))
    by_patient = delong_test(*columns, ovarian["score"], groups=names)
    assert by_patient.p == pytest.approx(delong_test(*columns, ovarian["score"]).p)


@pytest.mark.parametrize("is_mixed", [False, True])
def test_intervals_by_patient_cover_the_area_where_intervals_by_slide_do_not(is_mixed):
    """40 patients of 5 slides, half of their spread the patient's; pure patients, or two and three of each kind."""
    random = np.random.default_rng(0)
    labels = np.tile([0, 0, 1, 1, 1], 40) if is_mixed else np.repeat([0, 1], 100)
    beside, within = stats.norm.cdf(1 / 2), stats.norm.cdf(1 / np.sqrt(2))
    truth = (39 * beside + within) / 40 if is_mixed else beside
    covered = np.zeros(2)
    for _ in range(400):
        scores, patients = clustered(random, 40, 5, labels)
        for number, groups in enumerate((patients, None)):
            estimate = auc(labels, scores, groups=groups)
            covered[number] += estimate.low < truth < estimate.high
    by_patient, by_slide = covered / 400
    assert 0.92 < by_patient < 0.98
    assert by_slide < 0.8 or is_mixed


def test_the_test_by_patient_rejects_equal_scores_as_often_as_stated():
    """Two models whose scores differ by what each makes of a patient."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1], 100)
    rejected = np.zeros(2)
    for _ in range(400):
        (a, patients), (b, _) = (clustered(random, 40, 5, labels) for _ in "ab")
        for number, groups in enumerate((patients, None)):
            rejected[number] += delong_test(labels, a, b, groups=groups).p < 0.05
    by_patient, by_slide = rejected / 400
    assert 0.02 < by_patient < 0.09
    assert by_slide > 0.2


def test_a_class_of_one_patient_leaves_the_interval_open_and_separation_counts_patients():
    scores = np.array([1.0, 4, 2, 5, 3, 6])
    assert np.isnan(auc([0, 0, 0, 1, 1, 1], scores, groups=list("abcddd")).low)
    separated = auc([0, 0, 0, 1, 1, 1], np.arange(6), groups=list("abcdee"))
    assert separated.low == pytest.approx(stats.beta.ppf(0.025, 2, 1))  # two disjoint pairs of patients


def test_the_test_rejects_equal_scores_as_often_as_stated():
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
