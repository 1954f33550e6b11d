"""Slides that are known by their label alone: what can be learned is, what must not be known is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from histo_monai.evaluation.metrics import auc
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.heatmaps.origin import Origin
from histo_monai.wsi.inference.patch_features import PatchFeatures, write_features
from histo_monai.wsi.mil import training
from histo_monai.wsi.mil.bags import Bags
from histo_monai.wsi.mil.settings import MilSettings
from histo_monai.wsi.mil.training import CrossFitted, SavedNetworks, Slides, cross_fit, teach

pytestmark = pytest.mark.slow

NUM_SLIDES, NUM_FEATURES, NUM_TESTED = 40, 12, 10
SETTINGS = MilSettings(
    num_folds=3, epochs=20, lr=3e-3, weight_decay=1e-2, hidden=8, dropout=0.1, patches_per_step=30
)
ORIGIN = Origin(1, "", 1.0, {}, (), {})
Write = Callable[..., list[Path]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes bags of features, some of them empty."""

    def write(bags: list[NDArray[np.float32]]) -> list[Path]:
        paths = []
        for number, bag in enumerate(bags):
            side = 10
            cells = np.argwhere(np.ones((side, side), bool))[: len(bag)]
            grid = Grid(16.0, 1.0, (side * 16, side * 16))
            found = PatchFeatures(grid, cells, np.ones(len(bag), np.float32), bag, 16, 1.0)
            paths.append(tmp_path / f"{number}.h5")
            write_features(paths[-1], found, encoder="none", origin=ORIGIN)
        return paths

    return write


def _simulated() -> tuple[list[NDArray[np.float32]], NDArray[np.int64], list[NDArray[np.bool_]]]:
    """Every second slide is positive: 4 of its 60 patches, and of no other's, lie elsewhere in two features."""
    drawn = np.random.default_rng(0)
    labels = np.arange(NUM_SLIDES) % 2
    bags, lesions = [], []
    for label in labels:
        bag = drawn.normal(size=(60, NUM_FEATURES)).astype(np.float32)
        lesion = np.zeros(60, bool)
        lesion[drawn.choice(60, 4, replace=False)] = bool(label)
        bag[lesion, :2] += 4
        bags.append(bag)
        lesions.append(lesion)
    return bags, labels, lesions


def _slides(paths: list[Path], labels: NDArray[np.int64], **options: int) -> Slides:
    folds = np.arange(NUM_SLIDES) // 2 % 3
    folds[-NUM_TESTED:] = -1
    known = np.where(folds >= 0, labels, -1)
    groups = np.array([f"slide {i}" for i in range(NUM_SLIDES)], object)
    return Slides(Bags(paths, **options), known, folds, groups, 2)


def _fit(slides: Slides, seed: int = 0, settings: MilSettings = SETTINGS) -> CrossFitted:
    return cross_fit(slides, settings, seed=seed, device=torch.device("cpu"))


