"""Few patch labels and diagnoses of slides together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import balanced_accuracy_score

from histo_monai.finetuning.depth import WHOLE
from histo_monai.finetuning.heads.logistic import Logistic
from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.finetuning.heads.unlabeled.self_training import (
    NO_DIAGNOSIS,
    POSITIVE,
    HeadData,
    SlideKinds,
    Unlabeled,
)
from histo_monai.semisupervised.heads.diagnoses import Diagnosed, Diagnoses, fit_diagnoses
from histo_monai.semisupervised.settings import DiagnosesSettings
from histo_monai.utils.errors import InputError

NUM_SLIDES, PER_SLIDE, NUM_FEATURES = 24, 60, 30
SETTINGS = DiagnosesSettings(prior=0.3, label_weight=0.5, negative_label_weight=0.1, strength=0.01)


def _tissue(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features, slides, diagnoses and classes of patches; a sixth of a positive slide is positive."""
    drawn = np.random.default_rng(seed)
    slides = np.repeat(np.arange(NUM_SLIDES), PER_SLIDE)
    is_positive = slides % 2 == 1
    targets = (is_positive & (drawn.random(len(slides)) < 1 / 6)).astype(np.int64)
    rows = drawn.normal(size=(len(slides), NUM_FEATURES))
    rows[targets == 1, :3] += 1.5
    return rows, slides, is_positive, targets


def _split(seed: int) -> tuple[np.ndarray, np.ndarray, Diagnosed]:
    rows, slides, is_positive, targets = _tissue(seed)
    drawn = np.random.default_rng(seed)
    positive, negative = (drawn.permutation(np.flatnonzero(targets == kind)) for kind in (1, 0))
    labeled = np.concatenate([positive[:4], negative[:40]])
    rest = np.setdiff1d(np.arange(len(rows)), labeled)
    return rows[labeled], targets[labeled], Diagnosed(rows[rest], slides[rest], is_positive[rest])


def test_diagnoses_add_to_few_labels_and_true_ones_more_than_shuffled_ones() -> None:
    """Of 44 labels 4 are positive. Truth: classes of new tissue."""
    accuracies = []
    for seed in range(4):
        rows, targets, diagnosed = _split(seed)
        tested, _, _, truth = _tissue(100 + seed)
        shuffled = np.random.default_rng(seed).permutation(NUM_SLIDES) % 2 == 1
        mixed_up = Diagnosed(diagnosed.rows, diagnosed.slides, shuffled[diagnosed.slides])
        models = [
            Logistic.fit(rows, targets, 2, np.ones(len(rows)), [0.01])[0],
            fit_diagnoses(rows, targets, diagnosed, SETTINGS),
            fit_diagnoses(rows, targets, mixed_up, SETTINGS),
        ]
        accuracies.append(
            [balanced_accuracy_score(truth, model.outputs(tested).argmax(axis=1)) for model in models]
        )
    alone, both, by_shuffled = np.mean(accuracies, axis=0)
    assert both > alone + 0.05
    assert both > by_shuffled + 0.02


def _data(
    seed: int, *, positive: int = POSITIVE, patients: int = 6, wrong: bool = False, per_class: int = 20
) -> HeadData:
    """Labels of both classes, with patients of their own, and all other patches with diagnoses of 20 slides."""
    rows, slides, is_positive, targets = _tissue(seed)
    rows[:, 3] = 0.0
    labeled = np.concatenate([np.flatnonzero(targets == kind)[:per_class] for kind in (0, 1)])
    rest = np.setdiff1d(np.arange(len(rows)), labeled)
    classes = targets if positive == POSITIVE else 1 - targets
    kinds = (is_positive ^ wrong).astype(np.int64)[rest]
    kinds[slides[rest] < 4] = NO_DIAGNOSIS
    of_labels = np.array([f"labeled {number % patients}" for number in range(len(labeled))])
    return HeadData(
        {WHOLE: rows[labeled].astype(np.float32)},
        Labels(classes[labeled], of_labels, 2),
        Unlabeled(
            {WHOLE: rows[rest].astype(np.float32)}, slides[rest], SlideKinds(slides[rest], kinds, positive)
        ),
        SelectionSettings(),
        0,
    )


def test_the_head_is_the_logistic_model_of_all_diagnosed_patches() -> None:
    """Truth: the regression on features standardized by hand; new tissue."""
    data = _data(0)
    result = Diagnoses.fit_head(data, SETTINGS)
    others, labeled = data.unlabeled.features[WHOLE], data.features[WHOLE]
    every = np.concatenate([labeled, others]).astype(np.float64)
    mean, deviation = every.mean(axis=0), every.std(axis=0)
    deviation[3] = 1.0
    given, known = data.unlabeled.diagnoses, data.unlabeled.patients >= 4
    assert given is not None
    diagnosed = Diagnosed(((others - mean) / deviation)[known], given.slides[known], given.kinds[known] == 1)
    expected = fit_diagnoses((labeled - mean) / deviation, data.labels.targets, diagnosed, SETTINGS)
    tested = _tissue(100)[0]
    tested[:, 3] = 0.0
    (part,) = result.head.parts
    logits = expected.outputs((tested - mean) / deviation) / part.temperature
    np.testing.assert_allclose(
        result.head.predict({WHOLE: tested}), softmax(logits, axis=1), rtol=1e-3, atol=1e-4
    )
    assert result.is_accepted
    assert result.num_pseudo_labels == known.sum() < len(others)


def test_the_positive_class_may_have_either_number() -> None:
    tested = {WHOLE: _tissue(100)[0]}
    last, first = (
        Diagnoses.fit_head(_data(0, positive=number), SETTINGS).head.predict(tested) for number in (1, 0)
    )
    np.testing.assert_allclose(last, first[:, ::-1], atol=1e-6)


def test_the_safeguard_refuses_diagnoses_that_raise_the_loss_and_needs_folds() -> None:
    """Diagnoses of the wrong slides beside many labels; then all labels of one patient."""
    result = Diagnoses.fit_head(_data(0, wrong=True, per_class=80, patients=12), SETTINGS)
    assert not result.is_accepted
    assert result.gain < 0
    assert {part.candidate.head for part in result.head.parts} == set(SelectionSettings().class_heads)
    result = Diagnoses.fit_head(_data(0, patients=1), SETTINGS)
    assert result.is_accepted
    assert np.isnan(result.gain)
    assert [part.temperature for part in result.head.parts] == [1.0]


def test_slides_of_one_kind_add_nothing_and_other_labels_are_refused() -> None:
    data = _data(0)
    given = data.unlabeled.diagnoses
    assert given is not None
    one_kind = replace(data.unlabeled, diagnoses=replace(given, kinds=np.minimum(given.kinds, 0)))
    result = Diagnoses.fit_head(replace(data, unlabeled=one_kind), SETTINGS)
    assert (result.is_accepted, result.num_pseudo_labels) == (False, 0)
    for other in (
        replace(data, labels=replace(data.labels, num_classes=3)),
        replace(data, unlabeled=replace(data.unlabeled, diagnoses=None)),
    ):
        with pytest.raises(InputError, match="Fix: label slides, or set"):
            Diagnoses.fit_head(other, SETTINGS)
