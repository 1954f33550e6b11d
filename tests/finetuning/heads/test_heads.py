"""`finetuning.heads`: each head against a closed form, a naive loop or scikit-learn, and its module against itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid

from histo_monai.finetuning.heads import HEADS
from histo_monai.finetuning.heads.class_means import soft_threshold

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 6))
WIDE = RNG.normal(size=(40, 90))
CLASSES = RNG.permutation(np.repeat([0, 1, 2], [20, 12, 8]))
SCORES = RNG.uniform(size=40)
OTHERS = RNG.normal(size=(25, 6))
EQUAL = np.ones(40)


def fitted(name: str, setting: Any, rows: np.ndarray = ROWS, targets: np.ndarray | None = None) -> Any:
    is_score = "classes" not in HEADS[name].learns
    if targets is None:
        targets = SCORES if is_score else CLASSES
    num_classes = int(targets.max()) + 1 if targets.dtype.kind == "i" else None
    return HEADS[name].fit(rows, targets, num_classes, EQUAL, [setting])[0]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_class_means_decide_as_scikit_learns_nearest_centroid_on_the_sphere() -> None:
    nearest = NearestCentroid().fit(unit(ROWS), CLASSES)
    nearest.centroids_ = unit(nearest.centroids_)
    outputs = fitted("class_means", (0.0, 1, 5)).outputs(OTHERS)
    np.testing.assert_array_equal(outputs.argmax(axis=1), nearest.predict(unit(OTHERS)))


def test_several_prototypes_separate_a_class_that_lies_on_both_sides_of_another() -> None:
    angles = np.repeat([0.0, 1.0, 2.0], 20) + RNG.normal(0, 0.05, 60)
    rows, targets = np.stack([np.cos(angles), np.sin(angles)], axis=1), np.repeat([0, 1, 0], 20)
    right = []
    for prototypes in (1, 2):
        model = HEADS["class_means"].fit(rows, targets, 2, np.ones(60), [(0.0, prototypes, 5)])[0]
        right.append((model.outputs(rows).argmax(axis=1) == targets).mean())
    assert right[0] < 0.8
    assert right[1] == 1.0


def test_soft_threshold_is_a_naive_loop() -> None:
    deviations = RNG.normal(size=(3, 5))
    expected = np.zeros((3, 5))
    for i, row in enumerate(deviations):
        size = 0.7 * np.sqrt(sum(value**2 for value in row) / 5)
        for j, value in enumerate(row):
            expected[i, j] = 0 if abs(value) <= size else value - np.sign(value) * size
    np.testing.assert_allclose(soft_threshold(deviations, 0.7), expected)


@pytest.mark.parametrize("rows", [ROWS, WIDE])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_logistic_is_scikit_learns_on_all_features(rows: np.ndarray, num_classes: int) -> None:
    """The head is fitted in the span of its rows, with fewer numbers where D is above n."""
    targets = np.minimum(CLASSES, num_classes - 1)
    expected = LogisticRegression(C=0.05, class_weight="balanced", tol=1e-8, max_iter=2000).fit(rows, targets)
    outputs = fitted("logistic", 0.05, rows, targets).outputs(rows)
    probabilities = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities, expected.predict_proba(rows), atol=2e-3)


@pytest.mark.parametrize("rows", [ROWS, WIDE])
@pytest.mark.parametrize("shrinkage", [0.1, 0.6, 1.0])
def test_discriminant_is_the_direct_formula_and_scikit_learns(rows: np.ndarray, shrinkage: float) -> None:
    outputs = fitted("discriminant", shrinkage, rows).outputs(rows)
    means = np.stack([rows[k == CLASSES].mean(axis=0) for k in range(3)])
    centered = rows - means[CLASSES]
    within = centered.T @ centered / len(rows)
    size = len(within)
    covariance = (1 - shrinkage) * within + shrinkage * np.trace(within) / size * np.eye(size)
    solved = np.linalg.solve(covariance, means.T)
    expected = rows @ solved - 0.5 * np.einsum("kd,dk->k", means, solved)
    np.testing.assert_allclose(outputs, expected, rtol=1e-8, atol=1e-8)


def test_discriminant_of_equal_classes_is_scikit_learns() -> None:
    """scikit-learn's covariance is the mean of the classes' own, which is the pooled one where classes are equal."""
    targets = np.arange(39) % 3
    rows = ROWS[:39]
    expected = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.0).fit(rows, targets)
    model = HEADS["discriminant"].fit(rows, targets, 3, np.ones(39), [1e-9])[0]
    outputs = model.outputs(OTHERS)
    np.testing.assert_array_equal(outputs.argmax(axis=1), expected.predict(OTHERS))


def test_neighbors_are_a_naive_loop() -> None:
    votes = len(CLASSES) / (3 * np.bincount(CLASSES))
    expected = np.zeros((25, 3))
    for i, row in enumerate(OTHERS):
        cosines = [row @ other / np.linalg.norm(row) / np.linalg.norm(other) for other in ROWS]
        for j in np.argsort(cosines)[::-1][:7]:
            expected[i, CLASSES[j]] += votes[CLASSES[j]]
    np.testing.assert_allclose(fitted("neighbors", 7).outputs(OTHERS), np.log(expected + 1 / 3))


def test_one_neighbor_of_a_labeled_row_has_the_rows_score() -> None:
    np.testing.assert_allclose(fitted("neighbors", 1, ROWS, SCORES).outputs(ROWS)[:, 0], SCORES)


@pytest.mark.parametrize("rows", [ROWS, WIDE])
def test_ridge_solves_the_normal_equations(rows: np.ndarray) -> None:
    centered = rows - rows.mean(axis=0)
    size = rows.shape[1]
    slope = np.linalg.solve(
        centered.T @ centered + 0.3 * size * np.eye(size), centered.T @ (SCORES - SCORES.mean())
    )
    expected = SCORES.mean() + centered @ slope
    np.testing.assert_allclose(fitted("ridge", 0.3, rows).outputs(rows)[:, 0], expected, rtol=1e-9)


def test_kernel_ridge_is_scikit_learns() -> None:
    model = fitted("kernel_ridge", (1.5, 0.2))
    squares = [np.square(a - b).sum() for i, a in enumerate(ROWS) for b in ROWS[:i]]
    gamma = 1 / (2 * 1.5**2 * np.median(squares))
    expected = SklearnKernelRidge(alpha=0.2, kernel="rbf", gamma=gamma).fit(ROWS, SCORES - SCORES.mean())
    np.testing.assert_allclose(
        model.outputs(OTHERS)[:, 0], expected.predict(OTHERS) + SCORES.mean(), rtol=1e-9
    )


SETTINGS = {
    "class_means": [(0.0, 1, 5), (1.0, 2, 4)],
    "logistic": [0.01],
    "neighbors": [5],
    "discriminant": [0.5],
    "ridge": [0.3],
    "kernel_ridge": [(1.0, 0.3)],
}
EACH = [
    (name, setting, targets)
    for name, settings in SETTINGS.items()
    for setting in settings
    for kind, targets in (("classes", CLASSES), ("scores", SCORES))
    if kind in HEADS[name].learns
]


def test_every_head_is_tested_as_a_module() -> None:
    assert set(SETTINGS) == set(HEADS)


@pytest.mark.parametrize(("name", "setting", "targets"), EACH)
def test_a_module_is_the_head_in_float32(name: str, setting: Any, targets: np.ndarray) -> None:
    model = fitted(name, setting, ROWS, targets)
    outputs = model.module()(torch.from_numpy(OTHERS).float()).numpy()
    assert outputs.dtype == np.float32
    np.testing.assert_allclose(outputs, model.outputs(OTHERS), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "setting", "targets"), EACH)
def test_a_row_of_weight_two_is_the_row_twice(name: str, setting: Any, targets: np.ndarray) -> None:
    if name in ("neighbors", "kernel_ridge") or setting == (1.0, 2, 4):
        weights, rows, again = np.full(40, 2.0), ROWS, targets  # All alike: relative weights count.
    else:
        weights, rows, again = (
            np.ones(40),
            np.concatenate([ROWS, ROWS[:9]]),
            np.concatenate([targets, targets[:9]]),
        )
        weights[:9] = 2.0
    num_classes = 3 if targets.dtype.kind == "i" else None
    fit = HEADS[name].fit
    weighted = fit(ROWS, targets, num_classes, weights, [setting])[0].outputs(OTHERS)
    repeated = fit(rows, again, num_classes, np.ones(len(rows)), [setting])[0].outputs(OTHERS)
    tolerance = 1e-2 if name == "logistic" else 1e-8
    np.testing.assert_allclose(weighted, repeated, rtol=tolerance, atol=tolerance)