@pytest.mark.learns
def test_it_finds_the_patches_that_matter_from_labels_of_slides_alone(write: Write) -> None:
    bags, labels, lesions = _simulated()
    # At 3e-3 and 1e-2 the attention of one dataset in six ends on other patches, with 20 slides to learn from.
    settings = replace(SETTINGS, epochs=40, lr=1e-2, weight_decay=0.3)
    found = _fit(_slides(write(bags), labels), settings=settings)
    probabilities = found.probabilities["attention"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert auc(labels[:-NUM_TESTED], probabilities[:-NUM_TESTED, 1]).value > 0.95
    assert auc(labels[-NUM_TESTED:], probabilities[-NUM_TESTED:, 1]).value > 0.95
    in_lesions = [auc(lesions[i], found.weights[i]).value for i in range(NUM_SLIDES) if labels[i]]
    assert np.mean(in_lesions) > 0.95
    assert set(found.networks) == {0, 1, 2}
    assert [row["epoch"] for row in found.curves] == [*range(1, 41)] * 3
    assert found.curves[39]["loss"] < found.curves[0]["loss"]


def test_labels_that_mean_nothing_teach_nothing(write: Write) -> None:
    bags, labels, _ = _simulated()
    paths = write(bags)
    areas = []
    for seed in range(4):
        shuffled = np.random.default_rng(seed).permutation(labels)
        found = _fit(_slides(paths, shuffled), seed)
        areas += [
            auc(shuffled[:-NUM_TESTED], probabilities[:-NUM_TESTED, 1]).value
            for probabilities in found.probabilities.values()
        ]
    assert 0.3 < np.mean(areas) < 0.62


@pytest.mark.parametrize("slide", [0, 7])
def test_a_slides_own_label_never_bears_on_what_it_is_taken_for(slide: int, write: Write) -> None:
    bags, labels, _ = _simulated()
    paths = write(bags)
    before = _fit(_slides(paths, labels))
    turned = labels.copy()
    turned[slide] = 1 - turned[slide]
    after = _fit(_slides(paths, turned))
    for model, probabilities in before.probabilities.items():
        np.testing.assert_array_equal(probabilities[slide], after.probabilities[model][slide])
    np.testing.assert_array_equal(before.weights[slide], after.weights[slide])
    others = before.probabilities["attention"] != after.probabilities["attention"]
    assert others.any()


def test_labels_of_test_slides_bear_on_nothing(write: Write) -> None:
    bags, labels, _ = _simulated()
    slides = _slides(write(bags), labels)
    assert set(slides.labels[-NUM_TESTED:]) == {-1}
    summed = slides.bags.summaries()["mean_and_sd"]
    np.testing.assert_allclose(summed[3], np.r_[bags[3].mean(0), bags[3].std(0)], rtol=1e-5, atol=1e-6)


def test_a_killed_run_goes_on_after_its_last_fold_and_ends_in_the_same(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags, labels, _ = _simulated()
    slides = _slides(write(bags), labels)
    taught: list[int] = []

    def spy(*arguments: Any, **options: Any) -> Any:
        taught.append(len(taught))
        if len(taught) == 3:
            raise KeyboardInterrupt
        return teach(*arguments, **options)

    def fit(fingerprint: str) -> CrossFitted:
        saved = SavedNetworks(tmp_path / "saved", fingerprint)
        return cross_fit(slides, SETTINGS, seed=0, device=torch.device("cpu"), saved=saved)

    monkeypatch.setattr(training, "teach", spy)
    with pytest.raises(KeyboardInterrupt):
        fit("a")
    again = fit("a")
    assert len(taught) == 4  # two, the one that was killed, and that again
    whole = _fit(slides)
    for model, probabilities in whole.probabilities.items():
        np.testing.assert_array_equal(probabilities, again.probabilities[model])
    assert list(whole.curves) == list(again.curves)
    taught.clear()
    taught.extend(range(9))
    fit("b")
    assert len(taught) == 12


def test_files_give_the_same_bytes_as_memory_and_so_does_the_same_seed(write: Write) -> None:
    bags, labels, _ = _simulated()
    paths = write(bags)
    first, second, other = (
        _fit(_slides(paths, labels)),
        _fit(_slides(paths, labels, most_bytes=0)),
        _fit(_slides(paths, labels), seed=1),
    )
    for model in first.probabilities:
        np.testing.assert_array_equal(first.probabilities[model], second.probabilities[model])
    assert (first.probabilities["attention"] != other.probabilities["attention"]).any()


def test_a_slide_without_tissue_is_taken_for_what_most_are(write: Write) -> None:
    bags, labels, _ = _simulated()
    bags[-1] = bags[-1][:0]
    found = _fit(_slides(write(bags), labels))
    known = labels[:-NUM_TESTED]
    for probabilities in found.probabilities.values():
        np.testing.assert_allclose(probabilities[-1], [np.mean(known == 0), np.mean(known == 1)])
        assert np.isfinite(probabilities).all()
    assert len(found.weights[-1]) == 0


def test_moments_of_features_are_those_of_all_patches_together(write: Write) -> None:
    bags, _, _ = _simulated()
    for bag in bags:
        bag[:, 5] = 2.0
    mean, scale = Bags(write(bags)).moments([1, 4, 6])
    together = np.concatenate([bags[i] for i in (1, 4, 6)])
    np.testing.assert_allclose(mean.numpy(), together.mean(axis=0), rtol=1e-5, atol=1e-6)
    spread = together.std(axis=0)
    spread[5] = 1.0  # without spread
    np.testing.assert_allclose(scale.numpy(), spread, rtol=1e-5)


def test_features_of_two_encoders_are_refused(write: Write) -> None:
    bags, _, _ = _simulated()
    with pytest.raises(ValueError, match=r"1\.h5: 5 features per patch, but .*0\.h5 has 12\. Fix: make both"):
        Bags(write([bags[0], bags[1][:, :5]]))
