"""Slide features -> diagnosis: a support vector machine that learns from a handful of slides."""

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
    """A support vector machine on scaled features (scikit-learn's SVC; both classes weigh alike).

    Features are clipped to the range of the training slides first: a metastasis larger than any of them counts like
    the largest, and is not a stranger to an RBF kernel; a feature that is constant in training says nothing. Then they
    are scaled to mean 0 and standard deviation 1 over the training slides.

    Attributes:
        features: names, in the order of the columns below.
        arrays: `low`, `high`, `mean`, `scale`, each (F,); `support_vectors` (M, F), scaled; `weights` (M,), with sign;
            `intercept` (1,); all float64.
        kernel: "linear": the scalar product; "rbf": exp(-gamma × squared distance).
        chosen: "C", and "gamma" where the kernel is RBF.
        cv_auc: AUC of the chosen setting on slides of held-out training patients: the best of several, hence somewhat
            too good; NaN where nothing was chosen, since a class had fewer than two patients.
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
        C: Sequence[float],  # noqa: N803  the field's letter
        gamma: Sequence[float],
        folds: int,
        seed: int,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose C and gamma by stratified cross-validation, patients apart, then learn from all of these slides.

        A setting is worth the part of all pairs of a tumor and a normal slide of the same held-out fold that it puts
        in the right order, ties counting half: the mean AUC of the folds. Scores of different folds come from different
        machines and are not compared. Scaling is learned anew in every fold. Of settings worth the same, the smallest
        C is chosen, then the smallest gamma: the smoothest. With fewer than two patients of a class nothing can be held
        out, and the smoothest setting is used.

        Args:
            features: a row per slide, one column for each feature.
            labels: Shape (n,), 0 or 1.
            kernel: "linear" or "rbf".
            C: penalties to choose from. Beyond 10, a linear kernel takes minutes on hundreds of slides.
            gamma: of the RBF kernel, to choose from; 1 / F is a middle value. Not used by the linear one.
            folds: at most, see `patient_folds`.
            groups: Shape (n,), the patient of each slide, whose slides share a fold; None: each slide has its own.

        Raises:
            InputError: a label is not 0 or 1, a class has fewer than two slides, a feature is not finite, the rows
                differ in number, the kernel is unknown, or nothing is there to choose from.
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
        """Signed distance from the border in units of the margin, shape (n,), float64; above 0 is tumor.

        Args:
            features: the columns of the training, in any order, and no others.

        Raises:
            InputError: a column is missing or foreign, or a value is not finite.
        """
        odd = sorted(set(self.features) ^ set(features.columns))
        if odd:
            raise InputError(
                f"slide features differ from the {len(self.features)} learned from, {odd[0]} is missing or foreign; "
                "make them with the version that made those"
            )
        points = _scaled(self.arrays, _checked(features[list(self.features)]))
        vectors = self.arrays["support_vectors"]
        if self.kernel == "linear":
            products = product(points, vectors.T)
        else:
            products = np.exp(-self.chosen["gamma"] * cdist(points, vectors, "sqeuclidean"))
        return product(products, self.arrays["weights"]) + self.arrays["intercept"]

    def save(self, path: Path, provenance: Mapping[str, Any] | None = None) -> None:
        """Write safetensors and JSON, see `models.checkpoint.save_model`; where it comes from, if that is given."""
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
        """Read what `save` wrote; no code in it is run.

        Raises:
            InputError: see `models.checkpoint.load_model`; or it is another kind of model.
        """
        tensors, about = load_model(path)
        if about.get("kind") != _KIND:
            raise InputError(f"{path}: holds no {_KIND}; expected the file that the aggregate stage writes")
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
    """AUCs on the test slides of classifiers that learned from shuffled labels: what the truth must stand out from.

    Labels move in whole patients (`shuffled_between_patients`).

    The whole of `SlideClassifier.fit` is repeated, its search too; with one C and one gamma there is none. With labels
    of no meaning the mean is near 0.5, but a single AUC may be far from it: where features go together, any labels lead
    to one side or the other of the same axis.

    Args:
        features_train: as in `SlideClassifier.fit`, and so all that is not named here.
        labels_train: of these slides.
        features_test: of the test slides.
        labels_test: of these, not shuffled.
        seed: of the shufflings and of the folds.
        groups: of the training slides, see there.

    Returns:
        Shape (num,).

    Raises:
        InputError: see `SlideClassifier.fit` and `SlideClassifier.scores`; or the test slides are of one class.
    """
    known, labels = _checked(features_train), _labels(labels_train, len(features_train))
    asked = _checked(features_test[features_train.columns])
    settings, scaling = _settings(kernel, C, gamma), _scaling(known)
    known_scaled, asked_scaled = _scaled(scaling, known), _scaled(scaling, asked)
    patients = patient_numbers(groups, len(known))

    def shuffled(number: int) -> float:
        drawn = shuffled_between_patients(labels, patients, generator(seed, "permutation", number))
        setting = settings[0]
        if len(settings) > 1:
            setting, _ = _search(
                known, drawn, patients, settings, folds, derive_seed(seed, "permutation", number)
            )
        machine = _machine(setting).fit(known_scaled, drawn)
        return auc(labels_test, machine.decision_function(asked_scaled)).value

    return np.array([shuffled(number) for number in range(num)])


def _checked(features: pd.DataFrame) -> Array:
    if not features.columns.is_unique:
        twice = features.columns[features.columns.duplicated()][0]
        raise InputError(f"slide feature {twice} comes twice; expected each once")
    table = features.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"slide {features.index[row]}, feature {features.columns[column]} is {table[row, column]}; "
            "expected a finite number"
        )
    return table


def _labels(labels: ArrayLike, num_slides: int) -> NDArray[np.int64]:
    array = np.asarray(labels, np.float64)
    if array.shape != (num_slides,):
        raise InputError(f"labels have shape {array.shape}; expected one for each of {num_slides} slides")
    if not np.isin(array, (0, 1)).all():
        raise InputError(f"labels are {sorted(set(array.tolist()))}; expected 0 (normal) and 1 (tumor)")
    num_tumor = int(array.sum())
    if min(num_tumor, num_slides - num_tumor) < 2:
        raise InputError(
            f"{num_tumor} tumor and {num_slides - num_tumor} normal slides to learn the diagnosis from; "
            "expected two of each at least: add slides"
        )
    return array.astype(np.int64)


def _settings(kernel: str, penalties: Sequence[float], gammas: Sequence[float]) -> list[dict[str, float]]:
    """All combinations, the smoothest first; which kernel it is shows by whether there is a gamma."""
    if kernel not in get_args(Kernel):
        raise InputError(f"kernel {kernel!r} is unknown; known: {', '.join(get_args(Kernel))}")
    given = [*penalties, *(gammas if kernel == "rbf" else [1.0])]
    if not penalties or (kernel == "rbf" and not gammas) or not all(0 < v < math.inf for v in given):
        raise InputError(
            f"C {list(penalties)} and gamma {list(gammas)}: expected positive numbers to choose from"
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
    """The setting that orders most pairs rightly, and its AUC; the first and NaN where no patient can be held out."""
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
    best = int(np.argmax(won))  # The first of equals.
    return settings[best], float(won[best] / pairs)


def _scaling(table: Array) -> dict[str, Array]:
    scaler = StandardScaler().fit(table)  # The scale of a constant feature is 1.
    return {"low": table.min(axis=0), "high": table.max(axis=0), "mean": scaler.mean_, "scale": scaler.scale_}


def _scaled(scaling: Mapping[str, Array], table: Array) -> Array:
    return (np.clip(table, scaling["low"], scaling["high"]) - scaling["mean"]) / scaling["scale"]
