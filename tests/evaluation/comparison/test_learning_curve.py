import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression

from histo_monai.evaluation.comparison.learning_curve import (
    LearningCurve,
    fitted_law,
    isotonic,
    labels_needed,
    labels_saved,
)
from histo_monai.evaluation.comparison.power_law import PowerLaws

SIZES = np.array([60.0, 150, 300, 600])
SCORES = np.array([0.55, 0.68, 0.76, 0.82])


def curve(num_labels, values, noise=0.0, limit=1.0, num=400):
    values = np.asarray(values, np.float64)
    draws = noise * np.random.default_rng(0).normal(size=(len(values), num))
    return LearningCurve(num_labels, values, values[:, None] + draws, limit=limit)


def power(num_labels, ceiling=0.9, drop=2.0, exponent=0.5):
    return ceiling - drop * np.asarray(num_labels, np.float64) ** -exponent


@pytest.mark.parametrize("seed", range(4))
def test_isotonic_regression_is_that_of_scikit_learn_also_with_ties_and_plateaus(seed):
    random = np.random.default_rng(seed)
    values = np.round(random.normal(size=(7, 30)) + 0.2 * np.arange(7)[:, None], 1)
    theirs = [IsotonicRegression().fit_transform(np.arange(7), column) for column in values.T]
    assert np.allclose(isotonic(values), np.column_stack(theirs))


@pytest.mark.parametrize("score", [0.61, 0.7, 0.8])
def test_on_a_straight_line_in_log_n_the_answer_is_exact(score):
    # score = 0.2 + 0.1 ln n
    needed = labels_needed(curve(SIZES, 0.2 + 0.1 * np.log(SIZES)), score)
    assert needed.value == pytest.approx(np.exp((score - 0.2) / 0.1))
    assert needed.low == needed.high == needed.value
    assert not needed.extrapolated


@pytest.mark.parametrize("seed", range(3))
def test_each_replicate_is_read_as_on_a_fine_grid(seed):
    random = np.random.default_rng(seed)
    values = SCORES + 0.05 * random.normal(size=4)
    replicates = values[:, None] + 0.05 * random.normal(size=(4, 41))
    targets = 0.7 + 0.05 * random.normal(size=41)
    needed = labels_needed(LearningCurve(SIZES, values, replicates), 0.7, targets)
    grid = np.exp(np.linspace(np.log(60), np.log(600), 200_001))
    counts = []
    for column, target in zip(replicates.T, targets, strict=True):
        rising = IsotonicRegression().fit_transform(np.arange(4), column)
        reached = np.interp(np.log(grid), np.log(SIZES), rising) >= target
        counts.append(0.0 if rising[0] > target else grid[reached.argmax()] if reached.any() else np.inf)
    # Of 41 replicates the second smallest and second largest are 2.5 % from the ends.
    low, high = np.sort(counts)[[1, -2]]
    assert needed.low == pytest.approx(min(low, needed.value), rel=1e-4)
    assert needed.high == pytest.approx(max(high, needed.value), rel=1e-4)


def test_the_order_of_the_points_does_not_matter_and_points_of_one_size_are_averaged():
    random = np.random.default_rng(0)
    replicates = SCORES[:, None] + 0.02 * random.normal(size=(4, 100))
    plain = labels_needed(LearningCurve(SIZES, SCORES, replicates), 0.7)
    turned = [2, 0, 3, 1]
    assert labels_needed(LearningCurve(SIZES[turned], SCORES[turned], replicates[turned]), 0.7) == plain
    twice = LearningCurve([*SIZES, 150], [0.55, 0.78, 0.76, 0.82, 0.58], [*replicates, replicates[1]])
    assert np.array_equal(twice.num_labels, SIZES)
    assert np.allclose(twice.values, SCORES)
    assert labels_needed(twice, 0.7).value == pytest.approx(plain.value)


def test_on_a_plateau_the_fewest_labels_are_reported():
    assert labels_needed(curve(SIZES, [0.5, 0.7, 0.7, 0.8]), 0.7).value == pytest.approx(150)
    # A dip is pooled: 0.75 and 0.65 become 0.7 each.
    assert labels_needed(curve(SIZES, [0.5, 0.75, 0.65, 0.8]), 0.7).value == pytest.approx(150)
    assert labels_needed(curve(SIZES, SCORES), SCORES[0]).value == pytest.approx(60)
    assert labels_needed(curve(SIZES, SCORES), SCORES[-1]).value == pytest.approx(600)


