from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from histo_monai.models.checkpoint import save_model
from histo_monai.utils.randomness import derive_seed
from histo_monai.wsi.diagnosis.classifier import SlideClassifier, permutation_auc

SEARCH: dict[str, Any] = {"C": (0.01, 0.1, 1.0, 10.0), "gamma": (0.001, 0.01, 0.1), "folds": 5, "seed": 0}
FIXED: dict[str, Any] = SEARCH | {"C": (0.1,), "gamma": (0.01,)}
NUM_FEATURES = 33


def simulated_features(seed: int, num_normal: int, num_tumor: int) -> tuple[pd.DataFrame, NDArray]:
    """Slides whose features all grow with one size, half of them without bound; tumors are larger on the whole."""
    random = np.random.default_rng(seed)
    labels = np.repeat([0, 1], [num_normal, num_tumor])
    size = random.normal(np.where(labels, 1.5, -1.5), 1.0)
    table = 0.5 * size[:, None] * random.uniform(0.5, 1.5, NUM_FEATURES) + random.normal(
        size=(len(labels), NUM_FEATURES)
    )
    table[:, ::2] = np.exp(table[:, ::2])
    return pd.DataFrame(table, columns=[f"feature_{n}" for n in range(NUM_FEATURES)]), labels


def sklearn_scores(
    classifier: SlideClassifier, train: pd.DataFrame, labels: NDArray, asked: pd.DataFrame
) -> NDArray:
    """The same machine from scikit-learn's own parts; values beyond the training slides' are put at their ends."""
    svm = SVC(kernel=classifier.kernel, class_weight="balanced", **classifier.chosen)
    pipeline = make_pipeline(StandardScaler(), svm).fit(train.to_numpy(), labels)
    return pipeline.decision_function(asked.clip(train.min(), train.max(), axis=1).to_numpy())


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("sizes", [(6, 6), (9, 3), (60, 40)])
def test_scores_are_scikit_learns(kernel: Any, sizes: tuple[int, int]) -> None:
    train, labels = simulated_features(0, *sizes)
    asked, _ = simulated_features(1, 20, 20)
    classifier = SlideClassifier.fit(train, labels, kernel=kernel, **FIXED)
    expected = sklearn_scores(classifier, train, labels, asked)
    assert classifier.scores(asked).dtype == np.float64
    np.testing.assert_allclose(classifier.scores(asked), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_classifier_is_read_as_it_was_saved_and_without_pickle(tmp_path: Path, kernel: Any) -> None:
    train, labels = simulated_features(2, 8, 7)
    classifier = SlideClassifier.fit(train, labels, kernel=kernel, **SEARCH)
    for name in ("a", "b"):
        classifier.save(tmp_path / f"{name}.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.json",
        "a.safetensors",
        "b.json",
        "b.safetensors",
    ]
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    read = SlideClassifier.load(tmp_path / "a.safetensors")
    asked, _ = simulated_features(3, 20, 20)
    np.testing.assert_array_equal(read.scores(asked), classifier.scores(asked))
    about = (read.features, read.kernel, read.chosen, read.cv_auc)
    assert about == (classifier.features, classifier.kernel, classifier.chosen, classifier.cv_auc)
    assert json.loads((tmp_path / "a.json").read_text())["kernel"] == kernel


def test_a_changed_byte_or_another_model_is_refused(tmp_path: Path) -> None:
    train, labels = simulated_features(2, 4, 4)
    path = tmp_path / "classifier.safetensors"
    SlideClassifier.fit(train, labels, kernel="linear", **FIXED).save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match="SHA-256"):
        SlideClassifier.load(path)
    save_model(path, {}, {"kind": "encoder"})
    with pytest.raises(ValueError, match="no slide classifier"):
        SlideClassifier.load(path)


def test_columns_may_come_in_any_order() -> None:
    train, labels = simulated_features(4, 8, 8)
    classifier = SlideClassifier.fit(train, labels, kernel="rbf", **FIXED)
    np.testing.assert_array_equal(classifier.scores(train[train.columns[::-1]]), classifier.scores(train))


