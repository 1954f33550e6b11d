from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.slide_classes import CROSS_FITTED, TEST, SlideClasses
from histo_monai.data.tables.slide_scores import SlideScores
from histo_monai.evaluation.metrics import auc, delong_test
from histo_monai.evaluation.slides import Axes, compare_slides

NUM = 40
AXES = Axes(("rsp",), ("paper",), ((0, 0),), "tumor", 0, 200)
RUN = ("rsp", 0, 0)


def _rows(labels: np.ndarray) -> pd.DataFrame:
    names = [f"s{i}" for i in range(NUM)]
    return pd.DataFrame({"slide_id": names, "patient_id": "", "split": "test", "label": labels, "size": ""})


def _probabilities(labels: np.ndarray, classes: tuple[str, ...], seed: int) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(size=(NUM, len(classes)))
    logits[np.arange(NUM), [classes.index(label) for label in labels]] += 1
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def _learned(labels: np.ndarray, part: str = TEST, **changes: Any) -> SlideClasses:
    classes = tuple(sorted(set(labels)))
    probabilities = {
        baseline: _probabilities(labels, classes, seed)
        for seed, baseline in enumerate(("attention", "moments"))
    }
    return SlideClasses(
        Path("mil.csv"), part, _rows(labels), classes, changes.get("predictions", probabilities)
    )


def _diagnosed(labels: np.ndarray) -> SlideScores:
    drawn = np.random.default_rng(5)
    scores = {name: drawn.normal(size=NUM) + (labels == "tumor") for name in ("finetuned", "student")}
    return SlideScores(Path("slides.csv"), _rows(labels), scores)


TWO = np.array(["normal", "tumor"])[np.arange(NUM) % 2]
THREE = np.array(["a", "b", "c"])[np.arange(NUM) % 3]


def test_who_learns_from_labels_alone_is_tested_against_who_diagnoses_maps() -> None:
    learned, diagnosed = _learned(TWO), _diagnosed(TWO)
    found = compare_slides({(*RUN, "paper"): diagnosed}, {RUN: learned}, AXES)
    assert found is not None
    assert (found.part, found.about) == (TEST, "20 tumor and 20 other slides")
    values = {one.model: one for one in found.comparison.values}
    assert set(values) == {"rsp-finetune", "rsp-paper", "rsp-attention", "rsp-moments"}
    assert {one.metric for one in found.comparison.values} == {"slide_auc"}
    truth = auc(TWO == "tumor", learned.predictions["attention"][:, 1])
    of = values["rsp-attention"].estimate
    assert (of.value, of.low, of.high) == pytest.approx((truth.value, truth.low, truth.high))
    pairs = {(one.first, one.second): one for one in found.comparison.tests}
    pair = pairs["rsp-finetune", "rsp-attention"]
    scores = diagnosed.predictions["finetuned"], learned.predictions["attention"][:, 1]
    assert pair.difference.value == pytest.approx(delong_test(TWO == "tumor", *scores).difference.value)
    assert (pair.family, pair.test) == ("models", "DeLong")
    assert pairs["rsp-moments", "rsp-attention"].family == "baselines"


def test_labels_of_three_classes_have_all_metrics_of_classes() -> None:
    found = compare_slides({}, {RUN: _learned(THREE, CROSS_FITTED)}, AXES)
    assert found is not None
    assert (found.part, found.about) == (CROSS_FITTED, "14 a, 13 b, 13 c slides")
    metrics = {one.metric for one in found.comparison.values}
    assert {"slide_accuracy", "slide_macro_auc"} <= metrics
    probabilities = _learned(THREE).predictions["attention"]
    right = np.mean(np.array(["a", "b", "c"])[probabilities.argmax(axis=1)] == THREE)
    of = {(one.model, one.metric): one.estimate.value for one in found.comparison.values}
    assert of["rsp-attention", "slide_accuracy"] == pytest.approx(right)


def test_labels_of_other_slides_than_maps_diagnose_are_left_out() -> None:
    others = _learned(TWO)
    others.rows["slide_id"] = [f"x{i}" for i in range(NUM)]
    found = compare_slides({(*RUN, "paper"): _diagnosed(TWO)}, {RUN: others}, AXES)
    assert found is not None
    assert {one.model for one in found.comparison.values} == {"rsp-finetune", "rsp-paper"}


def test_where_nobody_learned_there_is_nothing() -> None:
    bare = SlideScores(Path("slides.csv"), _rows(TWO), {})
    assert compare_slides({(*RUN, "paper"): bare}, {RUN: _learned(TWO, predictions={})}, AXES) is None


def test_runs_of_different_slides_are_refused() -> None:
    other = _learned(np.roll(TWO, 1))
    with pytest.raises(ValueError, match=r"different slides or classes.*mil"):
        compare_slides({}, {RUN: _learned(TWO), ("rsp", 0, 1): other}, AXES)
