"""Few patch labels and diagnoses of slides together."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from histo_monai.finetuning.diagnoses import Diagnosed, fit_diagnoses
from histo_monai.finetuning.heads.logistic import Logistic
from histo_monai.utils.errors import InputError

NUM_SLIDES, PER_SLIDE, NUM_FEATURES = 24, 60, 30


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
            fit_diagnoses(rows, targets, diagnosed),
            fit_diagnoses(rows, targets, mixed_up),
        ]
        accuracies.append(
            [balanced_accuracy_score(truth, model.outputs(tested).argmax(axis=1)) for model in models]
        )
    alone, both, by_shuffled = np.mean(accuracies, axis=0)
    assert both > alone + 0.05
    assert both > by_shuffled + 0.02


def test_labels_of_one_class_are_refused() -> None:
    rows, targets, diagnosed = _split(0)
    with pytest.raises(InputError, match="label patches and slides of both classes"):
        fit_diagnoses(rows[targets == 0], targets[targets == 0], diagnosed)
    one_kind = Diagnosed(diagnosed.rows, diagnosed.slides, np.ones(len(diagnosed.rows), bool))
    with pytest.raises(InputError, match="or no slide"):
        fit_diagnoses(rows, targets, one_kind)
