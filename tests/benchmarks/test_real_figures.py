"""`benchmarks.real.figures`: crossed intervals against loops and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from benchmarks.real import figures
from histo_monai.evaluation.metrics import Resampling, intraclass_correlation


def test_crossed_replicates_are_those_of_a_naive_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patients and label subsets are resampled apart; scikit-learn measures the rows written out."""
    monkeypatch.setattr(figures, "REPLICATES", 40)
    random = np.random.default_rng(2)
    patients = np.repeat([f"p{i}" for i in range(6)], [5, 9, 4, 7, 8, 6]).astype(object)
    classes = random.integers(0, 3, len(patients))
    two, scores = classes % 2, random.random(len(patients))
    of_classes = [random.dirichlet(np.ones(3), len(patients)) for _ in range(4)]
    of_two = [random.dirichlet(np.ones(2), len(patients)) for _ in range(4)]
    of_scores = [
        np.clip(scores + random.normal(0, 0.2, len(patients)), 0, 1).reshape(-1, 1) for _ in range(4)
    ]

    def recall(reference: np.ndarray, probabilities: np.ndarray) -> float:
        return balanced_accuracy_score(reference, probabilities.argmax(axis=1))

    def area(reference: np.ndarray, probabilities: np.ndarray) -> float:
        return roc_auc_score(reference, probabilities[:, 1])

    def agreement(reference: np.ndarray, predicted: np.ndarray) -> float:
        return intraclass_correlation(np.column_stack([reference, predicted]), form="ICC2").value

    cases = (
        ("balanced_accuracy", classes, of_classes, recall),
        ("auc", two, of_two, area),
        ("icc", scores, of_scores, agreement),
    )
    counts = np.hstack(list(Resampling(len(patients), patients, seed=0, num_replicates=40).blocks()))
    times = np.rint(figures.subset_weights(4) * 4).astype(int)
    assert (times.sum(axis=0) == 4).all()
    numbers = np.unique(patients.astype(str), return_inverse=True)[1]
    for name, reference, predictions, metric in cases:
        found, _ = figures.crossed(figures.METRICS[name], reference, patients, predictions)
        assert found.value == pytest.approx(np.mean([metric(reference, each) for each in predictions]))
        for b in range(40):
            rows = np.repeat(np.arange(len(patients)), counts[numbers, b].astype(int))
            chosen = np.repeat(np.arange(4), times[:, b])
            naive = np.mean([metric(reference[rows], predictions[d][rows]) for d in chosen])
            assert found.replicates[b] == pytest.approx(naive), (name, b)
        same = figures.difference(found, found)
        assert same.value == 0
        assert (same.replicates == 0).all()


def test_crossed_intervals_are_as_wide_as_the_spread_of_both_factors() -> None:
    """Hits of patient i and subset j are independent with effects of both: var = var_p / G + var_s / S + noise."""
    random = np.random.default_rng(3)
    num_patients, num_subsets, each = 40, 8, 50
    patient, subset = random.normal(0, 0.08, (num_patients, 1)), random.normal(0, 0.06, (1, num_subsets))
    chance = np.clip(0.6 + patient + subset, 0, 1)
    reference = np.zeros(num_patients * each, int)
    hits = random.random((num_subsets, num_patients, each)) < chance.T[:, :, None]
    predictions = [np.column_stack([hit, ~hit]).astype(float) for hit in hits.reshape(num_subsets, -1)]
    patients = np.repeat(np.arange(num_patients), each).astype(str)
    found, resampling = figures.crossed(
        figures.METRICS["balanced_accuracy"], reference, patients, predictions
    )
    table = hits.mean(axis=2)
    by_patient, by_subset = table.mean(axis=0).var(), table.mean(axis=1).var()
    expected = np.sqrt(by_patient / num_patients + by_subset / num_subsets)
    assert np.std(found.replicates) == pytest.approx(expected, rel=0.1)
    interval = figures.estimate(found, resampling)
    assert interval.low < found.value < interval.high


def test_two_patients_have_no_interval() -> None:
    predictions = [np.eye(2)[np.array([0, 1, 0, 1])]]
    found, resampling = figures.crossed(
        figures.METRICS["balanced_accuracy"],
        np.array([0, 1, 1, 1]),
        np.array(["a", "a", "b", "b"]),
        predictions,
    )
    known = figures.estimate(found, resampling)
    assert known.value == pytest.approx((1 + 2 / 3) / 2)
    assert np.isnan(known.low)
    assert np.isnan(known.high)
