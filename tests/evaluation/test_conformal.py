"""Sets of classes for an error rate, held against loops and against exchangeable data of known coverage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from histo_monai.evaluation.conformal import (
    CONFORMAL,
    NONE,
    RATES,
    Abstention,
    calibration,
    label_scores,
    prediction_sets,
    single_answers,
    thresholds,
)
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.models.checkpoint import save_model
from histo_monai.utils.errors import InputError

CLASSES = ["gland", "stroma", "tumor"]


def _looped(scores: NDArray, patients: NDArray, rate: float) -> float:
    """Smallest score up to which the weights of the scores reach the level."""
    num, names = len(scores), set(patients)
    above = 0
    while above < (num + 1) * (1 - rate) - 1e-9:
        above += 1
    if above > num:
        return 1.0
    for limit in sorted(scores):
        reached = sum(np.mean(scores[patients == name] <= limit) for name in names) / len(names)
        if reached >= above / num - 1e-9:
            return float(limit)
    return 1.0


def _drawn(random: np.random.Generator, num: int) -> tuple[NDArray, NDArray]:
    """Exchangeable probabilities and labels, the probabilities being true."""
    probabilities = random.dirichlet(np.ones(3), num)
    return probabilities, (random.random(num)[:, None] > probabilities.cumsum(axis=1)[:, :2]).sum(axis=1)


def test_a_threshold_is_that_of_a_loop() -> None:
    random = np.random.default_rng(0)
    for num in (1, 4, 9, 19, 40):
        scores, patients = random.random(num).round(1), random.integers(0, 4, num)
        found = thresholds(scores, patients, RATES)
        assert found == [_looped(scores, patients, rate) for rate in RATES]


def test_of_n_patients_with_one_label_it_is_the_order_statistic_of_split_conformal() -> None:
    scores = np.random.default_rng(1).permutation(19) / 20
    assert thresholds(scores, np.arange(19), [0.1, 0.05, 0.04]) == [17 / 20, 18 / 20, 1.0]


def test_a_patient_counts_once_however_many_labels_it_has() -> None:
    scores = np.array([0.9] * 98 + [0.1, 0.2])
    patients = np.array(["many"] * 98 + ["one", "two"])
    assert thresholds(scores, patients, [0.5])[0] == 0.2
    assert thresholds(scores, np.arange(100), [0.5])[0] == 0.9


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_exchangeable_labels_are_covered_at_the_rate(rate: float) -> None:
    random = np.random.default_rng(2)
    labeled, targets = _drawn(random, 2000)
    limit = thresholds(label_scores(labeled, targets), np.arange(2000), [rate])[0]
    tested, true = _drawn(random, 20000)
    coverage = prediction_sets(tested, limit)[np.arange(20000), true].mean()
    # Deviation of the tested labels, and of the threshold's level, which has a beta distribution.
    deviation = np.sqrt(rate * (1 - rate) * (1 / 20000 + 1 / 2000))
    assert abs(coverage - (1 - rate)) < 3 * deviation


def test_with_too_few_labels_the_set_is_everything_and_the_model_abstains() -> None:
    probabilities, targets = _drawn(np.random.default_rng(3), 8)
    limit = thresholds(label_scores(probabilities, targets), np.arange(8), [0.1])[0]
    sure = np.eye(3)
    assert prediction_sets(sure, limit).all()
    assert (single_answers(sure, limit) == NONE).all()
    assert thresholds(np.empty(0), np.empty(0), [0.5]) == [1.0]


def _validated(probabilities: NDArray) -> CrossValidated:
    return CrossValidated(0.0, {}, [], [], probabilities.astype(np.float32))


def _labeled(patients: NDArray, targets: NDArray) -> pd.DataFrame:
    labels = np.array(CLASSES)[targets]
    return pd.DataFrame({"patient_id": patients.astype(str), "slide_id": "", "patch_id": "", "label": labels})


def test_coverage_of_a_patient_is_by_the_threshold_of_the_others() -> None:
    random = np.random.default_rng(4)
    probabilities, targets = _drawn(random, 60)
    probabilities = probabilities.astype(np.float32).astype(np.float64)
    patients = random.integers(0, 5, 60)
    found = calibration(_labeled(patients, targets), _validated(probabilities), CLASSES)[CONFORMAL]
    assert (found["num_labels"], found["num_patients"]) == (60, 5)
    for row in found["rates"]:
        covered, answered, right = [], [], []
        for name in range(5):
            own = patients == name
            scores = 1 - probabilities[np.arange(60), targets]
            limit = _looped(scores[~own], patients[~own], row["rate"])
            sets = 1 - probabilities[own] <= limit
            is_single = sets.sum(axis=1) == 1
            covered.append(sets[np.arange(own.sum()), targets[own]].mean())
            answered.append(is_single.mean())
            right.append((is_single & (sets.argmax(axis=1) == targets[own])).mean())
        assert row["coverage"] == pytest.approx(np.mean(covered))
        assert row["answered"] == pytest.approx(np.mean(answered))
        if np.any(answered):
            assert row["accuracy"] == pytest.approx(np.sum(right) / np.sum(answered))
        else:
            assert row["accuracy"] is None


def test_scores_and_labels_without_cross_validation_have_no_threshold() -> None:
    labeled = _labeled(np.arange(3), np.arange(3))
    assert calibration(labeled, _validated(np.ones((3, 1))), None) == {}
    assert calibration(labeled, None, CLASSES) == {}


def _saved(folder: Path, classes: list[str] | None, **more: object) -> Path:
    save_model(folder / "model.safetensors", {}, {"classes": classes, **more})
    return folder / "model.safetensors"


def test_of_two_classes_one_probability_gives_the_answer(tmp_path: Path) -> None:
    classes = ["normal", "tumor"]
    scores = np.tile([0.1, 0.2], 20)
    table = np.stack([1 - scores, scores], axis=1)
    labeled = _labeled(np.arange(40), np.zeros(40, int)).assign(label="normal")
    path = _saved(
        tmp_path,
        classes,
        **calibration(labeled, _validated(table), classes),
    )
    found = Abstention.read(path, 0.1, ["tumor"])
    assert found.threshold == pytest.approx(0.2)
    tumor = np.array([0.0, 0.19, 0.21, 0.5, 0.79, 0.81])
    assert found.answers({"tumor": tumor}).tolist() == ["normal", "normal", "", "", "", "tumor"]


def test_what_a_model_cannot_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="score"):
        Abstention.read(_saved(tmp_path, None), 0.1, [])
    with pytest.raises(InputError, match="cross-validated"):
        Abstention.read(_saved(tmp_path, CLASSES), 0.1, CLASSES)
    calibrated = calibration(_labeled(np.arange(3), np.arange(3)), _validated(np.eye(3)), CLASSES)
    path = _saved(tmp_path, CLASSES, **calibrated)
    for rate in (0.12, np.nan, -1, np.inf):
        with pytest.raises(InputError, match=r"0\.01, .*0\.5"):
            Abstention.read(path, rate, CLASSES)
    with pytest.raises(InputError, match="--positive-class"):
        Abstention.read(path, 0.1, ["tumor"])
