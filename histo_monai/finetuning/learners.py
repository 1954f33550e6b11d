"""Fast learners, selected by cross-validation on the labels alone (scikit-learn)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from histo_monai.finetuning.class_means import ClassMeans
from histo_monai.utils.process.products import product

Features = Mapping[str, NDArray]
"""Name of the features -> Shape (n, D)."""
Fold = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Training rows and held-out rows."""

MOST_FOLDS = 5
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1)
"""Inverse L2 penalties of the linear model."""
MOST_ITERATIONS = 100
TREES, TREES_IN_FOLDS = 200, 50
"""Trees of the final forest, and of forests in folds: a quarter of the cost, nearly equal errors."""
MOST_ROWS_OF_A_TREE = 1000
UNKNOWN = 1e-3
"""Initial odds of a class without labels, relative to logit 0."""
NEIGHBORS = (1, 3, 7, 15, 31, 63)
TEMPERATURES = (0.2, 0.1, 0.05)
"""Temperatures of class means; they change probabilities, not the most probable class."""


@dataclass(frozen=True)
class Learner:
    """A kind of model and its candidate settings.

    Attributes:
        settings: of equal scores the first is selected.
        classifier: setting and number of rows -> an unfitted classifier.
        regressor: setting and number of rows -> an unfitted regressor; None for classifiers only.
    """

    settings: tuple[float, ...]
    classifier: Callable[[float, int], Any]
    regressor: Callable[[float, int], Any] | None


def _forest(kind: Callable[..., Any]) -> Callable[[float, int], Any]:
    def build(num_trees: float, num_rows: int) -> Any:
        most = min(num_rows, MOST_ROWS_OF_A_TREE)
        return kind(int(num_trees), max_features="sqrt", max_samples=most, random_state=0, n_jobs=1)

    return build


def _neighbors(kind: Callable[..., Any]) -> Callable[[float, int], Any]:
    return lambda num, _: kind(int(num), metric="cosine", algorithm="brute")


LEARNERS: dict[str, Learner] = {
    "linear": Learner(
        STRENGTHS,
        lambda strength, _: make_pipeline(
            StandardScaler(), LogisticRegression(C=strength, max_iter=MOST_ITERATIONS)
        ),
        lambda strength, _: make_pipeline(StandardScaler(), Ridge(alpha=1 / strength)),
    ),
    "forest": Learner((TREES,), _forest(RandomForestClassifier), _forest(RandomForestRegressor)),
    "neighbors": Learner(NEIGHBORS, _neighbors(KNeighborsClassifier), _neighbors(KNeighborsRegressor)),
    "means": Learner(TEMPERATURES, lambda temperature, _: ClassMeans(temperature), None),
}


@dataclass(frozen=True)
class Candidate:
    """Features, learner of `LEARNERS`, and setting."""

    features: str
    learner: str
    setting: float


