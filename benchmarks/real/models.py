"""The models: what predicts the patches of the patients that a fold leaves out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import dependence_groups
from histo_monai.evaluation.baselines.colors import COLORS
from histo_monai.evaluation.baselines.models import COLOR, LEARNED, MAJORITY
from histo_monai.finetuning.class_means import standardized
from histo_monai.finetuning.heads.selection import Labels, select_head
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.finetuning.learners import choose_model
from histo_monai.utils.randomness import generator
from histo_monai.wsi.typical import choose_typical

from .encoders import description_of, keeps_statistics
from .features import ColorSource, EncoderSource, FileSource, Source, WithColor
from .surroundings import PLACES, WithField
from .tasks import RealTask, Split, labeled_rows_of, targets_of


@dataclass(frozen=True)
class Problem:
    """One training.

    Attributes:
        real: folder of the zips.
        cache: folder of features and encoders.
        task: what is predicted.
        patches: all of the task's dataset, see `tasks.read_patches`; of the labels, those of `split.labeled` count.
        fold: number of the fold.
        subset: seed of the label subset, and of all else that is random.
        split: rows of the fold.
    """

    real: Path
    cache: Path
    task: RealTask
    patches: pd.DataFrame
    fold: int
    subset: int
    split: Split

    @property
    def labeled_targets(self) -> NDArray:
        """Of the labeled rows."""
        return targets_of(self.task, self.patches.iloc[self.split.labeled])

    @property
    def labelable(self) -> NDArray[np.intp]:
        """Training patients' rows that have a label, in the budget or not."""
        rows = self.split.unlabeled
        return rows[labeled_rows_of(self.task, self.patches)[rows]]

    @property
    def num_classes(self) -> int | None:
        """K; None for scores."""
        return None if self.task.classes is None else len(self.task.classes)


class BenchmarkModel(Protocol):
    """Labeled and unlabeled patches of training patients -> predictions of the others' patches."""

    def is_for(self, task: RealTask) -> bool:
        """Whether it predicts what the task asks for."""

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """Of all that decides the predictions, beside fold, subset and budget; other predictions are not reused."""

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """Compute what all trainings of a fold use."""

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """Of `problem.split.tested`: probabilities, Shape (n, K), or scores, Shape (n, 1)."""


