"""Support vector machine from slide features to a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from histo_monai.evaluation.metrics import auc
from histo_monai.models.checkpoint import load_model, save_model
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.products import product
from histo_monai.utils.randomness import derive_seed, generator
from histo_monai.wsi.diagnosis.patients import patient_folds, patient_numbers, shuffled_between_patients

Kernel = Literal["linear", "rbf"]
Array = NDArray[np.float64]

_KIND = "slide classifier"


@dataclass(frozen=True)
class SlideClassifier:
    """Support vector machine on scaled features (scikit-learn's SVC with balanced classes).

    Features are clipped to the range of the training slides: an RBF kernel treats larger values as unlike any training
    slide. Then they are scaled to mean 0 and standard deviation 1; a constant feature has no effect.

    Attributes:
        features: names, in column order.
        arrays: `low`, `high`, `mean`, `scale`, each (F,); `support_vectors` (M, F), scaled; `weights` (M,), signed;
            `intercept` (1,); all float64.
        kernel: "linear": scalar product; "rbf": exp(-gamma × squared distance).
        chosen: selected "C", and "gamma" of an RBF kernel.
        cv_auc: cross-validated AUC of the selected setting, optimistic as the best of several; NaN without selection.
    """

    features: tuple[str, ...]
    arrays: Mapping[str, Array]
    kernel: Kernel
    chosen: Mapping[str, float]
    cv_auc: float

    @classmethod
    def fit(
        cls,
        features: pd.DataFrame,
        labels: ArrayLike,
        *,
        kernel: Kernel,
        C: Sequence[float],  # noqa: N803  the SVM's usual symbol
        gamma: Sequence[float],
        folds: int,
        seed: int,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Select C and gamma by cross-validation (stratified, by patient), then train on all slides.

        The criterion is the mean AUC over folds; scores of different folds are not compared. Each fold has its own
        scaling. Ties select the smallest C, then the smallest gamma. With fewer than two patients of a class, the
        smallest values are used without selection.

        Args:
            features: one row per slide, one column per feature.
            labels: (n,), 0 or 1.
            C: candidates; above 10, a linear kernel takes minutes on hundreds of slides.
            gamma: candidates of the RBF kernel; 1 / F is a middle value.
            folds: maximum number.
            groups: (n,), patient of each slide; None: one slide per patient.

        Raises:
            InputError: a label is not 0 or 1, a class has fewer than two slides, a feature is not finite, numbers of
                rows differ, the kernel is unknown, or a candidate list is empty.
        """
        table, positive = _checked(features), _labels(labels, len(features))
        settings = _settings(kernel, C, gamma)
        chosen, cv_auc = _search(table, positive, patient_numbers(groups, len(table)), settings, folds, seed)
        scaling = _scaling(table)
        machine = _machine(chosen).fit(_scaled(scaling, table), positive)
        arrays = {
            **scaling,
            "support_vectors": machine.support_vectors_,
            "weights": machine.dual_coef_[0],
            "intercept": machine.intercept_,
        }
        return cls(tuple(map(str, features.columns)), arrays, kernel, chosen, cv_auc)

    def scores(self, features: pd.DataFrame) -> Array:
        """Signed distance from the decision boundary in margins, (n,), float64; above 0 is tumor.

        Args:
            features: the training columns in any order.

        Raises:
            InputError: a column is missing or unknown, or a value is not finite.
        """
        odd = sorted(set(self.features) ^ set(features.columns))
        if odd:
            raise InputError(
                f"slide features: {odd[0]} is missing or unknown ({len(self.features)} in training). Fix: "
                "compute them with the version of the training"
            )
        points = _scaled(self.arrays, _checked(features[list(self.features)]))
        vectors = self.arrays["support_vectors"]
        if self.kernel == "linear":
            products = product(points, vectors.T)
        else:
            products = np.exp(-self.chosen["gamma"] * cdist(points, vectors, "sqeuclidean"))
        return product(products, self.arrays["weights"]) + self.arrays["intercept"]

    def save(self, path: Path, provenance: Mapping[str, Any] | None = None) -> None:
        """Write safetensors and JSON, with the provenance if given."""
        import torch

        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in self.arrays.items()}
        about = {
            "kind": _KIND,
            "features": list(self.features),
            "kernel": self.kernel,
            "chosen": dict(self.chosen),
            "cv_auc": self.cv_auc if math.isfinite(self.cv_auc) else None,
            **({} if provenance is None else {"provenance": dict(provenance)}),
        }
        save_model(path, tensors, about)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Classifier from the file of `save`; no code in it is run.

        Raises:
            InputError: the file cannot be read, or holds another kind of model.
        """
        tensors, about = load_model(path)
        if about.get("kind") != _KIND:
            raise InputError(f"{path}: no {_KIND}. Fix: give a file of the stage aggregate")
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        cv_auc = math.nan if about["cv_auc"] is None else about["cv_auc"]
        return cls(tuple(about["features"]), arrays, about["kernel"], about["chosen"], cv_auc)


def permutation_auc(
    features_train: pd.DataFrame,
    labels_train: ArrayLike,
    features_test: pd.DataFrame,
    labels_test: ArrayLike,
    *,
    num: int,
    seed: int,
    kernel: Kernel,
    C: Sequence[float],  # noqa: N803
    gamma: Sequence[float],
    folds: int,
    groups: ArrayLike | None = None,
) -> Array:
    """Test AUCs of classifiers trained on shuffled labels, (num,): the permutation control.

    Labels move between whole patients (`shuffled_between_patients`), and each repetition runs the full
    `SlideClassifier.fit`. The mean is near 0.5, but a single AUC may be far from it: with correlated features, any
    labels lead to one of two directions.

    Args:
        labels_test: true labels, not shuffled.
        seed: of shuffling and folds.
        groups: patients of the training slides.

    Raises:
        InputError: as in `SlideClassifier.fit` and `SlideClassifier.scores`, or the test slides have one class.
    """
    known, labels = _checked(features_train), _labels(labels_train, len(features_train))
    asked = _checked(features_test[features_train.columns])
    settings, scaling = _settings(kernel, C, gamma), _scaling(known)
    known_scaled, asked_scaled = _scaled(scaling, known), _scaled(scaling, asked)
    patients = patient_numbers(groups, len(known))

    def shuffled(number: int) -> float:
        permuted = shuffled_between_patients(labels, patients, generator(seed, "permutation", number))
        setting = settings[0]
        if len(settings) > 1:
            setting, _ = _search(
                known, permuted, patients, settings, folds, derive_seed(seed, "permutation", number)
            )
        machine = _machine(setting).fit(known_scaled, permuted)
        return auc(labels_test, machine.decision_function(asked_scaled)).value

    return np.array([shuffled(number) for number in range(num)])


def _checked(features: pd.DataFrame) -> Array:
    if not features.columns.is_unique:
        twice = features.columns[features.columns.duplicated()][0]
        raise InputError(f"slide features: {twice} is duplicated. Fix: give each column once")
    table = features.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"slide {features.index[row]}, feature {features.columns[column]}: {table[row, column]} is not finite. "
            "Fix: give finite numbers"
        )
    return table


def _labels(labels: ArrayLike, num_slides: int) -> NDArray[np.int64]:
    array = np.asarray(labels, np.float64)
    if array.shape != (num_slides,):
        raise InputError(f"labels: shape {array.shape}. Fix: give one label for each of {num_slides} slides")
    if not np.isin(array, (0, 1)).all():
        raise InputError(f"labels: {sorted(set(array.tolist()))}. Fix: give 0 (normal) and 1 (tumor)")
    num_tumor = int(array.sum())
    if min(num_tumor, num_slides - num_tumor) < 2:
        raise InputError(
            f"training slides: {num_tumor} tumor and {num_slides - num_tumor} normal. "
            "Fix: give at least two of each"
        )
    return array.astype(np.int64)


def _settings(kernel: str, penalties: Sequence[float], gammas: Sequence[float]) -> list[dict[str, float]]:
    """All combinations of hyperparameters, smoothest first; an RBF setting has a gamma."""
    if kernel not in get_args(Kernel):
        raise InputError(f"kernel: {kernel!r} is unknown. Fix: give one of {', '.join(get_args(Kernel))}")
    given = [*penalties, *(gammas if kernel == "rbf" else [1.0])]
    if not penalties or (kernel == "rbf" and not gammas) or not all(0 < v < math.inf for v in given):
        raise InputError(
            f"C {list(penalties)} and gamma {list(gammas)}: not all positive. Fix: give positive numbers"
        )
    if kernel == "linear":
        return [{"C": float(penalty)} for penalty in sorted(penalties)]
    return [
        {"C": float(penalty), "gamma": float(width)}
        for penalty in sorted(penalties)
        for width in sorted(gammas)
    ]


def _machine(setting: Mapping[str, float]) -> SVC:
    return SVC(kernel="rbf" if "gamma" in setting else "linear", class_weight="balanced", **setting)


def _search(
    table: Array,
    positive: NDArray[np.int64],
    patients: NDArray[np.int64],
    settings: Sequence[dict[str, float]],
    folds: int,
    seed: int,
) -> tuple[dict[str, float], float]:
    """Best setting and its cross-validated AUC; the first setting and NaN without held-out patients."""
    splits = patient_folds(positive, patients, folds, seed)
    if not splits:
        return settings[0], math.nan
    won, pairs = np.zeros(len(settings)), 0
    for train, held_out in splits:
        scaling = _scaling(table[train])
        known, asked = _scaled(scaling, table[train]), _scaled(scaling, table[held_out])
        tumor = positive[held_out] == 1
        pairs += tumor.sum() * (~tumor).sum()
        for number, setting in enumerate(settings):
            scores = _machine(setting).fit(known, positive[train]).decision_function(asked)
            ahead = scores[tumor][:, None] - scores[~tumor]
            won[number] += ((np.sign(ahead) + 1) / 2).sum()
    best = int(np.argmax(won))  # the first of equals
    return settings[best], float(won[best] / pairs)


def _scaling(table: Array) -> dict[str, Array]:
    scaler = StandardScaler().fit(table)  # the scale of a constant feature is 1
    return {"low": table.min(axis=0), "high": table.max(axis=0), "mean": scaler.mean_, "scale": scaler.scale_}


def _scaled(scaling: Mapping[str, Array], table: Array) -> Array:
    return (np.clip(table, scaling["low"], scaling["high"]) - scaling["mean"]) / scaling["scale"]
