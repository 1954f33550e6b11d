"""The tests of the comparison, tested: how often they speak where there is nothing, and where there is something."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from scipy import stats

from histo_monai.evaluation.comparison.models import compare_models
from histo_monai.evaluation.comparison.multiplicity import holm
from histo_monai.evaluation.comparison.paired import mcnemar_p, mean_difference
from histo_monai.evaluation.metrics import classification_estimates, delong_test, intraclass_correlation

CALLED = ("better", "worse")
NUM_RUNS = 200
MOST_BY_CHANCE = 18  # Of 200 at a true rate of 5 %, exceeded once in 100 times.


def softmax(logits):
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def grouped_rows(random, num_groups, num_rows):
    """Groups of unequal sizes, or None: each row on its own; and for drawing, the group of each row."""
    if num_groups is None:
        return None, np.arange(num_rows)
    groups = np.sort(np.r_[np.arange(num_groups), random.integers(num_groups, size=num_rows - num_groups)])
    return groups, groups


def classes(random, num_groups, num_seeds, skills=(1.0, 1.0, 1.0), num_rows=120, num_classes=3):
    """Models that are each good at other patients, and in other seeds; `skills` are their true means.

    With one seed, variation between seeds is left out: one seed is no evidence about others.
    """
    groups, of_row = grouped_rows(random, num_groups, num_rows)
    labels = random.integers(num_classes, size=num_rows)
    hardness = random.normal(size=(num_rows, num_classes))
    size = of_row.max() + 1
    predictions = {}
    for number, skill in enumerate(skills):
        patients = 0.8 * random.normal(size=size) + skill
        bias = 0.5 * random.normal(size=(size, num_classes))
        predictions[f"model {number}"] = []
        for _ in range(num_seeds):
            logits = hardness + bias[of_row] + random.normal(size=(num_rows, num_classes))
            run_noise = 0.4 * random.normal() * (num_seeds > 1)
            logits[np.arange(num_rows), labels] += patients[of_row] + run_noise
            predictions[f"model {number}"].append(softmax(logits))
    return {"": labels}, predictions, groups


def scores(random, num_groups, num_seeds, noises=(0.2, 0.2, 0.2), num_rows=120):
    """Models that are each off in other patients, and in other seeds; `noises` are their standard errors."""
    groups, of_row = grouped_rows(random, num_groups, num_rows)
    truth = 0.2 * random.normal(size=of_row.max() + 1)[of_row] + 0.2 * random.normal(size=num_rows)
    predictions = {}
    for number, noise in enumerate(noises):
        patients = noise / 2 * random.normal(size=of_row.max() + 1)
        predictions[f"model {number}"] = [
            truth
            + patients[of_row]
            + 0.1 * random.normal() * (num_seeds > 1)
            + noise * random.normal(size=num_rows)
            for _ in range(num_seeds)
        ]
    return {"": truth}, predictions, groups


def shuffled(random, references, groups):
    """Labels dealt anew among the rows of each group: no model knows anything, and groups stay what they are."""
    order = np.arange(len(references[""]))
    for group in [] if groups is None else np.unique(groups):
        members = np.flatnonzero(groups == group)
        order[members] = random.permutation(members)
    return {"": references[""][random.permutation(len(order)) if groups is None else order]}


def rates(draw, num_groups, num_seeds, shuffle=False, num_runs=NUM_RUNS, **means):
    """Per metric: the fraction of all pairs with p < 0.05, and the verdicts of each run."""
    raw, verdicts = defaultdict(list), defaultdict(list)
    for run in range(num_runs):
        random = np.random.default_rng([run, num_groups or 0, num_seeds])
        references, predictions, groups = draw(random, num_groups, num_seeds, **means)
        if shuffle:
            references = shuffled(random, references, groups)
        comparison = compare_models(references, predictions, groups, seed=run, num_replicates=128)
        for metric in dict.fromkeys(test.metric for test in comparison.tests):
            tests = [test for test in comparison.tests if test.metric == metric]
            raw[metric] += [test.p < 0.05 for test in tests]
            verdicts[metric].append([test.verdict for test in tests])
    return {metric: np.mean(raw[metric]) for metric in raw}, verdicts


SETTINGS = [
    (classes, 8, 1, False),
    (classes, 8, 1, True),
    (classes, 30, 2, False),
    (classes, None, 1, True),
    (scores, 8, 1, False),
    (scores, 8, 1, True),
    (scores, 30, 3, False),
]
NAMES = [f"{d.__name__}-{g or 'rows'}-{s}-{'shuffled' if t else 'alike'}" for d, g, s, t in SETTINGS]


@pytest.mark.slow
def test_models_that_do_not_differ_are_called_different_in_at_most_one_run_of_twenty():
    """Three models, 200 runs in each setting: any verdict on any pair counts."""
    calls, runs = 0, 0
    for name, (draw, num_groups, num_seeds, shuffle) in zip(NAMES, SETTINGS, strict=True):
        raw, verdicts = rates(draw, num_groups, num_seeds, shuffle)
        called = {
            metric: sum(any(v in CALLED for v in run) for run in of_runs)
            for metric, of_runs in verdicts.items()
        }
        shown = ", ".join(f"{m} {raw[m]:.1%} of pairs, {called[m]} of {NUM_RUNS} runs" for m in raw)
        print(f"{name}: {shown}")
        assert max(called.values()) <= MOST_BY_CHANCE, f"{name}: {shown}"
        calls += sum(called.values())
        runs += NUM_RUNS * len(called)
    print(f"together {calls} of {runs}: {calls / runs:.2%}")
    assert calls / runs <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "num_groups", "num_seeds", "means"),
    [
        (classes, 8, 1, {"skills": (3.0, 1.0)}),  # Accuracy 0.85 against 0.53.
        (classes, 30, 1, {"skills": (2.2, 1.0)}),  # 0.74 against 0.53.
        (classes, 30, 5, {"skills": (2.6, 1.0)}),  # 0.80 against 0.53.
        (classes, None, 1, {"skills": (2.2, 1.0)}),
        (scores, 30, 1, {"noises": (0.1, 0.2)}),  # ICC 0.93 against 0.76.
        (scores, 30, 5, {"noises": (0.1, 0.2)}),
    ],
)
def test_a_model_that_is_better_by_a_planted_margin_is_found_in_most_runs(draw, num_groups, num_seeds, means):
    _, verdicts = rates(draw, num_groups, num_seeds, num_runs=40, **means)
    result = {metric: sum(run == ["better"] for run in of_runs) for metric, of_runs in verdicts.items()}
    print(f"{draw.__name__}-{num_groups or 'rows'}-{num_seeds}: {result} of 40")
    assert min(result.values()) >= 32
    assert not any(run == ["worse"] for of_runs in verdicts.values() for run in of_runs)


def test_one_seed_has_the_values_of_the_evaluation():
    references, predictions, groups = classes(np.random.default_rng(0), 12, 1)
    comparison = compare_models(references, predictions, groups, seed=4, num_replicates=300)
    expected = classification_estimates(
        references[""], predictions["model 1"][0], groups, seed=4, num_replicates=300
    )
    values = {value.metric: value for value in comparison.values if value.model == "model 1"}
    assert {metric: value.estimate for metric, value in values.items()} == {m: expected[m] for m in values}
    assert all(np.isnan(value.seed_sd) for value in values.values())
    references, predictions, groups = scores(np.random.default_rng(0), 12, 1)
    comparison = compare_models(references, predictions, groups, seed=4, num_replicates=300)
    ratings = np.column_stack([references[""], predictions["model 0"][0]])
    assert comparison.values[0].estimate == intraclass_correlation(ratings)


def test_several_seeds_have_mean_and_spread():
    references, predictions, groups = classes(np.random.default_rng(1), 12, 4)
    comparison = compare_models(references, predictions, groups, seed=0, num_replicates=300)
    each = [(seed.argmax(axis=1) == references[""]).mean() for seed in predictions["model 2"]]
    value = next(v for v in comparison.values if v.model == "model 2" and v.metric == "accuracy")
    assert value.estimate.value == pytest.approx(np.mean(each))
    assert value.seed_sd == pytest.approx(np.std(each, ddof=1))
    assert value.estimate.low < value.estimate.value < value.estimate.high
    other = [(seed.argmax(axis=1) == references[""]).mean() for seed in predictions["model 0"]]
    test = next(
        t for t in comparison.tests if (t.metric, t.first, t.second) == ("accuracy", "model 0", "model 2")
    )
    assert test.difference.value == pytest.approx(np.mean(np.subtract(other, each)))
    assert test.test == "bootstrap"


def test_independent_rows_and_one_seed_have_the_exact_tests():
    references, predictions, _ = classes(np.random.default_rng(2), None, 1, num_classes=2)
    comparison = compare_models(references, predictions, None, seed=0, num_replicates=200)
    right = {name: seeds[0].argmax(axis=1) == references[""] for name, seeds in predictions.items()}
    by_metric = defaultdict(list)
    for test in comparison.tests:
        by_metric[test.metric].append(test)
        if test.metric == "accuracy":
            assert test.test == "McNemar"
            assert test.p == mcnemar_p(right[test.first], right[test.second])
        if test.metric == "macro_auc":
            expected = delong_test(
                references[""], predictions[test.first][0][:, 1], predictions[test.second][0][:, 1]
            )
            assert test.difference.value == pytest.approx(expected.difference.value)
            assert test.p == pytest.approx(expected.p, abs=0.01)  # Student's t instead of the normal.
    for tests in by_metric.values():
        assert [test.p_holm for test in tests] == pytest.approx(holm([test.p for test in tests]))


@pytest.mark.parametrize("num_seeds", [1, 3])
@pytest.mark.parametrize("draw", [classes, scores])
def test_a_model_against_itself_is_not_distinguishable_with_p_one(draw, num_seeds):
    references, predictions, groups = draw(np.random.default_rng(3), 9, num_seeds)
    twins = {"one": predictions["model 0"], "other": predictions["model 0"]}
    for test in compare_models(references, twins, groups, seed=0, num_replicates=200).tests:
        assert (test.difference.value, test.difference.low, test.difference.high) == (0, 0, 0)
        assert (test.p, test.verdict) == (1, "not distinguishable")


def test_without_spread_between_groups_there_is_no_test_and_the_verdict_states_it():
    labels, groups = np.arange(12) % 2, np.arange(12) // 4
    right = np.eye(2)[labels]
    comparison = compare_models({"": labels}, {"right": [right], "wrong": [1 - right]}, groups, seed=0)
    assert {test.verdict for test in comparison.tests} == {"untested"}
    assert all(np.isnan(test.p) and test.difference.value == 1 for test in comparison.tests[:3])
    alone = compare_models({"": labels}, {"right": [right], "wrong": [1 - right]}, np.zeros(12), seed=0)
    assert {test.verdict for test in alone.tests} == {"untested"}


def test_two_raters_have_a_family_of_tests_each():
    references, predictions, groups = scores(np.random.default_rng(5), 15, 1)
    both = {"_a": references[""], "_b": references[""] + 0.1}
    comparison = compare_models(both, predictions, groups, seed=0, num_replicates=200)
    assert [test.metric for test in comparison.tests] == ["icc_a"] * 3 + ["icc_b"] * 3


def test_each_family_of_pairs_is_adjusted_by_itself():
    references, predictions, groups = classes(
        np.random.default_rng(8), 12, 1, skills=(1.0, 1.6, 2.2, 3.0), num_rows=150
    )
    every = compare_models(references, predictions, groups, seed=0, num_replicates=200)
    named = {
        "main": [("model 0", "model 1"), ("model 0", "model 2"), ("model 1", "model 2")],
        "rest": [("model 3", "model 0"), ("model 3", "model 2")],
        "none": [],
    }
    parted = compare_models(references, predictions, groups, seed=0, num_replicates=200, families=named)
    assert [value.estimate for value in parted.values] == [value.estimate for value in every.values]
    assert {test.family for test in every.tests} == {"all pairs"}
    for metric in dict.fromkeys(test.metric for test in every.tests):
        raw = {frozenset((t.first, t.second)): t.p for t in every.tests if t.metric == metric}
        of_metric = [test for test in parted.tests if test.metric == metric]
        assert [(t.family, t.first, t.second) for t in of_metric] == [
            (family, *pair) for family, pairs in named.items() for pair in pairs
        ]
        for family, pairs in named.items():
            p_values = sorted((raw[frozenset(pair)], pair) for pair in pairs)
            largest = 0.0  # Holm, step by step.
            for rank, (p, pair) in enumerate(p_values):
                largest = max(largest, min(1.0, (len(p_values) - rank) * p))
                test = next(t for t in of_metric if t.family == family and (t.first, t.second) == pair)
                assert (test.p, test.p_holm) == pytest.approx((p, largest))
                assert (test.verdict == "not distinguishable") == (largest > 0.05)


def test_a_pair_turned_round_has_the_difference_turned_round():
    references, predictions, groups = classes(np.random.default_rng(9), 12, 3, skills=(1.0, 2.0))
    there, back = (
        compare_models(references, predictions, groups, seed=0, num_replicates=200, families={"one": [pair]})
        for pair in (("model 0", "model 1"), ("model 1", "model 0"))
    )
    for one, other in zip(there.tests, back.tests, strict=True):
        assert (one.difference.value, one.p) == pytest.approx((-other.difference.value, other.p))


def test_models_with_other_numbers_of_seeds_are_refused():
    references, predictions, groups = scores(np.random.default_rng(6), 15, 2)
    predictions["model 1"] = predictions["model 1"][:1]
    with pytest.raises(ValueError, match="model 0 2, model 1 1, model 2 2"):
        compare_models(references, predictions, groups, seed=0)


def test_a_mean_difference_is_student_t_over_patients_of_one_size():
    random = np.random.default_rng(4)
    patient = np.repeat(np.arange(9), 30)
    first, second = random.random((2, 270)) + random.random((2, 9, 1)).repeat(30, axis=2).reshape(2, 270)
    difference = mean_difference(first, second, patient, seed=0, num_replicates=20000)
    apart = (first - second).reshape(9, 30).mean(axis=1)
    expected = stats.ttest_1samp(apart, 0).confidence_interval()
    assert difference.value == pytest.approx(apart.mean())
    assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high), rel=0.02)
    assert difference.n == 9


def test_a_mean_difference_that_nothing_is_known_of_has_no_interval():
    for first, groups in (([1.0, 0.0, 1.0], ["only"] * 3), ([0.5, 0.5], None)):
        difference = mean_difference(first, np.zeros(len(first)), groups, seed=0)
        assert np.isnan([difference.low, difference.high]).all()
    same = mean_difference([1.0, 0.0], [1.0, 0.0], None, seed=0)
    assert (same.value, same.low, same.high, same.n) == (0, 0, 0, 2)
    with pytest.raises(ValueError, match="one number for each row"):
        mean_difference([1.0], [1.0, 0.0], None, seed=0)
