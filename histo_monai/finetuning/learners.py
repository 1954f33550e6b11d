"""Learners of seconds, and which of them to take: cross-validation on the labels alone (scikit-learn)."""

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
"""Rows to learn from, and rows that are held out."""

MOST_FOLDS = 5
STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1)
"""Of the linear model: the inverse of its L2 penalty."""
MOST_ITERATIONS = 100
TREES, TREES_IN_FOLDS = 200, 50
"""Of a forest, and of those that are compared with other candidates: they cost a quarter and are hardly worse."""
MOST_ROWS_OF_A_TREE = 1000
UNKNOWN = 1e-3
"""Of a class that no label names, beside one whose logit is 0: what a network starts from, not what it ends with."""
NEIGHBORS = (1, 3, 7, 15, 31, 63)
TEMPERATURES = (0.2, 0.1, 0.05)
"""Of class means: cosines are divided by it before the softmax. It never changes which class is likeliest."""


@dataclass(frozen=True)
class Learner:
    """A kind of model and the settings that it is tried with.

    Attributes:
        settings: of equal scores the first is taken.
        classifier: setting and number of rows -> a model of classes, not fitted.
        regressor: the same for scores; None for a learner of classes alone.
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
    """One way to learn: from which features, with which learner of `LEARNERS`, at which of its settings."""

    features: str
    learner: str
    setting: float


class Model:
    """A candidate that has learned.

    Args:
        features: of the rows to learn from.
        targets: their classes by number, or scores; Shape (n,).
        num_classes: K; None for scores.
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
            model = DummyClassifier()  # A linear model takes two classes at least.
        with warnings.catch_warnings(), _no_flags():
            warnings.simplefilter("ignore", ConvergenceWarning)  # One that stopped early is scored as it is.
            self._model = model.fit(features[candidate.features], targets)

    def predict(self, features: Features) -> NDArray[np.float64]:
        """Shape (n, K): probabilities, 0 of a class without a label; or (n, 1): scores, cut to 0..1."""
        rows = features[self.candidate.features]
        with _no_flags():
            if self._num_classes is None:
                return np.clip(self._model.predict(rows), 0.0, 1.0).reshape(-1, 1).astype(np.float64)
            shares = np.zeros((len(rows), self._num_classes))
            shares[:, self._model.classes_] = self._model.predict_proba(rows)
        return shares

    def layer(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What a linear candidate has learned, as a layer of a network: features -> logits of K classes, or the score.

        The softmax of the logits is what `predict` gives. Those of classes sum to 0; one of a class without a label is
        log(`UNKNOWN`).

        Returns:
            Weights, Shape (K, D), and biases, Shape (K,); K = 1 for scores.
        """
        scaler, linear = self._model[0], self._model[-1]
        weights, biases = np.atleast_2d(linear.coef_), np.atleast_1d(linear.intercept_)
        if self._num_classes is not None:
            if len(weights) == 1:  # of two classes: the log odds of the second
                weights, biases = (
                    np.stack([-weights[0], weights[0]]) / 2,
                    np.stack([-biases[0], biases[0]]) / 2,
                )
            known_weights, known_biases, known = weights, biases, linear.classes_
            weights = np.zeros((self._num_classes, known_weights.shape[1]))
            biases = np.full(self._num_classes, np.log(UNKNOWN))
            weights[known], biases[known] = known_weights, known_biases
        weights = weights / scaler.scale_
        return weights, biases - product(weights, scaler.mean_)


def _no_flags() -> np.errstate:
    """Products of matrices raise flags that mean nothing on some machines, see `products`; scikit-learn makes some."""
    return np.errstate(divide="ignore", over="ignore", invalid="ignore")


@dataclass(frozen=True)
class Chosen:
    """What cross-validation chose, fitted to all labels.

    Attributes:
        model: the candidate of the lowest score.
        score: mean of `errors`; None without folds.
        num_folds: 0 where nothing can be held out; the first candidate is taken then.
        are_groups_apart: whether no patient or slide was on both sides of a fold.
        errors: of each held-out row, in the order of the folds: Brier score of classes, squared error of scores; the
            folds of the same rows are the same whatever is chosen among. Empty without folds.
        rows: their numbers.
    """

    model: Model
    score: float | None
    num_folds: int
    are_groups_apart: bool
    errors: NDArray[np.float64]
    rows: NDArray[np.intp]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    """Choose features, learner and setting by cross-validation on the labels, then learn from all of them.

    Every candidate predicts every labeled row once, from the folds that it is not in. The score is bounded and proper,
    so that a forest's hard 0 does not blow it up. Of equal ones the first is taken: strong penalties, few neighbors.

    Args:
        features: of the labeled rows.
        targets: classes by number, int64, or scores 0..1; Shape (n,).
        groups: patient or slide of each row; Shape (n,).
        num_classes: K; None for scores.
        names: of the features to choose among.
        learners: names in `LEARNERS` to choose among.
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
    """Folds of labeled rows, five at most, and whether they keep groups apart.

    Groups are kept apart, classes spread evenly, in as many folds as leave every class to learn from in each. Where two
    such folds cannot be had (a class of one patient), rows are dealt out by class alone: candidates are then compared
    on patients they know, which is better than not at all. A class of one row is learned from in all folds but one.

    Args:
        targets: classes by number, or scores; Shape (n,).
        groups: patient or slide of each row; Shape (n,).
        num_classes: K; None for scores.

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
    """Of all held-out rows."""
    used = features[candidate.features]
    if candidate.learner == "forest":
        candidate = replace(candidate, setting=TREES_IN_FOLDS)
    errors = []
    for learning, held_out in folds:
        model = Model(candidate, {candidate.features: used[learning]}, targets[learning], num_classes)
        errors.append(errors_of(model.predict({candidate.features: used[held_out]}), targets[held_out]))
    return np.concatenate(errors)


def errors_of(predictions: NDArray, targets: NDArray) -> NDArray[np.float64]:
    """Of each row: the squared distance to the one-hot class (Brier 1950, 0..2), or to the score. Shape (n,).

    Args:
        predictions: Shape (n, K), probabilities, or (n, 1), scores.
        targets: Shape (n,).
    """
    num_classes = predictions.shape[1]
    wanted = targets[:, None] if num_classes == 1 else np.eye(num_classes)[targets]
    return np.square(predictions - wanted).sum(axis=1)