def test_a_score_below_the_curve_takes_fewer_than_the_smallest_size():
    needed = labels_needed(curve(SIZES, SCORES), 0.5)
    assert (needed.value, needed.low, needed.high) == (0, 0, 0)
    assert str(needed) == "fewer than 60"
    assert "fewest labels measured, 60" in needed.reason


def test_ends_of_the_interval_stand_open_where_replicates_leave_the_sizes():
    above = labels_needed(curve(SIZES, SCORES, noise=0.03), 0.81)
    assert np.isfinite(above.value)
    assert np.isinf(above.high)
    assert str(above).endswith("to more than 600)")
    assert "600 measured may not be enough" in above.reason
    below = labels_needed(curve(SIZES, SCORES, noise=0.03), 0.56)
    assert below.low == 0
    assert "(fewer than 60 to " in str(below)
    assert "fewer than the 60 measured may be enough" in below.reason


def covered(truth_at, num_labels, sizes, trials=200, patients=60, spread=0.2, num_replicates=300):
    """How often the interval holds the truth: scores of patients who are tested at every size and by the method."""
    random = np.random.default_rng(0)
    score, hits, extrapolated = truth_at(num_labels), 0, 0
    for _ in range(trials):
        patient = spread * random.normal(size=patients)
        own = 0.6 * spread * random.normal(size=(len(sizes) + 1, patients))
        tested = np.append(truth_at(sizes), score)[:, None] + patient + own
        weights = random.multinomial(patients, np.full(patients, 1 / patients), size=num_replicates).T
        means, replicates = tested.mean(axis=1), tested @ weights / patients
        baseline = LearningCurve(sizes, means[:-1], replicates[:-1], limit=2.0)
        needed = labels_needed(baseline, means[-1], replicates[-1])
        low = needed.most if np.isinf(needed.low) else needed.low
        high = needed.fewest if needed.high == 0 else needed.high
        hits += low <= num_labels <= high
        extrapolated += needed.extrapolated
    return hits / trials, extrapolated / trials


@pytest.mark.parametrize("num_labels", [80, 200, 500])
def test_intervals_cover_the_truth_within_the_sizes(num_labels):
    coverage, _ = covered(lambda n: np.interp(np.log(n), np.log(SIZES), SCORES), num_labels, SIZES)
    assert 0.9 <= coverage <= 0.99


@pytest.mark.slow
def test_intervals_cover_the_truth_beyond_the_sizes():
    sizes = np.array([60.0, 120, 240, 480, 960])
    coverage, extrapolated = covered(
        lambda n: power(n, 0.95, 1.5, 0.4), 2000, sizes, patients=100, spread=0.1, num_replicates=200
    )
    assert extrapolated > 0.9
    assert 0.9 <= coverage <= 0.99


@pytest.mark.parametrize(
    ("ceiling", "drop", "exponent"), [(0.9, 2.0, 0.5), (0.97, 1.2, 0.2), (0.8, 30.0, 1.1), (1.0, 1.5, 0.35)]
)
def test_the_law_that_made_the_points_is_found(ceiling, drop, exponent):
    laws = PowerLaws.fit(SIZES, power(SIZES, ceiling, drop, exponent)[:, None], limit=1.0)
    assert laws.ceiling[0] == pytest.approx(ceiling, abs=1e-5)
    assert laws.exponent[0] == pytest.approx(exponent, rel=1e-4)
    assert laws.drop[0] * 600 ** laws.exponent[0] == pytest.approx(drop, rel=1e-3)


def test_no_other_law_on_a_fine_grid_fits_noisy_points_better():
    scores = SCORES + 0.02 * np.random.default_rng(1).normal(size=4)
    laws = PowerLaws.fit(SIZES, scores[:, None], limit=0.85)
    assert laws.ceiling[0] <= 0.85
    ceiling, drop, exponent = np.meshgrid(
        np.linspace(0.7, 0.85, 61), np.geomspace(0.001, 1, 101), np.geomspace(0.01, 4, 101), indexing="ij"
    )
    grid = ceiling[..., None] - drop[..., None] * (SIZES / 600) ** -exponent[..., None]
    ours = laws.ceiling - laws.drop * (SIZES / 600) ** -laws.exponent
    assert ((scores - ours) ** 2).sum() <= ((scores - grid) ** 2).sum(axis=-1).min() + 1e-12


