"""Abstention on real tissue: coverage on left-out patients, single answers and their accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import dependence_groups
from histo_monai.evaluation.conformal import NONE, label_scores, prediction_sets, single_answers, thresholds
from histo_monai.evaluation.metrics import Estimate, Resampling
from histo_monai.finetuning.heads.selection import Labels, select_head
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.utils.process.products import product

from .doubtful import Trial, held_out
from .figures import REPLICATES, SEED, Replicates, estimate, subset_weights
from .tasks import read_patches, split_rows, targets_of

RATES = (0.1, 0.2)


class Fitted(NamedTuple):
    """Predictions of a head for its labels and for left-out patients.

    Attributes:
        probabilities: of the labels, by heads without the patient; Shape (n, K).
        targets: of the labels.
        patients: of the labels.
        rows: numbers of the left-out patients' patches.
        tested: their probabilities by the head with all labels.
    """

    probabilities: NDArray
    targets: NDArray[np.int64]
    patients: NDArray
    rows: NDArray[np.intp]
    tested: NDArray


def fitted(trial: Trial, fold: int, subset: int, budget: int) -> Fitted:
    """Heads of one fold, as `finetune` fits them."""
    patches = read_patches(trial.real, trial.task)
    split = split_rows(trial.task, patches, fold, subset, budget)
    features = trial.source.features(trial.real, trial.cache, trial.task, fold)
    targets = targets_of(trial.task, patches)[split.labeled]
    owners = dependence_groups(patches).astype(str)

    def of(rows: NDArray[np.intp]) -> dict[str, NDArray]:
        return {name: every[rows] for name, every in features.items()}

    labels = Labels(targets, owners[split.labeled], len(trial.task.classes or ()))
    probabilities = held_out(of(split.labeled), labels, of(split.unlabeled), owners[split.unlabeled], subset)
    head = select_head(of(split.labeled), labels, of(split.unlabeled), SelectionSettings(), subset)
    return Fitted(probabilities, targets, labels.patients, split.tested, head.predict(of(split.tested)))


def per_patient(scores: NDArray, patients: NDArray, rate: float) -> float:
    """Threshold that holds for a new patient, of any number of labels: 1, everything, of less than 1 / rate - 1.

    Source: Lee, Barber & Willett 2023, hierarchical conformal prediction.
    """
    num = len(np.unique(patients))
    _, owners, counts = np.unique(patients, return_inverse=True, return_counts=True)
    order = np.argsort(scores)
    reached = np.cumsum(1 / ((num + 1) * counts[owners[order]]))
    place = np.searchsorted(reached, 1 - rate - 1e-9)
    return float(scores[order[place]]) if place < len(scores) else 1.0


def unweighted(scores: NDArray, patients: NDArray, rate: float) -> float:
    """Threshold with every label counting the same."""
    return thresholds(scores, np.arange(len(scores)), [rate])[0]


def weighted(scores: NDArray, patients: NDArray, rate: float) -> float:
    """Threshold of the package."""
    return thresholds(scores, patients, [rate])[0]


THRESHOLDS = {"patients alike": weighted, "labels alike": unweighted, "for a new patient": per_patient}


def table(trial: Trial, budgets: Sequence[int], subsets: Sequence[int]) -> Iterator[str]:
    """Rows of a table: coverage, single answers, their accuracy and that of all, with intervals."""
    patches = read_patches(trial.real, trial.task)
    owners, targets = dependence_groups(patches).astype(str), targets_of(trial.task, patches)
    yield "| labels | error rate | limit | coverage | single answers | their accuracy | accuracy of all |"
    yield "|" + "---|" * 7
    for budget in budgets:
        of_subsets = [
            [fitted(trial, f, subset, budget) for f in range(trial.task.num_folds)] for subset in subsets
        ]
        for rate in RATES:
            for name, threshold in THRESHOLDS.items():
                flags = []
                for heads in of_subsets:
                    columns = np.zeros((len(targets), 4))
                    for head in heads:
                        scores = label_scores(head.probabilities, head.targets)
                        limit = threshold(scores, head.patients, rate)
                        true = targets[head.rows]
                        answers = single_answers(head.tested, limit)
                        columns[head.rows, 0] = prediction_sets(head.tested, limit)[
                            np.arange(len(true)), true
                        ]
                        columns[head.rows, 1] = answers != NONE
                        columns[head.rows, 2] = answers == true
                        columns[head.rows, 3] = head.tested.argmax(axis=1) == true
                    flags.append(columns[targets >= 0])
                estimates = _estimates(flags, owners[targets >= 0])
                yield f"| {budget} | {rate:g} | {name} | {' | '.join(estimates)} |"


def _estimates(flags: Sequence[NDArray[np.float64]], owners: NDArray) -> list[str]:
    """Coverage, single answers, their accuracy and that of all, patients alike; intervals resample both factors."""
    resampling = Resampling(len(owners), owners, seed=SEED, num_replicates=REPLICATES)
    groups, num = resampling.group_of_row, resampling.num_groups
    sizes = np.bincount(groups, minlength=num)
    means = [np.stack([np.bincount(groups, column, num) / sizes for column in of.T]) for of in flags]
    weights = subset_weights(len(flags))
    found = []
    for above, below in ((0, None), (1, None), (2, 1), (3, None)):

        def ratio(of: NDArray, counts: NDArray, above: int = above, below: int | None = below) -> NDArray:
            base = product(np.ones((1, num)) if below is None else of[[below]], counts)
            return np.asarray((product(of[[above]], counts) / np.where(base > 0, base, np.nan))[0])

        values = np.array([ratio(of, np.ones((num, 1)))[0] for of in means])
        replicates = np.stack(
            [np.concatenate([ratio(of, counts) for counts in resampling.blocks()]) for of in means]
        )
        mean = np.where(weights > 0, weights * replicates, 0.0).sum(axis=0)
        found.append(_words(estimate(Replicates(float(values.mean()), mean), resampling)))
    return found


def _words(of: Estimate) -> str:
    return f"{of.value:.3f} ({of.low:.2f} to {of.high:.2f})"
