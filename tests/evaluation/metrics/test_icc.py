import numpy as np
import pytest
from scipy import stats

from histo_monai.evaluation.metrics import grouped_bootstrap, intraclass_correlation

SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
"""Shrout & Fleiss 1979, table 2: six targets, four judges."""
FORMS = ("ICC1", "ICC2", "ICC3", "ICC1k", "ICC2k", "ICC3k")


@pytest.mark.parametrize(
    ("form", "printed"),
    list(zip(FORMS, (0.17, 0.29, 0.71, 0.44, 0.62, 0.91), strict=True)),
)
def test_the_example_of_shrout_and_fleiss_comes_out_as_they_print_it(form, printed):
    estimate = intraclass_correlation(SHROUT_FLEISS, form)
    assert round(estimate.value, 2) == printed
    assert estimate.n == 6


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        ("ICC1", -0.133, 0.72),
        ("ICC2", 0.019, 0.76),
        ("ICC3", 0.342, 0.95),
        ("ICC1k", -0.884, 0.91),
        ("ICC2k", 0.071, 0.93),
        ("ICC3k", 0.676, 0.99),
    ],
)
def test_its_intervals_come_out_as_the_psych_package_of_r_prints_them(form, low, high):
    estimate = intraclass_correlation(SHROUT_FLEISS, form)
    assert round(estimate.low, 3) == low
    assert round(estimate.high, 2) == high


def anova_by_loops(ratings):
    """Mean squares of rows, raters, error and within rows, from their definitions."""
    n, k = ratings.shape
    grand = sum(ratings[i, j] for i in range(n) for j in range(k)) / (n * k)
    row = [sum(ratings[i]) / k for i in range(n)]
    rater = [sum(ratings[:, j]) / n for j in range(k)]
    rows = sum(k * (row[i] - grand) ** 2 for i in range(n)) / (n - 1)
    raters = sum(n * (rater[j] - grand) ** 2 for j in range(k)) / (k - 1)
    error = within = 0.0
    for i in range(n):
        for j in range(k):
            error += (ratings[i, j] - row[i] - rater[j] + grand) ** 2
            within += (ratings[i, j] - row[i]) ** 2
    return rows, raters, error / ((n - 1) * (k - 1)), within / (n * (k - 1))


@pytest.mark.parametrize(("n", "k"), [(2, 2), (9, 2), (30, 5)])
def test_all_forms_equal_a_slow_analysis_of_variance(n, k):
    random = np.random.default_rng(n)
    ratings = random.normal(size=(n, 1)) + random.normal(size=k) + random.normal(size=(n, k))
    rows, raters, error, within = anova_by_loops(ratings)
    expected = {
        "ICC1": (rows - within) / (rows + (k - 1) * within),
        "ICC2": (rows - error) / (rows + (k - 1) * error + k * (raters - error) / n),
        "ICC3": (rows - error) / (rows + (k - 1) * error),
        "ICC1k": (rows - within) / rows,
        "ICC2k": (rows - error) / (rows + (raters - error) / n),
        "ICC3k": (rows - error) / rows,
    }
    for form in FORMS:
        assert intraclass_correlation(ratings, form).value == pytest.approx(expected[form])


def test_intervals_equal_the_textbook_formulas_in_f_ratios():
    ratings = np.random.default_rng(3).normal(size=(12, 3)) + np.arange(12)[:, None] / 4
    n, k = ratings.shape
    rows, raters, error, within = anova_by_loops(ratings)
    for form, noise, freedom in (("ICC1", within, n * (k - 1)), ("ICC3", error, (n - 1) * (k - 1))):
        # The lower tail of F is the inverse of the upper tail with its degrees of freedom exchanged.
        f_low = rows / noise / stats.f.ppf(0.95, n - 1, freedom)
        f_high = rows / noise / stats.f.ppf(0.05, n - 1, freedom)
        estimate = intraclass_correlation(ratings, form, confidence=0.9)
        assert estimate.low == pytest.approx((f_low - 1) / (f_low + k - 1))
        assert estimate.high == pytest.approx((f_high - 1) / (f_high + k - 1))
    # ICC2: McGraw & Wong 1996, table 7, in their letters.
    rho = intraclass_correlation(ratings).value
    a, b = k * rho / (n * (1 - rho)), 1 + k * rho * (n - 1) / (n * (1 - rho))
    v = (a * raters + b * error) ** 2 / ((a * raters) ** 2 / (k - 1) + (b * error) ** 2 / ((n - 1) * (k - 1)))
    star, under = stats.f.ppf(0.975, n - 1, v), stats.f.ppf(0.975, v, n - 1)
    noise = k * raters + (k * n - k - n) * error
    estimate = intraclass_correlation(ratings)
    assert estimate.low == pytest.approx(n * (rows - star * error) / (star * noise + n * rows))
    assert estimate.high == pytest.approx(n * (under * rows - error) / (noise + n * under * rows))