def test_other_columns_than_those_learned_from_are_refused() -> None:
    train, labels = simulated_features(4, 8, 8)
    classifier = SlideClassifier.fit(train, labels, kernel="rbf", **FIXED)
    for other in (train.drop(columns="feature_3"), train.assign(feature_3a=0.0)):
        with pytest.raises(ValueError, match=r"feature_3a? is missing or unknown"):
            classifier.scores(other)
    with pytest.raises(ValueError, match="feature_0 is duplicated"):
        classifier.scores(pd.concat([train, train[["feature_0"]]], axis=1))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_feature_that_is_constant_in_training_has_no_effect(kernel: Any) -> None:
    train, labels = simulated_features(5, 8, 8)
    asked, _ = simulated_features(6, 20, 20)
    expected = SlideClassifier.fit(train, labels, kernel=kernel, **SEARCH).scores(asked)
    classifier = SlideClassifier.fit(train.assign(constant=0.1), labels, kernel=kernel, **SEARCH)
    np.testing.assert_allclose(classifier.scores(asked.assign(constant=1e9)), expected, atol=1e-9)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_metastasis_larger_than_any_in_training_is_no_stranger(kernel: Any) -> None:
    train, labels = simulated_features(7, 8, 8)
    classifier = SlideClassifier.fit(train, labels, kernel=kernel, **FIXED)
    largest = train.max().to_frame().T
    np.testing.assert_allclose(classifier.scores(1000 * largest), classifier.scores(largest))
    assert classifier.scores(1000 * largest) > 0


def test_of_settings_worth_the_same_the_smoothest_is_chosen() -> None:
    """Where one feature parts the slides by far, every setting orders all held-out pairs rightly."""
    labels = np.repeat([0, 1], 10)
    train = pd.DataFrame({"size": labels + 0.01 * np.random.default_rng(0).random(20)})
    classifier = SlideClassifier.fit(
        train, labels, kernel="rbf", **(SEARCH | {"C": (10, 0.1, 1), "gamma": (0.1, 0.01)})
    )
    assert (classifier.chosen, classifier.cv_auc) == ({"C": 0.1, "gamma": 0.01}, 1.0)
    classifier = SlideClassifier.fit(train, labels, kernel="linear", **(SEARCH | {"C": (10, 0.1, 1)}))
    assert (classifier.chosen, classifier.cv_auc) == ({"C": 0.1}, 1.0)


@pytest.mark.parametrize("sizes", [(10, 10), (21, 13)])
def test_the_best_of_all_settings_on_held_out_slides_is_chosen(sizes: tuple[int, int]) -> None:
    """By scikit-learn's AUC in each fold, weighted by its pairs; the folds are those of the seed."""
    train, labels = simulated_features(8, *sizes)
    train += np.random.default_rng(0).normal(scale=3, size=train.shape)
    classifier = SlideClassifier.fit(train, labels, kernel="rbf", **SEARCH)
    folding = StratifiedKFold(5, shuffle=True, random_state=derive_seed(0, "folds"))
    worth = {}
    for penalty in SEARCH["C"]:
        for gamma in SEARCH["gamma"]:
            areas, pairs = [], []
            for known, held_out in folding.split(labels, labels):
                one = SlideClassifier((), {}, "rbf", {"C": penalty, "gamma": gamma}, math.nan)
                scores = sklearn_scores(one, train.iloc[known], labels[known], train.iloc[held_out])
                areas.append(roc_auc_score(labels[held_out], scores))
                pairs.append(labels[held_out].sum() * (1 - labels[held_out]).sum())
            worth[penalty, gamma] = np.average(areas, weights=pairs)
    assert classifier.cv_auc == pytest.approx(max(worth.values()))
    assert worth[classifier.chosen["C"], classifier.chosen["gamma"]] == pytest.approx(classifier.cv_auc)
    assert len(set(worth.values())) > 1


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_twelve_slides_are_enough_to_learn_an_obvious_difference(kernel: Any) -> None:
    areas = []
    for seed in range(8):
        train, labels = simulated_features(seed, 6, 6)
        asked, truth = simulated_features(100 + seed, 40, 40)
        areas.append(
            roc_auc_score(truth, SlideClassifier.fit(train, labels, kernel=kernel, **SEARCH).scores(asked))
        )
    assert np.mean(areas) > 0.9
    assert min(areas) > 0.75


def test_uninformative_features_give_an_auc_of_one_half() -> None:
    """Though the best of twelve settings is reported, which is above it on the same slides."""
    areas, cv_areas = [], []
    for seed in range(12):
        random = np.random.default_rng(seed)
        train, asked = (
            pd.DataFrame(random.normal(size=(size, NUM_FEATURES))).add_prefix("f") for size in (20, 100)
        )
        classifier = SlideClassifier.fit(train, np.arange(20) % 2, kernel="rbf", **SEARCH)
        areas.append(roc_auc_score(np.arange(100) % 2, classifier.scores(asked)))
        cv_areas.append(classifier.cv_auc)
    assert np.mean(areas) == pytest.approx(0.5, abs=0.05)
    assert 0.45 < np.mean(cv_areas) < 0.75


