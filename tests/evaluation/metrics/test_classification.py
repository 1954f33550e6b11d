import numpy as np
import pytest
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    roc_auc_score,
)

from histo_monai.evaluation import metrics


def predictions(num_rows, num_classes, seed=0, confident=1.0):
    random = np.random.default_rng(seed)
    labels = random.integers(num_classes, size=num_rows)
    logits = random.normal(size=(num_rows, num_classes))
    logits[np.arange(num_rows), labels] += 1
    probabilities = np.exp(confident * logits)
    return labels, probabilities / probabilities.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("num_classes", [2, 9])
def test_what_scikit_learn_has_comes_out_as_it_has_it(num_classes):
    labels, probabilities = predictions(400, num_classes)
    decided = probabilities.argmax(axis=1)
    assert metrics.accuracy(labels, probabilities) == pytest.approx(accuracy_score(labels, decided))
    expected = balanced_accuracy_score(labels, decided)
    assert metrics.balanced_accuracy(labels, probabilities) == pytest.approx(expected)
    assert metrics.weighted_f1(labels, probabilities) == pytest.approx(
        f1_score(labels, decided, average="weighted")
    )
    binary = num_classes == 2
    expected = roc_auc_score(labels, probabilities[:, 1] if binary else probabilities, multi_class="ovr")
    assert metrics.macro_auc(labels, probabilities) == pytest.approx(expected)
    one_hot = np.eye(num_classes)[labels]
    assert metrics.brier_score(labels, probabilities) == pytest.approx(
        ((probabilities - one_hot) ** 2).sum() / 400
    )


def test_for_two_classes_the_brier_score_is_twice_the_binary_one_and_macro_auc_is_the_auc():
    labels, probabilities = predictions(200, 2)
    assert metrics.brier_score(labels, probabilities) == pytest.approx(
        2 * brier_score_loss(labels, probabilities[:, 1])
    )
    assert metrics.macro_auc(labels, probabilities) == pytest.approx(
        metrics.auc(labels, probabilities[:, 1]).value
    )


@pytest.mark.parametrize("num_classes", [2, 9])
def test_mean_one_versus_rest_accuracy_is_the_mean_of_as_many_binary_accuracies(num_classes):
    labels, probabilities = predictions(300, num_classes)
    decided = probabilities.argmax(axis=1)
    each = [np.mean((labels == k) == (decided == k)) for k in range(num_classes)]
    value = metrics.mean_one_versus_rest_accuracy(labels, probabilities)
    assert value == pytest.approx(np.mean(each))
    assert value == pytest.approx(1 - 2 * (1 - metrics.accuracy(labels, probabilities)) / num_classes)


def bins_by_loops(labels, probabilities, num_bins):
    """Rows of each bin (low, high]: confidences and whether they are right."""
    bins = [[] for _ in range(num_bins)]
    for label, row in zip(labels, probabilities, strict=True):
        confidence = max(row)
        for i in range(num_bins):
            if i / num_bins < confidence <= (i + 1) / num_bins:
                bins[i].append((confidence, list(row).index(confidence) == label))
    return bins


@pytest.mark.parametrize("num_bins", [1, 10, 15])
def test_calibration_error_and_reliability_equal_a_loop_over_bins(num_bins):
    labels, probabilities = predictions(500, 3, confident=3.0)
    bins = bins_by_loops(labels, probabilities, num_bins)
    expected = sum(
        len(cell) / 500 * abs(np.mean([c for c, _ in cell]) - np.mean([r for _, r in cell]))
        for cell in bins
        if cell
    )
    assert metrics.expected_calibration_error(labels, probabilities, num_bins) == pytest.approx(expected)
    for result, cell in zip(metrics.reliability(labels, probabilities, num_bins), bins, strict=True):
        assert result.count == len(cell)
        if cell:
            assert result.confidence == pytest.approx(np.mean([c for c, _ in cell]))
            assert result.accuracy == pytest.approx(np.mean([r for _, r in cell]))
            assert result.low < result.confidence <= result.high
        else:
            assert np.isnan([result.confidence, result.accuracy]).all()


def test_a_confidence_on_an_edge_belongs_to_the_bin_below_it():
    counts = [cell.count for cell in metrics.reliability([0, 0], [[0.75, 0.25], [1.0, 0.0]], 4)]
    assert counts == [0, 0, 1, 1]


def test_labels_drawn_from_the_probabilities_are_calibrated_and_sharper_probabilities_are_not():
    random = np.random.default_rng(0)
    probabilities = random.dirichlet(np.ones(3), size=50_000)
    labels = (random.random((50_000, 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(max=2)
    sharper = probabilities**2 / (probabilities**2).sum(axis=1, keepdims=True)
    assert metrics.expected_calibration_error(labels, probabilities) < 0.01
    assert metrics.expected_calibration_error(labels, sharper) > 0.1


def test_perfect_and_worst_predictions():
    labels = np.array([0, 1, 2, 2])
    right = np.eye(3)[labels]
    for name in ("accuracy", "mean_one_versus_rest_accuracy", "weighted_f1", "macro_auc"):
        assert getattr(metrics, name)(labels, right) == 1
    assert metrics.brier_score(labels, right) == metrics.expected_calibration_error(labels, right) == 0
    wrong = np.eye(3)[(labels + 1) % 3]
    assert metrics.brier_score(labels, wrong) == 2
    assert metrics.expected_calibration_error(labels, wrong) == 1
    assert metrics.weighted_f1(labels, wrong) == 0


def test_macro_auc_is_over_the_classes_present():
    labels, probabilities = predictions(100, 4)
    labels[labels == 3] = 0
    each = [roc_auc_score(labels == k, probabilities[:, k]) for k in range(3)]
    assert metrics.macro_auc(labels, probabilities) == pytest.approx(np.mean(each))
    assert np.isnan(metrics.macro_auc(np.zeros(5, int), np.full((5, 2), 0.5)))


@pytest.mark.parametrize(
    ("labels", "probabilities", "message"),
    [
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "labels row 1 is 2: expected a class 0..1"),
        ([0.5], [[0.5, 0.5]], "labels row 0 is 0.5"),
        ([0, 1], [[0.5, 0.5], [0.5, 0.6]], r"probabilities row 1 is \[0.5, 0.6\]"),
        ([0, 1], [[1.5, -0.5], [0.5, 0.5]], "probabilities row 0"),
        ([0], [[np.nan, 1.0]], "probabilities row 0 is nan"),
        ([0], [[1.0]], "at least two classes"),
        ([0, 1, 1], [[0.5, 0.5]], "labels 3, probabilities 1"),
        ([], np.empty((0, 2)), "at least one row"),
    ],
)
def test_labels_and_probabilities_that_are_none_are_refused(labels, probabilities, message):
    with pytest.raises(ValueError, match=message):
        metrics.accuracy(labels, probabilities)


def test_no_bins_are_refused():
    with pytest.raises(ValueError, match="num_bins is 0"):
        metrics.expected_calibration_error([0], [[0.5, 0.5]], num_bins=0)