@pytest.mark.parametrize("num_labels", [900, 2500, 5900])
def test_a_power_law_is_continued_exactly(num_labels):
    needed = labels_needed(curve(SIZES, power(SIZES)), float(power(num_labels)))
    assert needed.value == pytest.approx(num_labels, rel=1e-4)
    assert needed.low == pytest.approx(needed.high, rel=1e-4)
    assert needed.extrapolated
    assert "inverse power law" in needed.reason


NOISY = {"noise": 0.012}


@pytest.mark.parametrize(
    ("baseline", "score", "reason"),
    [
        (curve(SIZES[:3], power(SIZES[:3])), 0.85, "3 sizes, and extrapolation needs 4"),
        (curve(SIZES, [0.7, 0.71, 0.7, 0.71], noise=0.03), 0.8, "does not rise beyond its noise"),
        (curve(SIZES, [0.8, 0.7, 0.7, 0.6]), 0.9, "does not rise beyond its noise"),
        (curve(SIZES, power(SIZES)), 0.92, "above the ceiling of the fitted curve, also in 100.0%"),
        (curve(SIZES, power(SIZES), **NOISY), 0.98, "above the ceiling of the fitted curve"),
        (curve(SIZES, power(SIZES)), float(power(6100)), "beyond 10 times the largest size"),
    ],
)
def test_an_unknown_number_has_a_reason_and_the_measured_range_is_reported(baseline, score, reason):
    needed = labels_needed(baseline, score)
    assert reason in needed.reason
    assert np.isinf(needed.value)
    assert np.isinf(needed.high)
    assert needed.low > SIZES[0]
    assert not needed.extrapolated
    assert str(needed).startswith(f"more than {baseline.num_labels[-1]:.0f}")


def test_a_score_near_the_ceiling_has_a_number_but_no_upper_end():
    needed = labels_needed(curve(SIZES, power(SIZES), noise=0.008), 0.86)
    assert needed.extrapolated
    assert needed.value == pytest.approx((2 / 0.04) ** 2, rel=0.01)
    assert 600 < needed.low < needed.value
    assert np.isinf(needed.high)
    assert "% of the bootstrap replicates" in needed.reason
    assert str(needed).endswith("to more than 6,000)")


def test_an_upper_limit_too_far_away_is_not_reported():
    values = power(SIZES, 1.0, 1.5, 0.3)
    needed = labels_needed(curve(SIZES, values, noise=0.004), float(power(4000, 1.0, 1.5, 0.3)))
    assert np.isfinite(needed.value)
    assert np.isinf(needed.high)
    assert "the upper limit lies beyond 10 times" in needed.reason


def test_replicates_without_a_number_are_left_out_until_most_are():
    replicates = np.repeat(SCORES[:, None], 100, axis=1)
    replicates[0, :40] = np.nan
    assert labels_needed(LearningCurve(SIZES, SCORES, replicates), 0.76).value == pytest.approx(300)
    replicates[3, 40:70] = np.nan
    unknown = labels_needed(LearningCurve(SIZES, SCORES, replicates), 0.76)
    assert np.isnan([unknown.value, unknown.low, unknown.high]).all()
    assert str(unknown) == "unknown: more than half of the bootstrap replicates are undefined"
    assert str(labels_saved(LearningCurve(SIZES, SCORES, replicates), 60, 0.76)) == str(unknown)


