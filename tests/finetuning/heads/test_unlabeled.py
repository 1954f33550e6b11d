"""`finetuning.heads`, unlabeled patches: linear solves, naive graphs, and the safeguard of self-training."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.finetuning.heads.unlabeled.propagation import neighbor_graph, propagate
from histo_monai.finetuning.heads.unlabeled.self_training import HeadData, Unlabeled, self_train

RNG = np.random.default_rng(2)
ROWS = RNG.normal(size=(60, 5))
KNOWN = np.zeros((60, 3))
KNOWN[np.arange(12), np.arange(12) % 3] = 1.0


def test_a_neighbor_graph_is_a_naive_loop() -> None:
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    expected = np.zeros((60, 60))
    for i in range(60):
        cosines = {j: float(unit[i] @ unit[j]) for j in range(60) if j != i}
        for j in sorted(cosines, key=lambda j: -cosines[j])[:4]:
            expected[i, j] += max(cosines[j], 0.0) ** 3 / 2
            expected[j, i] += max(cosines[j], 0.0) ** 3 / 2
    np.testing.assert_allclose(neighbor_graph(ROWS, 4).toarray(), expected, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.99])
def test_propagation_is_the_direct_solution(alpha: float) -> None:
    graph = neighbor_graph(ROWS, 6)
    weights = graph.toarray()
    root = np.sqrt(weights.sum(axis=1))
    expected = np.linalg.solve(np.eye(60) - alpha * weights / root[:, None] / root[None], KNOWN)
    np.testing.assert_allclose(propagate(graph, KNOWN, alpha), expected, atol=1e-6)


def test_a_patch_without_a_path_to_a_label_has_zeros() -> None:
    graph = csr_array(np.array([[0.0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]))
    known = np.array([[1.0, 0.0], [0, 0], [0, 0], [0, 0]])
    spread = propagate(graph, known, 0.9)
    assert (spread[:2, 0] > 0).all()
    assert not spread[2:].any()


PATIENTS = np.repeat(np.arange(6).astype(str), 10)
CLASSES = RNG.integers(0, 2, 60)
SEPARATE = {"depth": (RNG.normal(size=(60, 8)) + 2.0 * CLASSES[:, None]).astype(np.float32)}
OTHER_CLASSES = RNG.integers(0, 2, 300)
OTHERS = {"depth": (RNG.normal(size=(300, 8)) + 2.0 * OTHER_CLASSES[:, None]).astype(np.float32)}
UNLABELED = Unlabeled(OTHERS, np.repeat("other", 300))
SETTINGS = SelectionSettings(class_heads=("class_means",))


def test_the_safeguard_refuses_pseudo_labels_of_the_wrong_class() -> None:
    """The pseudo labels are the opposite of what the head predicts, and count ten times as much as the labels."""
    labels = Labels(CLASSES, PATIENTS, 2)
    result = self_train(
        HeadData(SEPARATE, labels, UNLABELED, SETTINGS, 0),
        weight=10.0,
        threshold=0.5,
        change=lambda _: lambda p: p[:, ::-1],
    )
    assert not result.is_accepted
    assert result.gain < 0
    assert (result.head.predict(OTHERS).argmax(axis=1) == OTHER_CLASSES).mean() > 0.95


def test_the_safeguard_accepts_the_true_classes_where_labels_are_noisy() -> None:
    rows = {"depth": (RNG.normal(size=(60, 8)) * 2.5 + CLASSES[:, None]).astype(np.float32)}
    others = {"depth": (RNG.normal(size=(900, 8)) * 2.5 + (np.arange(900) % 2)[:, None]).astype(np.float32)}
    truth = np.eye(2)[np.arange(900) % 2]
    labels = Labels(CLASSES, PATIENTS, 2)
    unlabeled = Unlabeled(others, np.repeat("other", 900))
    result = self_train(
        HeadData(rows, labels, unlabeled, SETTINGS, 0),
        weight=10.0,
        threshold=0.5,
        change=lambda _: lambda _: truth,
    )
    assert result.is_accepted
    assert result.gain > 0
    assert result.num_pseudo_labels == 900


def test_no_patch_above_the_threshold_changes_nothing() -> None:
    labels = Labels(CLASSES, PATIENTS, 2)
    result = self_train(
        HeadData(SEPARATE, labels, UNLABELED, SETTINGS, 0),
        weight=1.0,
        threshold=0.9,
        change=lambda _: lambda p: np.full_like(p, 0.5),
    )
    assert not result.is_accepted
    assert result.num_pseudo_labels == 0


def test_a_fold_sees_no_patch_of_its_patients() -> None:
    """Pseudo labels of the held-out patients' own patches would make the comparison too good."""
    seen: list[set[str]] = []

    def note(features: Mapping[str, NDArray]) -> None:
        seen.append(set(PATIENTS[features["depth"][:, 0].astype(int)]))

    numbered = {"depth": np.arange(60, dtype=np.float32)[:, None]}
    labels = Labels(CLASSES, PATIENTS, 2)
    self_train(
        HeadData(numbered, labels, Unlabeled(numbered, PATIENTS), SETTINGS, 0),
        weight=1.0,
        threshold=0.0,
        change=note,
    )
    every, *of_folds = seen
    assert every == set(PATIENTS)
    assert len(of_folds) > 1
    held_out = [every - fold for fold in of_folds]
    assert all(held_out)
    assert set.union(*held_out) == every
