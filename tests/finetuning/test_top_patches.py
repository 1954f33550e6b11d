"""A few patches of a slide decide its label: they are learned from labels of slides alone."""

from __future__ import annotations

import numpy as np
import torch

from histo_monai.evaluation.metrics import auc
from histo_monai.finetuning.top_patches import TopPatchesSettings, fit_top_patches, top_mean

SETTINGS = TopPatchesSettings(num_patches=4)


def _slides(num: int, num_classes: int, seed: int) -> tuple[list[np.ndarray], np.ndarray, list[np.ndarray]]:
    """4 of the 60 patches of a slide of class c > 0 lie elsewhere in feature c."""
    drawn = np.random.default_rng(seed)
    labels = np.arange(num) % num_classes
    bags, lesions = [], []
    for label in labels:
        bag, lesion = drawn.normal(size=(60, 12)), np.zeros(60, bool)
        lesion[drawn.choice(60, 4, replace=False)] = label > 0
        bag[lesion, label] += 4
        bags.append(bag)
        lesions.append(lesion)
    return bags, labels, lesions


def test_the_mean_of_the_top_patches_is_that_of_sorted_scores() -> None:
    scores = np.random.default_rng(0).normal(size=(9, 2))
    expected = [np.mean(sorted(column)[-3:]) for column in scores.T]
    np.testing.assert_allclose(top_mean(torch.from_numpy(scores), 3), expected)
    np.testing.assert_allclose(top_mean(torch.from_numpy(scores), 20), scores.mean(axis=0))


def test_it_finds_the_patches_that_matter_and_diagnoses_new_slides() -> None:
    for seed in range(3):
        bags, labels, _ = _slides(36, 2, seed)
        model = fit_top_patches(bags, labels, 2, SETTINGS)
        bags, labels, lesions = _slides(40, 2, 100 + seed)
        scores = [np.subtract(*model.outputs(bag).T[::-1]) for bag in bags]
        assert auc(labels, np.array([np.sort(each)[-4:].mean() for each in scores])).value > 0.95
        assert auc(np.concatenate(lesions), np.concatenate(scores)).value > 0.95


def test_classes_have_their_own_patches() -> None:
    bags, labels, _ = _slides(60, 3, 0)
    model = fit_top_patches(bags, labels, 3, SETTINGS)
    bags, labels, _ = _slides(60, 3, 1)
    predicted = [top_mean(torch.from_numpy(model.outputs(bag)), 4).argmax() for bag in bags]
    assert np.mean(predicted == labels) > 0.9


def test_the_order_of_patches_and_slides_does_not_matter() -> None:
    bags, labels, _ = _slides(12, 2, 0)
    model = fit_top_patches(bags, labels, 2, SETTINGS)
    order = np.random.default_rng(1).permutation(12)
    turned = fit_top_patches([bags[number][::-1] for number in order], labels[order], 2, SETTINGS)
    scores = [each.outputs(np.concatenate(bags)).ravel() for each in (model, turned)]
    assert np.corrcoef(scores)[0, 1] > 0.999  # rounding changes which patches are highest
