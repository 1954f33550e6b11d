import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from histo_monai.evaluation.comparison.replicates import metric_replicates
from histo_monai.evaluation.metrics import (
    Resampling,
    bootstrap,
    grouped_bootstrap,
    paired_difference,
    ranking,
    weighted_mean,
)


def defined_auc(labels, scores):
    return roc_auc_score(labels, scores) if 0 < labels.sum() < len(labels) else np.nan


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    groups = random.integers(7, size=60).astype(str)
    labels = random.integers(2, size=60)
    return groups, labels, labels + random.normal(size=60)


@pytest.mark.parametrize("statistic", [defined_auc, lambda labels, scores: f1_score(labels, scores > 0.5)])
def test_the_interval_equals_a_naive_loop_over_the_drawn_groups(rows, statistic):
    groups, labels, scores = rows
    names = np.unique(groups)
    drawn = np.hstack(list(Resampling(60, groups, seed=5, num_replicates=100).blocks()))
    assert drawn.shape == (7, 100)
    assert (drawn.sum(axis=0) == 7).all()
    replicates = []
    for times in drawn.T:
        chosen = []
        for name, repeat in zip(names, times, strict=True):
            for _ in range(int(repeat)):
                chosen.extend(np.flatnonzero(groups == name))
        replicates.append(statistic(labels[chosen], scores[chosen]))
    estimate = grouped_bootstrap(statistic, (labels, scores), groups, seed=5, num_replicates=100)
    assert estimate.value == pytest.approx(statistic(labels, scores))
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.percentile(replicates, [2.5, 97.5])))
    assert estimate.n == 7


@pytest.mark.parametrize("grouped", [True, False])
def test_weights_give_the_interval_that_resampled_rows_give(rows, grouped):
    groups, _, scores = rows
    groups = groups if grouped else None
    by_rows = grouped_bootstrap(np.mean, (scores,), groups, seed=1)
    by_weights = grouped_bootstrap(weighted_mean, (scores,), groups, seed=1, weighted=True)
    assert by_weights.as_dict() == by_rows.as_dict()
    assert by_rows.n == (7 if grouped else 60)


def test_the_draws_of_a_group_reach_its_own_rows_also_where_each_row_is_a_group():
    resampling = Resampling(4, ["d", "a", "c", "b"], seed=0, num_replicates=10)
    (counts,) = resampling.blocks()
    assert np.array_equal(resampling.weights(counts), counts[[3, 0, 2, 1]])


def test_each_group_is_drawn_as_often_as_chance_would():
    drawn = np.hstack(list(Resampling(50, None, seed=0, num_replicates=4000).blocks()))
    # Multinomial counts: mean 1, variance 1 - 1/50.
    assert np.allclose(drawn.mean(axis=1), 1, atol=0.08)
    assert drawn.var() == pytest.approx(0.98, rel=0.02)


def coverage_of_intervals(trials):
    """How often 95 % intervals of a mean cover 0 when rows of a patient resemble each other: by row, by patient."""
    random = np.random.default_rng(0)
    patient = np.repeat(np.arange(40), 12)
    covered = np.zeros(2)
    for trial in range(trials):
        values = random.normal(size=40)[patient] + random.normal(size=480)
        for i, groups in enumerate((None, patient)):
            estimate = grouped_bootstrap(
                weighted_mean, (values,), groups, seed=trial, num_replicates=300, weighted=True
            )
            covered[i] += estimate.low <= 0 <= estimate.high
    return covered / trials


def test_resampling_patients_covers_the_truth_where_resampling_rows_does_not():
    by_row, by_patient = coverage_of_intervals(300)
    assert by_row < 0.75
    assert 0.9 < by_patient < 0.98


def test_a_paired_difference_is_narrower_than_that_of_independent_models_and_equals_the_difference_of_rows():
    random = np.random.default_rng(0)
    truth = random.random(300)
    first, second = (truth + noise for noise in random.normal(size=300) + 0.05 * random.normal(size=(2, 300)))

    def error(reference, predicted):
        return np.abs(reference - predicted).mean()

    paired = paired_difference(error, (truth,), (first,), (second,), None, seed=0, num_replicates=500)
    apart = np.abs(truth - first) - np.abs(truth - second)
    expected = grouped_bootstrap(np.mean, (apart,), None, seed=0, num_replicates=500)
    assert paired.as_dict() == expected.as_dict()
    alone = grouped_bootstrap(error, (truth, first), None, seed=0, num_replicates=500)
    assert paired.high - paired.low < 0.2 * (alone.high - alone.low)


