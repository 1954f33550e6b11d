"""Selection of a head by cross-validation inside the label budget, with folds of whole patients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from histo_monai.data.tables.label_folds import deal_folds
from histo_monai.finetuning.heads import HEADS
from histo_monai.finetuning.heads.calibration import log_losses, mixture_weights, temperature_of
from histo_monai.finetuning.heads.features import (
    COLOR_NAME,
    CONCATENATED,
    WITH_FIELD,
    Depths,
    standardizations,
)
from histo_monai.finetuning.heads.protocol import HeadModel
from histo_monai.finetuning.heads.rows import balanced
from histo_monai.finetuning.heads.selected import Candidate, Part, SelectedHead
from histo_monai.finetuning.heads.settings import HeadSettings, SelectionSettings
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

LEAST_WEIGHT = 0.02
"""Least weight of a part in a stack."""


@dataclass(frozen=True)
class Labels:
    """The label budget.

    Attributes:
        targets: class numbers, int64, or scores 0..1; Shape (n,).
        patients: patient of each row, else its slide; texts, Shape (n,).
        num_classes: K; None for scores.
        weights: weight of each row, above 0, Shape (n,); None: equal weights.
    """

    targets: NDArray
    patients: NDArray
    num_classes: int | None
    weights: NDArray | None = None


@dataclass(frozen=True)
class Compared:
    """A candidate and its held-out outputs.

    Attributes:
        outputs: logits of the classes with a label, Shape (n, known), or scores, Shape (n, 1).
        temperature: temperature of the lowest loss; 1 for scores.
        losses: log loss of each row at `temperature`, or squared error. Shape (n,).
    """

    candidate: Candidate
    outputs: NDArray
    temperature: float
    losses: NDArray


def select_head(
    features: Depths, labels: Labels, unlabeled: Depths, settings: SelectionSettings, seed: int
) -> SelectedHead:
    """The heads selected by cross-validation over patients, fitted to all labels.

    If the labels cannot be cross-validated (a class of one patient), the default head is used with its first setting.

    Args:
        features: features of the labeled rows at every depth, float32, Shape (n, D_k).
        labels: labels of these rows.
        unlabeled: features of all training patches, for mean and standard deviation; no label is read.
        settings: heads, their grids and the rule.
        seed: seed of the patient folds.

    Raises:
        InputError: all labels are of one class.
        ValueError: numbers of rows differ.
    """
    targets, known = _known(labels)
    if any(len(rows) != len(targets) for rows in features.values()):
        raise ValueError(f"{len(targets)} labels for {[rows.shape for rows in features.values()]}")
    num_known = None if known is None else len(known)
    weights = np.ones(len(targets)) if labels.weights is None else labels.weights
    made = standardizations(unlabeled, settings.depths)
    rows = {depth: each.of(features) for depth, each in made.items()}
    names = settings.score_heads if num_known is None else settings.class_heads
    grids = {name: _settings(name, settings.heads).grid() for name in names}
    fold_of, why_none = patient_folds(labels, settings.num_folds, seed)
    counted = weights if num_known is None else balanced(targets, weights)
    compared: list[Compared] = []
    if not why_none:
        for depth, points in rows.items():
            for name, grid in grids.items():
                held_out = _held_out(name, grid, points, targets, weights, num_known, fold_of)
                compared += [
                    _measured(Candidate(name, setting, depth), outputs, targets, counted, num_known)
                    for setting, outputs in zip(grid, held_out, strict=True)
                ]
        mixture = _mixture(compared, targets, labels.patients, counted, num_known, settings.rule)
    else:
        no_default = {WITH_FIELD, *([CONCATENATED] if COLOR_NAME in features else [])}
        depth = ([name for name in rows if name not in no_default] or list(rows))[-1]
        mixture = [(Candidate(names[0], grids[names[0]][0], depth), 1.0, 1.0)]
    parts = []
    for candidate, temperature, weight in mixture:
        fit = HEADS[candidate.head].fit
        model = fit(rows[candidate.depth], targets, num_known, weights, [candidate.setting])[0]
        parts.append(Part(candidate, made[candidate.depth], model, temperature, weight))
    losses = {each.candidate: float(np.average(each.losses, weights=counted)) for each in compared}
    return SelectedHead(tuple(parts), known, labels.num_classes, losses, why_none)


def _known(labels: Labels) -> tuple[NDArray, NDArray[np.int64] | None]:
    """Targets, numbered among the classes with a label, and the numbers of these classes."""
    if labels.num_classes is None:
        return np.asarray(labels.targets, np.float64), None
    known, targets = np.unique(labels.targets, return_inverse=True)
    if len(known) < 2:
        raise InputError(f"labels: all {len(targets)} are of one class. Fix: label patches of another.")
    return targets.astype(np.int64), known.astype(np.int64)


def _settings(name: str, given: Mapping[str, HeadSettings]) -> Any:
    return given[name] if name in given else HEADS.settings(name)()


def patient_folds(labels: Labels, num_folds: int, seed: int) -> tuple[NDArray[np.int64], str]:
    """Fold of each labeled row (`deal_folds`), -1 without folds; and the reason for no folds."""
    names = [] if labels.num_classes is None else labels.targets.tolist()
    table = pd.DataFrame(
        {
            "patient_id": np.asarray(labels.patients).astype(str),
            "slide_id": "",
            "patch_id": "",
            "label": [str(number) for number in names] or "",
        }
    )
    folds = deal_folds(table, table, num_folds, generator(seed, "head folds"))
    return folds.of(table), folds.why_none


def _held_out(
    name: str,
    grid: Sequence[Any],
    rows: NDArray,
    targets: NDArray,
    weights: NDArray,
    num_known: int | None,
    fold_of: NDArray[np.int64],
) -> list[NDArray[np.float64]]:
    """Outputs of each setting for every row, by models without the row's patient."""
    outputs = [np.empty((len(rows), num_known or 1)) for _ in grid]
    for fold in np.unique(fold_of):
        learning, held_out = fold_of != fold, fold_of == fold
        models: list[HeadModel] = HEADS[name].fit(
            rows[learning], targets[learning], num_known, weights[learning], grid
        )
        for of_setting, model in zip(outputs, models, strict=True):
            of_setting[held_out] = model.outputs(rows[held_out])
    return outputs