@dataclass(frozen=True)
class Majority:
    """Class proportions among the labels, whatever the patch shows; of scores their mean."""

    def is_for(self, task: RealTask) -> bool:
        """Every task."""
        return True

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """A version."""
        return "majority 1"

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """Nothing."""

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`."""
        targets, num_classes = problem.labeled_targets, problem.num_classes
        if num_classes is None:
            row = np.array([targets.mean()])
        else:
            row = np.bincount(targets, minlength=num_classes) / len(targets)
        return np.tile(row, (len(problem.split.tested), 1))


@dataclass(frozen=True)
class Frozen:
    """Learners of seconds on features that no label changed; cross-validation inside the budget chooses.

    Features are standardized on all patches of the training patients, labeled or not.

    Attributes:
        source: of the features.
        learners: names in `finetuning.learners.LEARNERS` to choose among.
        names: of the features to choose among; empty for all of the source's.
    """

    source: Source
    learners: tuple[str, ...]
    names: tuple[str, ...] = ()
    is_standardized: bool = True

    def is_for(self, task: RealTask) -> bool:
        """Class means know no scores."""
        return task.classes is not None or "means" not in self.learners

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `BenchmarkModel`."""
        about = ["frozen 1", self.source.digest(real, task, fold), *self.learners, *self.names]
        return hashlib.sha256("\n".join(about).encode()).hexdigest()

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """The features."""
        self.source.features(real, cache, task, fold)

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`."""
        split = problem.split
        features = self.source.features(problem.real, problem.cache, problem.task, problem.fold)
        features = {name: features[name] for name in self.names or features}
        if self.is_standardized:
            features = standardized(features, split.unlabeled)
        chosen = choose_model(
            {name: rows[split.labeled] for name, rows in features.items()},
            problem.labeled_targets,
            dependence_groups(problem.patches.iloc[split.labeled]),
            problem.num_classes,
            names=list(features),
            learners=self.learners,
        )
        return chosen.model.predict({name: rows[split.tested] for name, rows in features.items()})


@dataclass(frozen=True)
class Selected:
    """The head of `finetuning.heads` that cross-validation inside the budget selects, on frozen features.

    Attributes:
        source: of the features.
        settings: heads and rule.
    """

    source: Source
    settings: SelectionSettings = field(default_factory=SelectionSettings)

    def is_for(self, task: RealTask) -> bool:
        """Every task; of the field around patches those that have it."""
        return not isinstance(self.source, WithField) or task.dataset in PLACES

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `BenchmarkModel`."""
        about = f"selected 1\n{self.source.digest(real, task, fold)}\n{self.settings}"
        return hashlib.sha256(about.encode()).hexdigest()

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """The features."""
        self.source.features(real, cache, task, fold)

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`."""
        split = problem.split
        features = self.source.features(problem.real, problem.cache, problem.task, problem.fold)
        labeled, unlabeled, tested = (
            {name: rows[numbers] for name, rows in features.items()}
            for numbers in (split.labeled, split.unlabeled, split.tested)
        )
        groups = dependence_groups(problem.patches.iloc[split.labeled])
        labels = Labels(problem.labeled_targets, groups, problem.num_classes)
        return select_head(labeled, labels, unlabeled, self.settings, problem.subset).predict(tested)


@dataclass(frozen=True)
class Chosen:
    """A model that is given other labels than a random subset: as many, of patches that the features choose.

    Attributes:
        inner: the model.
        source: of the features that choose.
        name: of the features; empty for the last of the source.
        random_fraction: fraction of the labels that stay random.
    """

    inner: BenchmarkModel
    source: Source
    random_fraction: float = 0.0
    name: str = ""

    def is_for(self, task: RealTask) -> bool:
        """The tasks of the model."""
        return self.inner.is_for(task)

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `BenchmarkModel`."""
        about = f"chosen 1\n{self.inner.digest(real, task, fold)}\n{self.source.digest(real, task, fold)}"
        return hashlib.sha256(f"{about}\n{self.random_fraction}\n{self.name}".encode()).hexdigest()

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """What the model needs, and the features."""
        self.inner.prepare(real, cache, task, fold)
        self.source.features(real, cache, task, fold)

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`; patches are chosen among all that have a label, which nothing looks at."""
        split, pool = problem.split, problem.labelable
        features = self.source.features(problem.real, problem.cache, problem.task, problem.fold)
        rows = features[self.name or list(features)[-1]]
        num = len(split.labeled)
        at_random = generator(problem.subset, "random share").permutation(split.labeled)
        random_rows = at_random[: round(self.random_fraction * num)]
        open_rows = np.setdiff1d(pool, random_rows)
        labeled_features = rows[random_rows] if len(random_rows) else None
        found = choose_typical(
            rows[open_rows], num - len(random_rows), seed=problem.subset, labeled_features=labeled_features
        )
        labeled = np.sort(np.concatenate([random_rows, open_rows[found]]))
        return self.inner.predict(replace(problem, split=replace(split, labeled=labeled)))


@dataclass(frozen=True)
class PerPatient:
    """A model that is given equally many random labels of each patient, one more or less.

    Attributes:
        inner: the model.
    """

    inner: BenchmarkModel

    def is_for(self, task: RealTask) -> bool:
        """The tasks of the model."""
        return self.inner.is_for(task)

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `BenchmarkModel`."""
        return hashlib.sha256(f"per patient 1\n{self.inner.digest(real, task, fold)}".encode()).hexdigest()

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """What the model needs."""
        self.inner.prepare(real, cache, task, fold)

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`."""
        pool = generator(problem.subset, "per patient", problem.fold).permutation(problem.labelable)
        owners = problem.patches["patient_id"].iloc[pool].reset_index(drop=True)
        order = np.argsort(owners.groupby(owners).cumcount().to_numpy(), kind="stable")
        labeled = np.sort(pool[order[: len(problem.split.labeled)]])
        return self.inner.predict(replace(problem, split=replace(problem.split, labeled=labeled)))


TYPICAL, TYPICAL_MIXED = "typical", "typical-mixed"
"""Ending of a row whose labels `choose_typical` chooses: all, or all but `RANDOM_FRACTION`."""
PER_PATIENT = "per-patient"
"""Ending of a row of `PerPatient`."""
RANDOM_FRACTION = 0.2
SELECTED = "selected"
"""Name of the row of `Selected`, as `<encoder>-selected`."""
WITH_COLOR = "selected-color"
"""Name of the row of `Selected` with color beside the encoder."""
WITH_FIELD = "selected-color-field"
"""Name of the row of `Selected` with color, or the field around the patch, beside the encoder."""
COLOR_FOREST = "color-forest"
"""A random forest on the color histogram: nothing is chosen, as choosing between patients misleads on few of them."""
HEADS = ("linear", "means")
"""Of a frozen encoder, as `<encoder>-<head>`."""


def frozen_models(
    encoders: Mapping[str, Path],
    features: Mapping[str, Path],
    heads: Sequence[str] = HEADS,
    *,
    chooses: bool = False,
) -> dict[str, BenchmarkModel]:
    """Majority, color, and every frozen encoder with every head, by name.

    Args:
        encoders: name -> encoder.safetensors.
        features: name -> .npz, see `FileSource`.
        heads: names in `LEARNERS`.
        chooses: also the same with labels of typical patches.
    """
    color = LEARNED[COLOR]
    sources: dict[str, Source] = {name: EncoderSource(path) for name, path in encoders.items()}
    sources |= {name: FileSource(path) for name, path in features.items()}
    models: dict[str, BenchmarkModel] = {
        MAJORITY: Majority(),
        COLOR: Frozen(ColorSource(), color.learners, color.features, is_standardized=False),
        COLOR_FOREST: Frozen(ColorSource(), ("forest",), (COLORS,), is_standardized=False),
        **{f"{name}-{head}": Frozen(source, (head,)) for name, source in sources.items() for head in heads},
        **{f"{name}-{SELECTED}": Selected(source) for name, source in sources.items()},
        **{f"{name}-{WITH_COLOR}": Selected(WithColor(source)) for name, source in sources.items()},
        **{
            f"{name}-{WITH_FIELD}": Selected(WithField(source))
            for name, source in sources.items()
            if isinstance(source, EncoderSource) and keeps_statistics(description_of(source.path))
        },
    }
    for encoder, source in sources.items() if chooses else ():
        for model in [name for name in models if name.startswith(f"{encoder}-")]:
            for ending, random_fraction in ((TYPICAL, 0.0), (TYPICAL_MIXED, RANDOM_FRACTION)):
                models[f"{model}-{ending}"] = Chosen(models[model], source, random_fraction)
            models[f"{model}-{PER_PATIENT}"] = PerPatient(models[model])
    return models