def test_undefined_replicates_are_left_out_and_too_many_of_them_leave_the_interval_open():
    labels, scores = np.array([0] * 20 + [1]), np.arange(21.0)
    # The one positive row is in 1 - (1 - 1/21)^21 = 64 % of the replicates.
    estimate = grouped_bootstrap(defined_auc, (labels, scores), None, seed=0, num_replicates=300)
    assert (estimate.value, estimate.low, estimate.high) == (1, 1, 1)
    never = grouped_bootstrap(lambda x: np.nan if len(set(x)) < 21 else 1.0, (scores,), None, seed=0)
    assert never.value == 1
    assert np.isnan([never.low, never.high]).all()


def test_one_group_gives_no_spread_between_groups():
    estimate = grouped_bootstrap(np.mean, (np.arange(9.0),), ["only"] * 9, seed=0)
    assert (estimate.value, estimate.n) == (4, 1)
    assert np.isnan([estimate.low, estimate.high]).all()


def test_the_seed_decides_and_nothing_else(rows):
    groups, _, scores = rows
    first, again, other = (
        grouped_bootstrap(np.mean, (scores,), groups, seed=seed, num_replicates=50) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("arrays", "groups", "message"),
    [
        (([1, 2], [1]), None, r"lengths \[1, 2\]"),
        (([],), None, "at least one row"),
        (([1, 2],), ["a"], r"shape \(1,\)"),
        (([1, 2],), ["a", None], "groups row 1 is missing"),
        (([1, 2],), [np.nan, 1], "groups row 0 is missing"),
        (([1, 2],), ["", "b"], "groups row 0 is missing"),
    ],
)
def test_rows_without_a_group_are_refused(arrays, groups, message):
    with pytest.raises(ValueError, match=message):
        grouped_bootstrap(np.mean, arrays, groups, seed=0)


@pytest.mark.parametrize("grouped", [True, False])
def test_fewer_replicates_at_a_time_are_the_same_replicates(rows, grouped, monkeypatch):
    groups = rows[0] if grouped else None

    def drawn():
        resampling = Resampling(60, groups, seed=5, num_replicates=70)
        blocks = [list(result) for result in (resampling.blocks(), resampling.row_weights())]
        return blocks, [np.hstack(result) for result in blocks]

    blocks, expected = drawn()
    assert [len(result) for result in blocks] == [3, 3]
    monkeypatch.setattr(bootstrap, "_BLOCK_BYTES", 60 * 8 * 5)  # five columns of 60 rows
    blocks, result = drawn()
    assert max(len(block.T) for block in blocks[1]) == 5
    for one, other in zip(result, expected, strict=True):
        assert np.array_equal(one, other)
    assert np.array_equal(
        result[1], result[0][np.unique(rows[0], return_inverse=True)[1]] if grouped else result[0]
    )


@pytest.mark.parametrize("at_a_time", [1, 60, 2**19])
@pytest.mark.parametrize("decimals", [0, 1, 9])
def test_areas_are_those_of_the_resampled_rows_however_few_rows_are_passed_at_a_time(
    rows, at_a_time, decimals, monkeypatch
):
    groups, labels, scores = rows
    monkeypatch.setattr(ranking, "_AT_A_TIME", at_a_time)
    scores = np.round(scores, decimals)  # with 0 most rows are tied, with 1 some, with 9 none
    resampling = Resampling(60, groups, seed=5, num_replicates=20)
    (counts,) = resampling.blocks()
    ranked = ranking.RankedScores(labels == 1, scores, resampling.group_of_row).auc(counts)
    chosen = [np.repeat(np.arange(60), times.astype(int)) for times in resampling.weights(counts).T]
    expected = [defined_auc(labels[drawn], scores[drawn]) for drawn in chosen]
    np.testing.assert_allclose(ranked, expected, rtol=1e-12)


def test_a_score_that_all_rows_share_orders_nothing(monkeypatch):
    monkeypatch.setattr(ranking, "_AT_A_TIME", 3)
    area = ranking.RankedScores(np.arange(20) < 7, np.full(20, 0.5), np.zeros(20, np.int64))
    assert area.auc(np.ones((1, 1))) == 0.5


def test_a_million_rows_need_no_weight_for_each_row_and_replicate():
    random = np.random.default_rng(0)
    num = 10**6
    labels, groups = random.integers(2, size=num), random.integers(100, size=num)
    sure = random.random(num)
    resampling = Resampling(num, groups, seed=0, num_replicates=32)
    needed = []
    for run in (
        lambda: metric_replicates(labels, np.column_stack([1 - sure, sure]), resampling),
        lambda: grouped_bootstrap(weighted_mean, (sure,), groups, seed=0, num_replicates=32, weighted=True),
        lambda: grouped_bootstrap(weighted_mean, (sure,), None, seed=0, num_replicates=8, weighted=True),
    ):
        tracemalloc.start()
        run()
        needed.append(tracemalloc.get_traced_memory()[1] / 2**20)
        tracemalloc.stop()
    # 32 weights of each row are 244 MiB, and the area under the curve took six times as much.
    assert max(needed) < 96