def test_labels_saved_is_the_ratio_of_what_the_baseline_needs():
    saved = labels_saved(curve(SIZES, SCORES, noise=0.01), 60, 0.76)
    needed = labels_needed(curve(SIZES, SCORES, noise=0.01), 0.76)
    assert saved.ratio == pytest.approx(5)
    assert (saved.low, saved.high) == (needed.low / 60, needed.high / 60)
    row = saved.as_dict()
    assert [row[name] for name in ("needed_value", "ratio", "ratio_fewest", "ratio_most")] == pytest.approx(
        [300, 5, 1, 10]
    )
    assert row["text"] == f"5 ({saved.low:.3g} to {saved.high:.3g}) times as many"
    assert str(labels_saved(curve(SIZES[:3], SCORES[:3]), 60, 0.8)) == "more than 5 times as many"
    assert str(labels_saved(curve(SIZES, SCORES), 120, 0.5)) == "less than 0.5 times as many"


# Of 2,063 patches of BreastPathQ, a tenth, a quarter, half and all; ICC with rater B and its published interval.
PUBLISHED = {
    "random, fine-tuned": ([0.637, 0.727, 0.797, 0.843], [0.60, 0.70, 0.77, 0.83], [0.67, 0.75, 0.82, 0.86]),
    "rsp + CR": ([0.846, 0.854, 0.861, 0.907], [0.83, 0.84, 0.84, 0.90], [0.86, 0.87, 0.88, 0.92]),
}


def published(name):
    """Values, and normal replicates as wide as the published intervals."""
    values, lows, highs = np.array(PUBLISHED[name])
    drawn = np.random.default_rng(len(name)).normal(size=(4, 1000))
    return values, values[:, None] + ((highs - lows) / 3.92)[:, None] * drawn


def test_the_papers_student_of_a_tenth_of_the_labels_is_worth_about_all_of_them():
    sizes = 2063 * np.array([0.1, 0.25, 0.5, 1])
    values, replicates = published("rsp + CR")
    saved = labels_saved(
        LearningCurve(sizes, *published("random, fine-tuned")), 206.3, values[0], replicates[0]
    )
    # 0.846 against 0.843 of the baseline with all labels, ten times as many.
    assert saved.needed.extrapolated
    assert 10 < saved.ratio < 13
    assert 6 < saved.low < 10 < saved.high < 25


def test_what_is_no_curve_is_refused():
    replicates = np.tile(SCORES[:, None], 40)
    with pytest.raises(ValueError, match=r"replicates have shape \(4, 39\): expected 4 rows"):
        LearningCurve(SIZES, SCORES, replicates[:, 1:])
    with pytest.raises(ValueError, match="num_labels row 1 is 0: expected a positive number"):
        LearningCurve([60, 0, 300, 600], SCORES, replicates)
    with pytest.raises(ValueError, match=r"values row 3 is 0\.82: expected at most the metric's limit, 0\.8"):
        LearningCurve(SIZES, SCORES, replicates, limit=0.8)
    with pytest.raises(ValueError, match="values row 0 is nan"):
        LearningCurve(SIZES, [np.nan, 0.6, 0.7, 0.8], replicates)
    known = LearningCurve(SIZES, SCORES, replicates)
    with pytest.raises(ValueError, match=r"the score is 1\.1: expected at most"):
        labels_needed(known, 1.1)
    with pytest.raises(ValueError, match="the score is nan"):
        labels_needed(known, np.nan)
    with pytest.raises(ValueError, match=r"shape \(39,\): the curve has 40 replicates"):
        labels_needed(known, 0.7, np.zeros(39))
    with pytest.raises(ValueError, match="num_labels is 0: expected a positive number"):
        labels_saved(known, 0, 0.7)


def test_the_law_of_a_curve_is_that_on_which_answers_beyond_the_sizes_lie():
    law = fitted_law(curve(SIZES, SCORES, noise=0.005))
    needed = labels_needed(curve(SIZES, SCORES, noise=0.005), 0.84)
    assert needed.extrapolated
    assert law.scores_at(np.array([needed.value])) == pytest.approx(0.84, abs=1e-9)
    assert law.scores_at(SIZES)[:, 0] == pytest.approx(SCORES, abs=0.01)


@pytest.mark.parametrize(
    ("sizes", "scores", "noise"), [(SIZES[:3], SCORES[:3], 0.0), (SIZES, [0.7, 0.71, 0.7, 0.71], 0.05)]
)
def test_three_sizes_or_a_curve_that_does_not_rise_have_no_law(sizes, scores, noise):
    assert fitted_law(curve(sizes, scores, noise=noise)) is None