def test_a_constant_offset_costs_consistency_nothing_and_agreement_much():
    a = np.arange(10.0)
    ratings = np.column_stack([a, a + 5])
    assert intraclass_correlation(ratings, "ICC3").value == pytest.approx(1)
    assert intraclass_correlation(ratings, "ICC2").value < 0.5


def test_the_interval_covers_the_true_correlation_as_often_as_stated():
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        ratings = random.normal(size=(20, 1)) * np.sqrt(0.7) + random.normal(size=(20, 3)) * np.sqrt(0.3)
        estimate = intraclass_correlation(ratings, "ICC1")
        covered += estimate.low <= 0.7 <= estimate.high
    assert 0.92 < covered / 400 < 0.98


def test_perfect_agreement_is_one_and_constant_ratings_are_undefined():
    rows = np.random.default_rng(0).random(5)
    for form in FORMS:
        perfect = intraclass_correlation(np.column_stack([rows, rows, rows]), form)
        assert (perfect.value, perfect.low, perfect.high) == (1, 1, 1)
        constant = intraclass_correlation(np.full((5, 3), 0.1), form)
        assert np.isnan([constant.value, constant.low, constant.high]).all()


def test_averaged_forms_of_rows_that_do_not_differ_are_undefined_and_single_forms_are_at_their_least():
    ratings = np.array([[1.0, 2, 3], [2, 3, 1], [3, 1, 2]])
    assert intraclass_correlation(ratings, "ICC1").value == pytest.approx(-1 / 2)
    assert np.isnan(intraclass_correlation(ratings, "ICC1k").value)
    constant_raters = intraclass_correlation([[1, 2], [1, 2], [1, 2]])
    assert constant_raters.value == 0
    assert np.isnan(constant_raters.low)


def test_the_bootstrap_of_the_docstring_is_wider_where_patches_of_a_patient_resemble_each_other():
    random = np.random.default_rng(0)
    patient = np.repeat(np.arange(12), 30)
    truth = random.normal(size=12)[patient] + 0.1 * random.normal(size=360)
    ratings = np.column_stack([truth, truth + random.normal(size=12)[patient]])
    by_f = intraclass_correlation(ratings)
    by_patient = grouped_bootstrap(
        lambda r: intraclass_correlation(r).value, (ratings,), patient, seed=0, num_replicates=300
    )
    assert by_patient.value == by_f.value
    assert by_patient.n == 12
    assert by_patient.high - by_patient.low > 2 * (by_f.high - by_f.low)


@pytest.mark.parametrize(
    ("ratings", "form", "message"),
    [
        ([[1, 2], [3, np.nan]], "ICC2", "ratings row 1 is nan"),
        ([[1], [2]], "ICC2", "2 rows and 1 raters"),
        ([1, 2], "ICC2", r"shape \(2,\)"),
        ([[1, 2], [3, 4]], "ICC4", "'ICC4'.*ICC3k"),
    ],
)
def test_what_cannot_be_rated_is_refused(ratings, form, message):
    with pytest.raises(ValueError, match=message):
        intraclass_correlation(ratings, form)


def test_one_row_has_no_correlation():
    found = intraclass_correlation([[0.5, 0.4]])
    assert np.isnan([found.value, found.low, found.high]).all()
    assert found.n == 1
