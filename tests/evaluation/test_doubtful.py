"""Doubtful labels, held against loops and against clusters whose wrong labels are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from histo_monai.evaluation.doubtful import Doubts, doubtful_table, nearest_rows, read_doubtful
from histo_monai.utils.errors import InputError


@pytest.fixture(name="random")
def random_numbers() -> np.random.Generator:
    return np.random.default_rng(0)


def test_neighbors_are_those_of_a_loop_over_all_pairs(random: np.random.Generator) -> None:
    rows = random.normal(size=(40, 5)) * random.uniform(0.1, 10, size=(40, 1))
    expected = []
    for i, row in enumerate(rows):
        angles = [
            np.arccos(np.clip(row @ other / np.sqrt((row @ row) * (other @ other)), -1, 1))
            if j != i
            else np.inf
            for j, other in enumerate(rows)
        ]
        expected.append(sorted(range(40), key=angles.__getitem__)[:7])
    assert nearest_rows(rows, 7).tolist() == expected


def test_neighbors_do_not_depend_on_the_size_of_blocks(
    random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = random.normal(size=(50, 4))
    whole = nearest_rows(rows, 6)
    monkeypatch.setattr("histo_monai.evaluation.doubtful._BLOCK", 7)
    assert (nearest_rows(rows, 6) == whole).all()


@pytest.mark.parametrize("num_rows", [1, 2, 3])
def test_few_labels_have_few_neighbors(num_rows: int) -> None:
    assert nearest_rows(np.eye(3)[:num_rows]).shape == (num_rows, num_rows - 1)


def test_doubt_in_classes_is_what_a_loop_computes(random: np.random.Generator) -> None:
    probabilities = random.dirichlet(np.ones(3), size=30)
    targets = random.integers(3, size=30)
    neighbors = np.stack([random.permutation(30)[:4] for _ in range(30)])
    doubts = Doubts.of_classes(probabilities, targets, neighbors)
    for i in range(30):
        others = [number for number in range(3) if number != targets[i]]
        differing = sum(targets[j] != targets[i] for j in neighbors[i]) / 4
        margin = max(probabilities[i, number] for number in others) - probabilities[i, targets[i]]
        assert doubts.doubt[i] == pytest.approx(margin + differing)
        support = {
            number: probabilities[i, number] + sum(targets[j] == number for j in neighbors[i]) / 4
            for number in others
        }
        assert doubts.other[i] == max(support, key=support.__getitem__)


def test_without_neighbors_doubt_is_the_margin_of_the_probabilities() -> None:
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
    doubts = Doubts.of_classes(probabilities, np.array([0, 1]), None)
    assert doubts.doubt == pytest.approx([0.2 - 0.7, 0.6 - 0.3])
    assert doubts.other.tolist() == [1, 2]
    assert doubts.order.tolist() == [1, 0]


def test_doubt_in_scores_is_the_sum_of_two_residuals() -> None:
    scores = np.array([0.0, 0.5, 1.0])
    doubts = Doubts.of_scores(np.array([0.2, 0.5, 0.4]), scores, np.array([[1], [2], [1]]))
    assert doubts.doubt == pytest.approx([0.2 + 0.5, 0.0 + 0.5, 0.6 + 0.5])
    assert doubts.other == pytest.approx([0.35, 0.75, 0.45])


def _clusters(random: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
    """Features of three clusters, labels with 12 errors, and which they are."""
    true = np.repeat([0, 1, 2], 40)
    features = np.eye(3)[true] * 6 + random.normal(size=(120, 3)) * 0.3
    wrong = random.permutation(120)[:12]
    given = true.copy()
    given[wrong] = (true[wrong] + 1) % 3
    return features, given, wrong


def test_neighbors_alone_list_the_wrong_labels_of_clusters_first(random: np.random.Generator) -> None:
    features, given, wrong = _clusters(random)
    uninformed = np.full((120, 3), 1 / 3)
    doubts = Doubts.of_classes(uninformed, given, nearest_rows(features))
    assert set(doubts.order[:12]) == set(wrong)
    assert (doubts.other[wrong] == (given[wrong] - 1) % 3).all()


def test_probabilities_list_a_patient_whose_labels_are_all_wrong() -> None:
    """Its neighbors agree with the errors."""
    given = np.repeat([0, 1, 1], 10)  # the last ten are of class 0
    features = np.repeat([[1.0, 0, 0], [0, 1, 0], [0.8, 0, 0.6]], 10, axis=0)
    probabilities = np.tile([0.95, 0.05], (30, 1))
    probabilities[10:20] = 0.05, 0.95
    neighbors = nearest_rows(features, 5)
    assert (given[neighbors] == given[:, None]).all()
    assert set(Doubts.of_classes(probabilities, given, neighbors).order[:10]) == set(range(20, 30))


def _labeled(label: list[str], score: float = np.nan) -> pd.DataFrame:
    names = [f"p{i}" for i in range(len(label))]
    return pd.DataFrame(
        {"patch_id": names, "slide_id": "s", "patient_id": "", "label": label, "score": score}
    )


@pytest.mark.parametrize("neighbors", [None, np.array([[1, 2], [0, 2], [1, 0]])])
def test_a_table_of_classes_is_read_as_it_was_written(tmp_path: Path, neighbors: NDArray | None) -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
    table = doubtful_table(_labeled(["a", "b", "b"]), probabilities, ["a", "b"], neighbors)
    table.to_csv(tmp_path / "doubtful.csv", index=False, float_format="%.6g")
    read = read_doubtful(tmp_path / "doubtful.csv", has_scores=False)
    pd.testing.assert_frame_equal(read, table, check_dtype=False)
    first = read.iloc[0]
    assert (first["patch_id"], first["label"], first["other_label"]) == ("p2", "b", "a")
    assert (first["label_probability"], first["other_probability"]) == (0.3, 0.7)
    assert read["rank"].tolist() == [1, 2, 3]
    if neighbors is not None:
        assert (first["neighbors_of_label"], first["neighbors_of_other"]) == (0.5, 0.5)
        assert first[["neighbor_1", "neighbor_2", "neighbor_3"]].tolist() == ["p1", "p0", ""]


def test_a_table_of_scores_is_no_table_of_classes(tmp_path: Path) -> None:
    predictions = np.array([[0.4], [0.5]])
    table = doubtful_table(_labeled(["", ""], 0.5), predictions, None, np.array([[1], [0]]))
    table.to_csv(tmp_path / "doubtful.csv", index=False)
    assert read_doubtful(tmp_path / "doubtful.csv", has_scores=True)["patch_id"].tolist() == ["p0", "p1"]
    with pytest.raises(InputError, match="label"):
        read_doubtful(tmp_path / "doubtful.csv", has_scores=False)
