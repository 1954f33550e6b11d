from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from histo_monai.evaluation.baselines.colors import color_features
from histo_monai.evaluation.baselines.models import BASELINES, FLOOR, LEARNED, stacked
from histo_monai.evaluation.comparison.rows import KNN, LINEAR
from histo_monai.finetuning.learners import LEARNERS
from histo_monai.semisupervised import METHODS


def _two(probabilities: np.ndarray) -> np.ndarray:
    return np.column_stack([1 - probabilities, probabilities])


def test_of_two_classes_the_log_odds_are_averaged() -> None:
    student, color = np.array([0.3, 0.9, 0.5]), np.array([0.6, 0.2, 0.5])
    expected = expit((logit(student) + logit(color)) / 2)
    np.testing.assert_allclose(stacked(_two(student), _two(color), are_classes=True), _two(expected))


def test_of_many_classes_it_is_the_geometric_mean_and_a_hard_zero_overrules_nobody() -> None:
    random = np.random.default_rng(0)
    student, color = random.dirichlet(np.ones(4), 6), random.dirichlet(np.ones(4), 6)
    color[0] = [1, 0, 0, 0]
    student[0] = [1e-5, 1 - 2e-5, 1e-5, 0]
    together = stacked(student, color, are_classes=True)
    for row in range(6):
        product = [
            np.sqrt(max(a, FLOOR) * max(b, FLOOR)) for a, b in zip(student[row], color[row], strict=True)
        ]
        np.testing.assert_allclose(together[row], np.array(product) / sum(product))
    assert together[0, 0] == pytest.approx(together[0, 1], rel=1e-4)  # Both are sure, of different classes.
    np.testing.assert_allclose(stacked(color, color, are_classes=True)[1:], color[1:], atol=3 * FLOOR)


def test_scores_are_averaged() -> None:
    student, color = np.array([[0.2], [1.0]]), np.array([[0.4], [0.0]])
    np.testing.assert_allclose(stacked(student, color, are_classes=False), [[0.3], [0.5]])


def test_every_baseline_chooses_among_existing_features_and_learners() -> None:
    import torch

    made = color_features([(torch.zeros(1, 1, 3, 4, 4, dtype=torch.uint8), None)])
    for baseline in LEARNED.values():
        assert set(baseline.features) <= {*made, "encoder"}
        assert set(baseline.learners) <= set(LEARNERS)
    assert len(set(BASELINES)) == len(BASELINES) == 5


def test_no_student_has_the_name_of_a_baseline() -> None:
    assert not {LINEAR, KNN, "finetune", *BASELINES} & set(METHODS)
    assert not [name for name in METHODS if "+" in name or "-" in name]
