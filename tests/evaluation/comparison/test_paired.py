import numpy as np
import pytest
from scipy import stats

from histo_monai.evaluation.comparison import paired
from histo_monai.evaluation.comparison.paired import (
    by_encoder,
    effective_groups,
    mcnemar_p,
    replicate_variance,
    seed_mean,
)
from histo_monai.evaluation.comparison.replicates import metric_replicates
from histo_monai.evaluation.metrics import Resampling


def test_one_seed_is_student_t_over_the_groups():
    groups = np.random.default_rng(0).normal(0.3, 1, size=9)
    mean = seed_mean([groups.mean()], groups.var(ddof=1) / 9, 9)
    expected = stats.ttest_1samp(groups, 0)
    interval = expected.confidence_interval()
    assert mean.p == pytest.approx(expected.pvalue)
    assert (mean.low, mean.high) == pytest.approx((interval.low, interval.high))
    assert np.isnan(mean.seed_sd)


def test_groups_without_spread_leave_student_t_over_the_seeds():
    seeds = [0.02, 0.05, 0.01, 0.06]
    mean = seed_mean(seeds, 0.0, 30)
    expected = stats.ttest_1samp(seeds, 0)
    assert mean.p == pytest.approx(expected.pvalue)
    assert mean.low == pytest.approx(expected.confidence_interval().low)
    assert mean.seed_sd == pytest.approx(np.std(seeds, ddof=1))


@pytest.mark.parametrize("num_seeds", [1, 2, 5])
def test_the_interval_ends_at_zero_at_a_confidence_of_1_minus_p(num_seeds):
    seeds = np.random.default_rng(num_seeds).normal(0.5, 0.2, size=num_seeds)
    p = seed_mean(seeds, 0.02, 12).p
    at_p = seed_mean(seeds, 0.02, 12, confidence=1 - p)
    assert 0.0 < p < 0.5
    assert at_p.low == pytest.approx(0.0, abs=1e-9)
    assert at_p.high == pytest.approx(2 * seeds.mean())


