"""Diagnoses of slides as labels, and models of slides, on simulated lymph nodes.

    python -m benchmarks.real.diagnoses --cache FOLDER --seeds 20 21 22 23 24

36 slides with a diagnosis teach, 24 others test. 60 random patches of the 36 slides are labeled; a mean over random
label subsets is one figure of a dataset. Intervals are Student's t over datasets.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import t as student_t
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from histo_monai.finetuning.class_means import ClassMeans
from histo_monai.finetuning.depth import WHOLE
from histo_monai.finetuning.heads.logistic import Logistic
from histo_monai.finetuning.heads.selected import SelectedHead
from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.finetuning.heads.unlabeled.self_training import (
    POSITIVE,
    HeadData,
    SlideKinds,
    Unlabeled,
    labels_alone,
)
from histo_monai.finetuning.learners import choose_model
from histo_monai.finetuning.top_patches import fit_top_patches, top_mean
from histo_monai.semisupervised.heads.diagnoses import Diagnoses
from histo_monai.semisupervised.settings import DiagnosesSettings
from histo_monai.slides.tiles.grid import Grid
from histo_monai.utils.process.products import product
from histo_monai.utils.randomness import generator
from histo_monai.wsi.diagnosis.classifier import SlideClassifier
from histo_monai.wsi.diagnosis.features import slide_features
from histo_monai.wsi.heatmaps.heatmap import Heatmap
from histo_monai.wsi.mil.bags import Bags
from histo_monai.wsi.mil.settings import MilSettings
from histo_monai.wsi.mil.training import teach

from .simulated import PATCH_PX
from .simulated_datasets import MPP, NUM_SLIDES, Simulated, read_simulated

NUM_LABELS, NUM_FOLDS = 60, 3
SETTINGS = DiagnosesSettings(prior=0.3, label_weight=0.5, negative_label_weight=0.1, strength=0.01)
FOUR = ("max_probability", "q99_probability", "largest_area_mm2_t50", "tissue_share_t50")
ATTENTION = {
    "attention, committed recipe": MilSettings(5, 30, 1e-3, 1e-2, 64, 0.25, 2048),
    "attention, lr 3e-3, decay 1, 16 hidden, 40 epochs": MilSettings(5, 40, 3e-3, 1.0, 16, 0.25, 2048),
}
Scores = NDArray[np.float64]


Model = Callable[["Task", NDArray, NDArray], Scores]
"""Dataset, labeled rows and training slides -> scores of all patches."""


class Task:
    """A dataset with standardized features, a label budget, and `per_slide` unlabeled patches of each slide, or all.

    Attributes:
        accepted: of each fit with diagnoses, whether the safeguard accepted them.
    """

    def __init__(self, simulated: Simulated, per_slide: int | None = None) -> None:
        self.simulated = simulated
        order = generator(0, "unlabeled").permutation(len(simulated.slides))
        in_slide = pd.Series(order).groupby(simulated.slides[order]).cumcount()
        self.unlabeled = np.sort(order[in_slide < (per_slide or len(order))])
        self.accepted: list[bool] = []
        raw = simulated.features[WHOLE]
        own = raw[simulated.slides < NUM_SLIDES]
        self.rows = (raw - own.mean(axis=0)) / np.maximum(own.std(axis=0), 1e-6)
        self.targets = simulated.is_tumor.astype(np.int64)
        self.num_slides = len(simulated.diagnoses)
        self.test = np.flatnonzero(simulated.slides >= NUM_SLIDES)

    def subset(self, seed: int, number: int = NUM_LABELS) -> NDArray[np.intp]:
        """Random training patches with at least one of tumor."""
        known = np.flatnonzero(self.simulated.slides < NUM_SLIDES)
        for attempt in range(1000):
            some = generator(seed, "labels", attempt).choice(known, number, replace=False)
            if 0 < self.targets[some].sum() < number:
                return some
        raise ValueError("no tumor")

    def of_slides(self, scores: Scores, number: int = 1) -> Scores:
        """Mean of the highest scores of each test slide."""
        slides = self.simulated.slides[self.test]
        return np.array(
            [np.sort(scores[slides == k])[-number:].mean() for k in range(NUM_SLIDES, self.num_slides)]
        )


def class_means(task: Task, labeled: NDArray, slides: NDArray) -> Scores:
    """Scores of all patches; above 0 is tumor. As of all functions with these arguments."""
    model = ClassMeans(0.2).fit(task.rows[labeled], task.targets[labeled])
    return product(task.rows / np.linalg.norm(task.rows, axis=1, keepdims=True), model.means_.T) @ [-1.0, 1.0]


def selected(task: Task, labeled: NDArray, slides: NDArray) -> Scores:
    """The head that cross-validation selects."""
    return _log_odds(labels_alone(_data(task, labeled, slides)).head, task)


def negatives(task: Task, labeled: NDArray, slides: NDArray) -> Scores:
    """Logistic regression of the labels and all patches of normal slides."""
    rest = _others(task, labeled, slides)
    rest = rest[~task.simulated.diagnoses[task.simulated.slides[rest]]]
    targets, every = task.targets[labeled], np.concatenate([labeled, rest])
    counts = np.bincount(targets)
    weights = np.concatenate(
        [np.where(targets == 1, 1 / counts[1], 0.1 / counts[0]), np.full(len(rest), 0.9 / len(rest))]
    )
    of_rows = np.concatenate([targets, np.zeros(len(rest), np.int64)])
    model = Logistic.fit(task.rows[every], of_rows, 2, weights * len(labeled) / 2, [0.01])[0]
    return _difference(model.outputs(task.rows))


def diagnoses(task: Task, labeled: NDArray, slides: NDArray) -> Scores:
    """The student `diagnoses`."""
    fitted = Diagnoses.fit_head(_data(task, labeled, slides), SETTINGS)
    task.accepted.append(fitted.is_accepted)
    return _log_odds(fitted.head, task)


def _data(task: Task, labeled: NDArray, slides: NDArray) -> HeadData:
    raw, names = task.simulated.features[WHOLE], task.simulated.slides.astype(str)
    rest = _others(task, labeled, slides)
    kinds = task.simulated.diagnoses[task.simulated.slides[rest]].astype(np.int64)
    unlabeled = Unlabeled({WHOLE: raw[rest]}, names[rest], SlideKinds(names[rest], kinds, POSITIVE))
    labels = Labels(task.targets[labeled], names[labeled], 2)
    return HeadData({WHOLE: raw[labeled]}, labels, unlabeled, SelectionSettings(), 0)


def _log_odds(head: SelectedHead, task: Task) -> Scores:
    negative, positive = np.maximum(head.predict({WHOLE: task.simulated.features[WHOLE]}).T, 1e-9)
    return np.log(positive / negative)


def top_patches(task: Task) -> Scores:
    """`fit_top_patches` on the diagnoses alone."""
    bags = [task.rows[task.simulated.slides == k] for k in range(NUM_SLIDES)]
    model = fit_top_patches(bags, task.simulated.diagnoses[:NUM_SLIDES].astype(np.int64), 2)
    return _difference(model.outputs(task.rows))


def _difference(outputs: Scores) -> Scores:
    return outputs[:, 1] - outputs[:, 0]


def _others(task: Task, labeled: NDArray, slides: NDArray) -> NDArray[np.intp]:
    own = task.unlabeled[np.isin(task.simulated.slides[task.unlabeled], slides)]
    return np.setdiff1d(own, labeled)


def patch_figures(task: Task, subsets: Sequence[int]) -> dict[str, dict[str, float]]:
    """Model -> metric -> mean over label subsets."""
    teaching = np.arange(NUM_SLIDES)
    given = {subset: task.subset(subset) for subset in subsets}
    more = {subset: task.subset(subset, NUM_LABELS + NUM_SLIDES) for subset in subsets}
    models = {
        "60 patches, class means": [class_means(task, some, teaching) for some in given.values()],
        "60 patches, selected head": [selected(task, some, teaching) for some in given.values()],
        "96 patches, selected head": [selected(task, some, teaching) for some in more.values()],
        "60 patches + normal slides": [negatives(task, some, teaching) for some in given.values()],
        "60 patches + 36 diagnoses": [diagnoses(task, some, teaching) for some in given.values()],
        "36 diagnoses": [top_patches(task)],
    }
    return {name: _mean([_measured(task, scores) for scores in found]) for name, found in models.items()}


def _measured(task: Task, scores: Scores) -> dict[str, float]:
    targets, of_test = task.targets[task.test], scores[task.test]
    is_positive = task.simulated.diagnoses[NUM_SLIDES:]
    return {
        "balanced accuracy": balanced_accuracy_score(targets, of_test > 0),
        "patch AUC": roc_auc_score(targets, of_test),
        "slide AUC, highest patch": roc_auc_score(is_positive, task.of_slides(of_test)),
    }


def _mean(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in figures])) for name in figures[0]}


class _Bags(Bags):
    def __init__(self, simulated: Simulated) -> None:
        raw, names = simulated.features[WHOLE], range(len(simulated.diagnoses))
        self._features = [torch.from_numpy(raw[simulated.slides == k]) for k in names]
        self.sizes, self.num_features = [len(bag) for bag in self._features], raw.shape[1]
        self.paths = [Path()] * len(self._features)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._features[index]


def slide_figures(task: Task, subsets: Sequence[int]) -> dict[str, dict[str, float]]:
    """Model -> slide AUC."""
    bags, labels = _Bags(task.simulated), task.simulated.diagnoses.astype(np.int64)
    teaching, names = np.arange(NUM_SLIDES), ("mean", "mean_and_sd")
    summaries = bags.summaries()
    scores: dict[str, list[Scores]] = {}
    for title, some in (("linear, means", names[:1]), ("linear, means or means and SD (committed)", names)):
        known = {name: summaries[name][:NUM_SLIDES] for name in some}
        chosen = choose_model(known, labels[:NUM_SLIDES], teaching, 2, names=some, learners=("linear",))
        scores[title] = [chosen.model.predict({name: summaries[name][NUM_SLIDES:] for name in some})[:, 1]]
    for title, settings in ATTENTION.items():
        network, _ = teach(
            bags, teaching, labels[:NUM_SLIDES], 2, settings, seed=0, device=torch.device("cpu")
        )
        logits = torch.stack([network(bags[k])[0] for k in range(NUM_SLIDES, len(labels))])
        scores[title] = [_difference(logits.numpy())]
    scores["linear, top patches"] = [_pooled(task, top_patches(task))]
    for title, model in (("selected head", selected), ("60 + 36 diagnoses", diagnoses)):
        tables = [_map_features(task, task.subset(subset), model) for subset in subsets]
        scores[f"map of {title}: SVM, 33 features"] = [_svm(x, labels) for x in tables]
        scores[f"map of {title}: logistic, four numbers"] = [_four(x, labels) for x in tables]
        scores[f"map of {title}: highest"] = [x["max_probability"].to_numpy()[NUM_SLIDES:] for x in tables]
    return {
        title: {"slide AUC": float(np.mean([roc_auc_score(labels[NUM_SLIDES:], x) for x in found]))}
        for title, found in scores.items()
    }


def _pooled(task: Task, scores: Scores) -> Scores:
    slides = range(NUM_SLIDES, task.num_slides)
    bags = [torch.from_numpy(scores[task.simulated.slides == k])[:, None] for k in slides]
    return np.array([float(top_mean(bag, 10)) for bag in bags])


def _map_features(task: Task, labeled: NDArray, model: Model) -> pd.DataFrame:
    """Features of maps; training slides are mapped by models without their labels, patches and diagnosis."""
    simulated, teaching = task.simulated, np.arange(NUM_SLIDES)
    logits = model(task, labeled, teaching)
    fold_of = teaching // 2 % NUM_FOLDS  # normal slides alternate with the others
    for fold in range(NUM_FOLDS):
        rest = labeled[fold_of[simulated.slides[labeled]] != fold]
        if task.targets[rest].any():  # else all labels of tumor are on the fold's slides
            is_held_out = np.isin(simulated.slides, teaching[fold_of == fold])
            logits[is_held_out] = model(task, rest, teaching[fold_of != fold])[is_held_out]
    values = (1 / (1 + np.exp(-np.clip(logits, -50, 50)))).astype(np.float32)
    rows = []
    for k in range(task.num_slides):
        own = simulated.slides == k
        side = int(simulated.cells[own].max() + 1) * PATCH_PX
        grid = Grid(PATCH_PX * MPP, MPP, (side, side))
        tissue = np.ones(int(own.sum()), np.float32)
        rows.append(slide_features(Heatmap(grid, simulated.cells[own], tissue, {"m": values[own]}), "m"))
    return pd.DataFrame(rows)


def _svm(table: pd.DataFrame, labels: NDArray) -> Scores:
    grid = {"C": [0.01, 0.1, 1.0, 10.0, 100.0], "gamma": [0.001, 0.01, 0.1]}
    known = table.iloc[:NUM_SLIDES]
    fitted = SlideClassifier.fit(known, labels[:NUM_SLIDES], kernel="rbf", folds=5, seed=0, **grid)
    return fitted.scores(table.iloc[NUM_SLIDES:])


def _four(table: pd.DataFrame, labels: NDArray) -> Scores:
    numbers = table[list(FOUR)].to_numpy()
    own = numbers[:NUM_SLIDES]
    numbers = (numbers - own.mean(axis=0)) / np.maximum(own.std(axis=0), 1e-9)
    model = LogisticRegression(C=0.3, class_weight="balanced").fit(numbers[:NUM_SLIDES], labels[:NUM_SLIDES])
    return np.asarray(model.decision_function(numbers[NUM_SLIDES:]))


def interval(values: NDArray) -> str:
    """Mean and 95 % interval of Student's t."""
    half = student_t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():+.3f} ({values.mean() - half:+.3f} to {values.mean() + half:+.3f})"