@pytest.mark.parametrize("sizes", [(2, 2), (20, 2), (2, 9)])
def test_there_are_never_more_folds_than_slides_of_the_rarer_class(sizes: tuple[int, int]) -> None:
    train, labels = simulated_features(9, *sizes)
    classifier = SlideClassifier.fit(train, labels, kernel="linear", **SEARCH)
    assert 0 <= classifier.cv_auc <= 1
    assert np.isfinite(classifier.scores(train)).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 0, 1], "1 tumor and 3 normal"),
        ([0, 0, 0, 0], "0 tumor and 4 normal"),
        ([0, 1, 2, 1], "Fix: give 0 .normal. and 1"),
        ([0, 1, 1], "give one label for each of 4 slides"),
    ],
)
def test_labels_that_cannot_be_learned_from_are_refused(labels: list[int], message: str) -> None:
    train, _ = simulated_features(0, 2, 2)
    with pytest.raises(ValueError, match=message):
        SlideClassifier.fit(train, labels, kernel="linear", **SEARCH)


def test_a_feature_that_is_not_finite_is_refused_by_slide_and_name() -> None:
    train, labels = simulated_features(0, 2, 2)
    train.index = pd.Index([f"slide_{n}" for n in range(4)])
    train.loc["slide_2", "feature_7"] = np.nan
    with pytest.raises(ValueError, match="slide slide_2, feature feature_7: nan"):
        SlideClassifier.fit(train, labels, kernel="linear", **SEARCH)


@pytest.mark.parametrize(
    "bad", [{"kernel": "poly"}, {"C": ()}, {"C": (0,)}, {"gamma": ()}, {"gamma": (-1,)}, {"folds": 1}]
)
def test_settings_that_are_none_are_refused(bad: dict[str, Any]) -> None:
    train, labels = simulated_features(0, 3, 3)
    with pytest.raises(ValueError, match=r"kernel: 'poly' is unknown|not all positive|folds: 1"):
        SlideClassifier.fit(train, labels, **({"kernel": "rbf"} | SEARCH | bad))


@pytest.mark.parametrize("sizes", [(6, 6), (8, 4)])
def test_shuffled_labels_are_worth_half_on_the_mean(sizes: tuple[int, int]) -> None:
    """Of 30 simulated datasets with 20 shufflings each; a single one is far from half: features go together."""
    areas = []
    for seed in range(30):
        train, labels = simulated_features(seed, *sizes)
        asked, truth = simulated_features(1000 + seed, 20, 20)
        areas.append(
            permutation_auc(train, labels, asked, truth, num=20, kernel="rbf", **(FIXED | {"seed": seed}))
        )
    means = np.mean(areas, axis=1)
    standard_error = means.std(ddof=1) / np.sqrt(len(means))
    assert standard_error < 0.03
    assert abs(means.mean() - 0.5) < 3 * standard_error
    assert np.std(areas) > 0.2


def test_shufflings_repeat_the_search_and_do_not_depend_on_their_number() -> None:
    train, labels = simulated_features(0, 6, 6)
    asked, truth = simulated_features(1, 20, 20)
    areas = permutation_auc(train, labels, asked, truth, num=6, kernel="rbf", **SEARCH)
    np.testing.assert_array_equal(
        permutation_auc(train, labels, asked, truth, num=3, kernel="rbf", **SEARCH), areas[:3]
    )
    fixed = permutation_auc(train, labels, asked, truth, num=6, kernel="rbf", **FIXED)
    assert areas.shape == fixed.shape == (6,)
    assert (areas != fixed).any()


def test_the_truth_stands_out_from_shuffled_labels() -> None:
    train, labels = simulated_features(0, 10, 10)
    asked, truth = simulated_features(1, 20, 20)
    area = roc_auc_score(truth, SlideClassifier.fit(train, labels, kernel="rbf", **FIXED).scores(asked))
    shuffled = permutation_auc(train, labels, asked, truth, num=100, kernel="rbf", **FIXED)
    assert (shuffled >= area).mean() < 0.1