def _measured(
    candidate: Candidate, outputs: NDArray, targets: NDArray, counted: NDArray, num_known: int | None
) -> Compared:
    if num_known is None:
        return Compared(candidate, outputs, 1.0, np.square(np.clip(outputs[:, 0], 0.0, 1.0) - targets))
    temperature = temperature_of(outputs, targets, counted)
    return Compared(candidate, outputs, temperature, log_losses(outputs, targets, temperature))


def _mixture(
    compared: Sequence[Compared],
    targets: NDArray,
    patients: NDArray,
    counted: NDArray,
    num_known: int | None,
    rule: str,
) -> list[tuple[Candidate, float, float]]:
    """Candidates, temperatures and weights, by a rule of `SelectionSettings`."""

    def loss(each: Compared) -> float:
        return float(np.average(each.losses, weights=counted))

    of_heads: dict[str, list[Compared]] = {}
    for each in compared:
        of_heads.setdefault(each.candidate.head, []).append(each)
    bests = [min(group, key=loss) for group in of_heads.values()]
    best = min(bests, key=loss)
    if rule == "one_se":
        default = bests[0]
        difference = default.losses - best.losses
        error = clustered_error(difference, patients, counted)
        best = default if np.average(difference, weights=counted) <= error else best
    if rule in ("best", "one_se"):
        return [(best.candidate, best.temperature, 1.0)]
    mixture = np.full(len(bests), 1 / len(bests))
    if rule == "stack" and num_known is not None:
        inside = np.arange(len(targets))
        likelihoods = [softmax(b.outputs / b.temperature, axis=1)[inside, targets] for b in bests]
        mixture = mixture_weights(np.stack(likelihoods, axis=1), counted)
    elif rule == "stack":
        inverse = 1 / np.maximum([loss(each) for each in bests], np.finfo(float).tiny ** 0.5)
        mixture = inverse / inverse.sum()
    mixture = np.where(mixture >= LEAST_WEIGHT, mixture, 0.0)
    mixture /= mixture.sum()
    return [
        (each.candidate, each.temperature, float(weight))
        for each, weight in zip(bests, mixture, strict=True)
        if weight > 0
    ]


def clustered_error(values: NDArray, patients: NDArray, weights: NDArray) -> float:
    """Standard error of a weighted mean over rows that are correlated within a patient; infinite for one patient.

    Square root of G / (G - 1) times the sum over G patients of their squared weighted sums of deviations; the weights
    sum to 1 (Liang and Zeger 1986).
    """
    relative = weights / weights.sum()
    number, of_patient = np.unique(patients, return_inverse=True)
    if len(number) < 2:
        return float("inf")
    sums = np.bincount(of_patient, relative * (values - np.sum(relative * values)))
    return float(np.sqrt(len(number) / (len(number) - 1) * np.square(sums).sum()))
