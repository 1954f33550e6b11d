"""The benchmark of diagnoses as labels: test slides teach nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.real.diagnoses import Task, diagnoses, interval, top_patches
from benchmarks.real.simulated_datasets import NUM_SLIDES, NUM_TEST_SLIDES, Simulated
from histo_monai.finetuning.depth import WHOLE

PER_SLIDE = 16


def _simulated() -> Simulated:
    random = np.random.default_rng(0)
    slides = np.repeat(np.arange(NUM_SLIDES + NUM_TEST_SLIDES), PER_SLIDE)
    has_metastasis = np.arange(NUM_SLIDES + NUM_TEST_SLIDES) % 2 == 1
    is_tumor = has_metastasis[slides] & (random.random(len(slides)) < 0.25)
    rows = random.normal(size=(len(slides), 8)).astype(np.float32)
    rows[is_tumor, 0] += 3
    cells = np.stack([np.arange(len(slides)) % PER_SLIDE // 4, np.arange(len(slides)) % 4], axis=1)
    return Simulated({WHOLE: rows}, slides, cells, is_tumor, has_metastasis)


def test_labels_of_test_slides_do_not_change_scores() -> None:
    simulated = _simulated()
    is_test = simulated.slides >= NUM_SLIDES
    turned = replace(
        simulated,
        is_tumor=simulated.is_tumor ^ is_test,
        diagnoses=simulated.diagnoses ^ (np.arange(len(simulated.diagnoses)) >= NUM_SLIDES),
    )
    task, other = Task(simulated), Task(turned)
    labeled = task.subset(0)
    assert (simulated.slides[labeled] < NUM_SLIDES).all()
    np.testing.assert_array_equal(labeled, other.subset(0))
    teaching = np.arange(NUM_SLIDES)
    scores = diagnoses(task, labeled, teaching)
    np.testing.assert_array_equal(scores, diagnoses(other, labeled, teaching))
    np.testing.assert_array_equal(top_patches(task), top_patches(other))
    assert np.mean((scores > 0)[is_test] == simulated.is_tumor[is_test]) > 0.85


def test_intervals_are_of_student() -> None:
    """Of 1, 2 and 3: standard error 1 / sqrt(3), and 4.3027 of it with two degrees of freedom."""
    low, high = interval(np.array([1.0, 2.0, 3.0])).split("(")[1].rstrip(")").split(" to ")
    assert [float(low), float(high)] == pytest.approx([2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5], abs=1e-3)