def main(argv: Sequence[str] | None = None) -> int:
    """Print figures of each dataset, means, and paired differences."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.real.diagnoses", description=__doc__)
    options.add_argument("--cache", type=Path, required=True, help="folder of features")
    options.add_argument("--seeds", type=int, nargs="+", required=True, help="of the datasets")
    options.add_argument("--side-px", type=int, default=1536, help="side of the slides, at 1 µm/px")
    options.add_argument(
        "--subsets", type=int, nargs="+", default=[0, 1, 2, 3, 4], help="seeds of the label subsets"
    )
    options.add_argument(
        "--map-subsets",
        type=int,
        nargs="*",
        default=[0, 1],
        help="seeds of the label subsets of maps; none: no slide models",
    )
    options.add_argument("--per-slide", type=int, help="unlabeled patches of each slide; else all")
    given = options.parse_args(argv)
    torch.set_num_threads(1)
    found: dict[str, list[pd.DataFrame]] = {"patches": [], "slides": []}
    for seed in given.seeds:
        task = Task(read_simulated(given.cache, seed, given.side_px), given.per_slide)
        figures = {"patches": patch_figures(task, given.subsets)}
        print(f"diagnoses accepted: {sum(task.accepted)} of {len(task.accepted)}")
        if given.map_subsets:
            figures["slides"] = slide_figures(task, given.map_subsets)
        for kind, table in figures.items():
            found[kind].append(pd.DataFrame(table).T)
            print(f"seed {seed}\n{found[kind][-1].round(3).to_string()}", flush=True)
    for kind, reference in (
        ("patches", "60 patches, selected head"),
        ("slides", "linear, means or means and SD (committed)"),
    ):
        for metric in found[kind][0] if found[kind] else ():
            values = pd.DataFrame([table[metric] for table in found[kind]])
            print(f"\n{metric}, {len(values)} datasets; difference from: {reference}")
            for name, column in values.items():
                more = interval((column - values[reference]).to_numpy()) if len(values) > 1 else ""
                print(f"{name:52} {column.mean():.3f}  {more}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