@pytest.mark.parametrize("spread_over_seeds", [0.0, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("num_seeds", [2, 3])
def test_the_interval_covers_the_truth_whatever_the_seeds_do(num_seeds, spread_over_seeds, monkeypatch):
    """Where Satterthwaite's degrees of freedom would let it miss in up to 12 %."""
    monkeypatch.setattr(paired, "_p", lambda *_: np.nan)  # Not looked at, and nine tenths of the time.
    random = np.random.default_rng(5)
    num_groups, num = 10, 2000
    groups = random.normal(size=(num, num_groups))
    seeds = spread_over_seeds * random.normal(size=(num, num_seeds))
    missed = 0
    for of_groups, of_seeds in zip(groups, seeds, strict=True):
        mean = seed_mean(of_groups.mean() + of_seeds, of_groups.var(ddof=1) / num_groups, num_groups)
        missed += not mean.low <= 0 <= mean.high
    assert missed / num < 0.06


def test_runs_of_one_encoder_are_averaged_and_the_rest_left_alone():
    runs = np.random.default_rng(0).normal(size=(5, 3))
    found = by_encoder(runs, [7, 2, 7, 7, 2])
    np.testing.assert_allclose(found, [(runs[0] + runs[2] + runs[3]) / 3, (runs[1] + runs[4]) / 2])
    np.testing.assert_array_equal(by_encoder(runs, [3] * 5), runs)
    with pytest.raises(ValueError, match="5 runs, 4 encoders"):
        by_encoder(runs, [0, 1, 2, 3])


def test_the_interval_includes_variation_between_encoders_where_independent_runs_do_not(monkeypatch):
    monkeypatch.setattr(paired, "_p", lambda *_: np.nan)
    random = np.random.default_rng(6)
    num, num_encoders, num_seeds = 1500, 4, 5
    of_encoder = np.repeat(range(num_encoders), num_seeds)
    missed = {"runs": 0, "encoders": 0}
    for _ in range(num):
        runs = random.normal(size=num_encoders)[of_encoder] + 0.5 * random.normal(size=len(of_encoder))
        for name, values in (("runs", runs), ("encoders", by_encoder(runs, of_encoder.tolist()))):
            mean = seed_mean(values, 0.0, 30)
            missed[name] += not mean.low <= 0 <= mean.high
    assert missed["encoders"] / num < 0.065
    assert missed["runs"] / num > 0.25


def test_degenerate_cases_are_as_documented():
    same = seed_mean([0.0, 0.0], 0.0, 5)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    constant = seed_mean([0.1, 0.1], 0.0, 5)
    assert constant.value == pytest.approx(0.1)
    assert np.isnan([constant.low, constant.high, constant.p]).all()
    for unknown in (
        seed_mean([0.1], np.nan, 9),
        seed_mean([0.1, 0.2], np.nan, 9),
        seed_mean([np.nan], 0.1, 9),
    ):
        assert np.isnan([unknown.low, unknown.high, unknown.p]).all()
    assert 0 < seed_mean([1.0, 1.0 + 1e-9], 1e-20, 300).p < 1e-9
    with pytest.raises(ValueError, match="one value per seed"):
        seed_mean([], 0.1, 5)


def test_the_variance_of_replicates_is_the_sample_variance_of_equal_groups():
    random = np.random.default_rng(0)
    right = random.random((7, 40)) < random.random((7, 1))
    labels, groups = np.zeros(280, int), np.repeat(np.arange(7), 40)
    probabilities = np.where(right.reshape(-1, 1), [[0.9, 0.1]], [[0.1, 0.9]])
    resampling = Resampling(280, groups, seed=0, num_replicates=8000)
    drawn = metric_replicates(labels, probabilities, resampling)["accuracy"][1]
    expected = right.mean(axis=1).var(ddof=1) / 7
    assert replicate_variance(drawn, 7) == pytest.approx(expected, rel=0.05)


def test_undefined_replicates_are_left_out_and_too_many_leave_the_variance_unknown():
    drawn = np.array([1.0, 2.0, 3.0, np.nan])
    assert replicate_variance(drawn, 2) == pytest.approx(2.0)
    assert np.isnan(replicate_variance(np.array([1.0, np.nan, np.nan, np.nan]), 2))
    assert np.isnan(replicate_variance(drawn, 1))


def test_unequal_patients_count_as_fewer_and_the_test_holds_its_level():
    equal, unequal = np.repeat(np.arange(8), 5), np.repeat(np.arange(8), [40, 5, 5, 5, 5, 5, 5, 5])
    assert effective_groups(equal) == pytest.approx(8)
    assert effective_groups(unequal) == pytest.approx(75**2 / (40**2 + 7 * 25))
    random, result = np.random.default_rng(0), {"as eight": 0, "as fewer": 0}
    fractions = np.bincount(unequal) / len(unequal)
    resampling = Resampling(len(unequal), unequal, seed=0, num_replicates=300)
    counts = np.concatenate(list(resampling.blocks()), axis=1)
    for _ in range(1000):
        patients = random.normal(size=8)
        value = patients @ fractions
        drawn = (patients * fractions) @ counts / (fractions @ counts)
        for name, num_groups in (("as eight", 8.0), ("as fewer", effective_groups(unequal))):
            result[name] += seed_mean([value], replicate_variance(drawn, num_groups), num_groups).p < 0.05
    assert result["as fewer"] <= 60
    assert result["as eight"] > 80


@pytest.mark.parametrize(
    ("only_first", "only_second", "printed"),
    [(1, 7, 0.0703), (6, 16, 0.0525), (150, 86, 3.716e-05)],
)
def test_mcnemar_comes_out_as_printed(only_first, only_second, printed):
    """Fagerland, Lydersen & Laake 2013, both examples; Agresti 2002, prime minister, as exact2x2 of R prints it."""
    first = np.r_[np.ones(only_first), np.zeros(only_second), np.ones(30), np.zeros(5)]
    second = np.r_[np.zeros(only_first), np.ones(only_second), np.ones(30), np.zeros(5)]
    assert mcnemar_p(first, second) == pytest.approx(printed, rel=1e-3)
    assert mcnemar_p(second, first) == mcnemar_p(first, second)


def test_mcnemar_is_the_binomial_test_and_one_where_both_are_right_alike():
    first, second = np.random.default_rng(0).random((2, 40)) < 0.6
    counts = (first & ~second).sum(), (second & ~first).sum()
    assert mcnemar_p(first, second) == pytest.approx(stats.binomtest(counts[0], sum(counts)).pvalue)
    assert mcnemar_p(first, first) == 1.0
    assert mcnemar_p([True, False], [False, True]) == 1.0
    with pytest.raises(ValueError, match="the same rows"):
        mcnemar_p([True], [True, False])