class Model:
    """A fitted candidate.

    Args:
        features: of the training rows.
        targets: class numbers, or scores; Shape (n,).
    """

    def __init__(
        self, candidate: Candidate, features: Features, targets: NDArray, num_classes: int | None
    ) -> None:
        self.candidate = candidate
        self._num_classes = num_classes
        learner = LEARNERS[candidate.learner]
        build = learner.regressor if num_classes is None else learner.classifier
        if build is None:
            raise ValueError(f"{candidate.learner} learns classes, not scores")
        model = build(candidate.setting, len(targets))
        if num_classes is not None and len(np.unique(targets)) == 1:
            model = DummyClassifier()  # A linear model needs two classes.
        with warnings.catch_warnings(), no_flags():
            warnings.simplefilter("ignore", ConvergenceWarning)  # Early stops are scored as they are.
            self._model = model.fit(features[candidate.features], targets)

    def predict(self, features: Features) -> NDArray[np.float64]:
        """Probabilities (n, K), 0 for a class without a label; or scores (n, 1), clipped to 0..1."""
        rows = features[self.candidate.features]
        with no_flags():
            if self._num_classes is None:
                return np.clip(self._model.predict(rows), 0.0, 1.0).reshape(-1, 1).astype(np.float64)
            probabilities = np.zeros((len(rows), self._num_classes))
            probabilities[:, self._model.classes_] = self._model.predict_proba(rows)
        return probabilities

    def layer(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Linear layer of a linear candidate: features -> logits of K classes, or the score.

        The softmax of the logits equals `predict`. Logits of labeled classes sum to 0; a class without labels has
        log(`UNKNOWN`).

        Returns:
            Weights, Shape (K, D), and biases, Shape (K,); K = 1 for scores.
        """
        scaler, linear = self._model[0], self._model[-1]
        weights, biases = np.atleast_2d(linear.coef_), np.atleast_1d(linear.intercept_)
        if self._num_classes is not None:
            weights, biases = class_logits(weights, biases)
            known_weights, known_biases, known = weights, biases, linear.classes_
            weights = np.zeros((self._num_classes, known_weights.shape[1]))
            biases = np.full(self._num_classes, np.log(UNKNOWN))
            weights[known], biases[known] = known_weights, known_biases
        weights = weights / scaler.scale_
        return weights, biases - product(weights, scaler.mean_)


def class_logits(weights: NDArray, biases: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (K, D) and biases (K,) of a linear classifier of scikit-learn, which gives two classes as one row."""
    if len(weights) > 1:
        return weights, biases
    return np.stack([-weights[0], weights[0]]) / 2, np.stack([-biases[0], biases[0]]) / 2


def no_flags() -> np.errstate:
    """Context without floating-point flags, which matrix products raise on some machines without an error."""
    return np.errstate(divide="ignore", over="ignore", invalid="ignore")


@dataclass(frozen=True)
class Chosen:
    """The model of the lowest cross-validation score, fitted to all labels.

    Attributes:
        score: mean of `errors`; None without folds.
        num_folds: 0 where no row can be held out; the first candidate is selected then.
        are_groups_apart: whether no patient or slide was on both sides of a fold.
        errors: error of each held-out row, in the order of the folds: Brier score of classes, squared error of scores.
            Folds depend on the rows alone, not on the candidates. Empty without folds.
        rows: numbers of the held-out rows.
    """

    model: Model
    score: float | None
    num_folds: int
    are_groups_apart: bool
    errors: NDArray[np.float64]
    rows: NDArray[np.intp]

    def as_dict(self) -> dict[str, Any]:
        """Content for JSON."""
        candidate = self.model.candidate
        return {
            "features": candidate.features,
            "learner": candidate.learner,
            "setting": candidate.setting,
            "score": self.score,
            "num_folds": self.num_folds,
            "groups_apart": self.are_groups_apart,
        }


def choose_model(
    features: Features,
    targets: NDArray,
    groups: NDArray,
    num_classes: int | None,
    *,
    names: Sequence[str],
    learners: Sequence[str],
) -> Chosen:
    """Features, learner and setting of the lowest cross-validation score, fitted to all labels.

    Each candidate predicts each labeled row once, from the folds without the row. The score is bounded and proper, so a
    forest's hard 0 stays finite. Of equal scores the first is selected: strong penalties, few neighbors.

    Args:
        features: of the labeled rows.
        targets: class numbers, int64, or scores 0..1; Shape (n,).
        groups: patient or slide of each row; Shape (n,).
    """
    folds, are_groups_apart = label_folds(targets, groups, num_classes)
    most = min((len(learning) for learning, _ in folds), default=len(targets))
    candidates = [
        Candidate(name, learner, setting)
        for name in names
        for learner in learners
        for setting in LEARNERS[learner].settings
        if learner != "neighbors" or setting <= most
    ]
    if not folds:
        first = Model(candidates[0], features, targets, num_classes)
        return Chosen(first, None, 0, False, np.empty(0), np.empty(0, np.intp))
    errors = [_errors(candidate, features, targets, num_classes, folds) for candidate in candidates]
    best = int(np.argmin([of_rows.mean() for of_rows in errors]))
    model = Model(candidates[best], features, targets, num_classes)
    rows = np.concatenate([held_out for _, held_out in folds])
    return Chosen(model, float(errors[best].mean()), len(folds), are_groups_apart, errors[best], rows)


def label_folds(targets: NDArray, groups: NDArray, num_classes: int | None) -> tuple[list[Fold], bool]:
    """At most five folds of labeled rows, and whether groups are apart.

    Folds separate groups, stratify classes, and leave training rows of every class. Where fewer than two such folds
    exist (a class of one patient), folds stratify rows by class alone: candidates are then compared on patients of the
    training rows. A class of one row is in the training rows of all folds but one.

    Args:
        targets: class numbers, or scores; Shape (n,).
        groups: patient or slide of each row; Shape (n,).

    Returns:
        No folds where no row can be held out: one row, or one row of each class.
    """
    num_groups = len(np.unique(groups))
    rows = np.empty((len(targets), 0))
    if num_classes is None:
        if num_groups > 1:
            return list(GroupKFold(min(MOST_FOLDS, num_groups)).split(rows, groups=groups)), True
        return [], False
    counts = np.unique(targets, return_counts=True)[1]
    if counts.max() < 2:
        return [], False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        if num_groups < len(targets):
            for num in range(min(MOST_FOLDS, num_groups, counts.max()), 1, -1):
                folds = _not_empty(StratifiedGroupKFold(num).split(rows, targets, groups))
                if len(folds) > 1 and all(
                    len(np.unique(targets[learning])) == len(counts) for learning, _ in folds
                ):
                    return folds, True
        num = min(MOST_FOLDS, max(2, min(count for count in counts if count > 1)))
        folds = _not_empty(StratifiedKFold(num).split(rows, targets))
    return folds, num_groups == len(targets)


def _not_empty(folds: Iterable[Fold]) -> list[Fold]:
    return [fold for fold in folds if len(fold[0]) and len(fold[1])]


def _errors(
    candidate: Candidate,
    features: Features,
    targets: NDArray,
    num_classes: int | None,
    folds: Sequence[Fold],
) -> NDArray[np.float64]:
    """Errors of all held-out rows."""
    used = features[candidate.features]
    if candidate.learner == "forest":
        candidate = replace(candidate, setting=TREES_IN_FOLDS)
    errors = []
    for learning, held_out in folds:
        model = Model(candidate, {candidate.features: used[learning]}, targets[learning], num_classes)
        errors.append(errors_of(model.predict({candidate.features: used[held_out]}), targets[held_out]))
    return np.concatenate(errors)


def errors_of(predictions: NDArray, targets: NDArray) -> NDArray[np.float64]:
    """Squared distance of each row to the one-hot class (Brier 1950, 0..2), or to the score. Shape (n,).

    Args:
        predictions: Shape (n, K), probabilities, or (n, 1), scores.
        targets: Shape (n,).
    """
    num_classes = predictions.shape[1]
    wanted = targets[:, None] if num_classes == 1 else np.eye(num_classes)[targets]
    return np.square(predictions - wanted).sum(axis=1)
