from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from histo_monai.wsi.diagnosis.classifier import SlideClassifier, permutation_auc
from histo_monai.wsi.diagnosis.patients import patient_folds, patient_numbers, shuffled_between_patients


def test_patients_are_numbered_as_they_appear() -> None:
    assert patient_numbers(np.array(["b", "a", "b", "c"], object), 4).tolist() == [0, 1, 0, 2]
    assert patient_numbers(None, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("seed", range(60))
def test_folds_keep_patients_apart_and_hold_both_classes(seed: int) -> None:
    """Of simulated datasets of 2 to 9 patients of 1 to 5 slides, many of them with slides of both classes."""
    random = np.random.default_rng(seed)
    num_patients = int(random.integers(2, 10))
    patients = np.repeat(np.arange(num_patients), random.integers(1, 6, num_patients))
    positive = (random.random(len(patients)) < random.choice([0, 0.5, 1], num_patients)[patients]).astype(int)
    folds = patient_folds(positive, patients, 5, seed)
    holders = [len(set(patients[positive == label])) for label in (0, 1)]
    assert len(folds) <= min(5, *holders)
    if min(holders) < 2:
        assert folds == []
    held_out = [slide for _, fold in folds for slide in fold]
    assert sorted(held_out) == (list(range(len(patients))) if folds else [])
    for train, fold in folds:
        assert not set(patients[train]) & set(patients[fold])
        assert set(positive[train]) == set(positive[fold]) == {0, 1}


def test_patients_of_both_classes_alone_can_be_cross_validated() -> None:
    patients = np.repeat(np.arange(8), 2)
    assert len(patient_folds(np.tile([0, 1], 8), patients, 5, 0)) == 4


def test_labels_move_from_patient_to_patient() -> None:
    random = np.random.default_rng(0)
    patients = np.repeat(np.arange(12), 5)
    shuffle = random.permutation(60)  # Slides of a patient need not lie beside each other.
    patients, labels = patients[shuffle], (np.repeat([0, 1], 30) | (np.arange(60) % 5 == 0))[shuffle]
    moved = shuffled_between_patients(labels, patients, random)
    of_patients = [[tuple(of[patients == number]) for number in range(12)] for of in (labels, moved)]
    assert of_patients[0] != of_patients[1]
    assert sorted(of_patients[0]) == sorted(of_patients[1])


def test_unequal_patients_keep_the_number_of_slides_of_each_class() -> None:
    patients = np.repeat(np.arange(6), [1, 5, 2, 7, 3, 1])
    labels = (patients % 2).astype(int)
    for seed in range(20):
        moved = shuffled_between_patients(labels, patients, np.random.default_rng(seed))
        assert moved.sum() == labels.sum()


def _stained(
    random: np.random.Generator, num_patients: int, num_slides: int
) -> tuple[pd.DataFrame, np.ndarray]:
    """Features that are the patient's own and say nothing of the label."""
    patients = np.repeat(np.arange(num_patients), num_slides)
    table = random.normal(size=(num_patients, 3))[patients] + 0.1 * random.normal(size=(len(patients), 3))
    return pd.DataFrame(table).add_prefix("feature_"), patients


def test_a_classifier_that_only_knows_patients_again_is_worth_half() -> None:
    """Ten simulated datasets of 20 patients of 5 slides: right on held-out slides, at chance on held-out patients."""
    setting = {"kernel": "rbf", "C": (10.0,), "gamma": (1.0,), "folds": 5}
    by_patient, by_slide = [], []
    for seed in range(10):
        table, patients = _stained(np.random.default_rng(seed), 20, 5)
        labels = patients % 2
        for groups, aucs in ((patients, by_patient), (None, by_slide)):
            aucs.append(SlideClassifier.fit(table, labels, seed=seed, groups=groups, **setting).cv_auc)
    assert np.mean(by_patient) == pytest.approx(0.5, abs=0.1)
    assert np.mean(by_slide) > 0.95


def test_where_a_class_is_one_patient_the_smoothest_setting_is_used_and_none_is_chosen(tmp_path) -> None:
    table, patients = _stained(np.random.default_rng(0), 4, 3)
    labels = (patients == 3).astype(int)
    setting = {"kernel": "rbf", "C": (10.0, 0.1), "gamma": (1.0, 0.01), "folds": 5, "seed": 0}
    classifier = SlideClassifier.fit(table, labels, groups=patients, **setting)
    assert classifier.chosen == {"C": 0.1, "gamma": 0.01}
    assert np.isnan(classifier.cv_auc)
    classifier.save(tmp_path / "classifier.safetensors")
    assert np.isnan(SlideClassifier.load(tmp_path / "classifier.safetensors").cv_auc)


def test_shuffled_labels_of_patients_spread_as_far_as_patients_do() -> None:
    """Slides that are there five times over give the AUCs that they give once; shuffled one by one they do not."""
    random = np.random.default_rng(0)
    labels = np.arange(24) % 2
    table = pd.DataFrame({"size": random.normal(size=24), "other": random.normal(size=24)})
    times = np.repeat(np.arange(24), 5)
    asked = pd.DataFrame(random.normal(size=(30, 2)), columns=table.columns)
    truth = (asked["size"] + asked["other"] > 0).astype(int)
    setting = {"num": 60, "seed": 0, "kernel": "linear", "C": (1e-4,), "gamma": (), "folds": 2}
    once = permutation_auc(table, labels, asked, truth, **setting)
    by_patient, by_slide = (
        permutation_auc(table.loc[times], labels[times], asked, truth, groups=groups, **setting)
        for groups in (times, None)
    )
    np.testing.assert_allclose(by_patient, once, atol=0.02)
    alone = permutation_auc(table, labels, asked, truth, groups=np.arange(24), **setting)
    np.testing.assert_array_equal(alone, once)
    assert np.abs(by_slide - once).max() > 0.1
