"""Networks that learn from the labels: the product's fine-tuning and students, on a table in memory."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import PatchReading
from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.models.checkpoint import save_model
from histo_monai.models.layers import merged_state
from histo_monai.models.task_model import TaskModel
from histo_monai.pipeline.context import Assembly, TrainingRows
from histo_monai.pipeline.environment import read_environment
from histo_monai.pipeline.finetuning import Finetuning
from histo_monai.pipeline.params import Params, parse_params
from histo_monai.pipeline.params.sections import FinetuneRecipe
from histo_monai.pipeline.paths import fold_model
from histo_monai.pipeline.teaching import Teaching
from histo_monai.training.fit import Records
from histo_monai.training.task import Task
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.storage import whole_folder

from .encoders import description_of, digest_of
from .models import Problem
from .tasks import RealTask, data_digest

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
FINETUNED = "finetuned"
_FROZEN = ("semisupervised_methods=[adabn]", "slide_level.semisupervised_methods=[adabn]")
MODES = {
    FINETUNED: (),
    "last": ("finetune.mode=last", *_FROZEN),
    "adapters": ("finetune.mode=adapters", *_FROZEN),
}
"""Fine-tuned networks by name: changes of params.yaml that state which layers train."""
CLASSES_ONLY = ("fixmatch", "adamatch", "freematch", "softmatch", "mixmatch")
SCORES_ONLY = ("rankup",)
START = "start"
"""In place of a student: the encoder with the linear head that fine-tuning starts from."""
MODEL = "model.safetensors"
VERSION = "trained 2"
"""Raise it when a change of the product's training must not be mixed with earlier predictions."""


@dataclass(frozen=True)
class Trained:
    """A network that starts from an encoder: fine-tuned on the labels, or a student that starts from that.

    Attributes:
        encoder: encoder.safetensors.
        student: a semi-supervised method, or `START`; empty for the fine-tuned network.
        changes: of params.yaml, dotted key=value.
        device: cpu or cuda.
    """

    encoder: Path
    student: str
    changes: tuple[str, ...]
    device: str

    def is_for(self, task: RealTask) -> bool:
        """Whether the student knows the task's kind of labels."""
        return self.student not in (SCORES_ONLY if task.classes else CLASSES_ONLY)

    def digest(self, real: Path, task: RealTask, fold: int) -> str:
        """See `BenchmarkModel`."""
        return self._digest(real, task, self.student)

    def _digest(self, real: Path, task: RealTask, student: str) -> str:
        about = [VERSION, digest_of(self.encoder), data_digest(real, task.dataset), student]
        return hashlib.sha256("\n".join([*about, *self.changes, PARAMS.read_text()]).encode()).hexdigest()

    def prepare(self, real: Path, cache: Path, task: RealTask, fold: int) -> None:
        """Nothing: each training computes its own features."""

    def predict(self, problem: Problem) -> NDArray[np.float64]:
        """See `BenchmarkModel`."""
        patches = visible(problem)
        rows = training_rows(patches, problem)
        assembly = self._assembly(patches, problem)
        folds = assembly.folds(rows, problem.subset)
        place = self._finetuned(assembly, rows, folds, problem)
        tested = patches.iloc[problem.split.tested].reset_index(drop=True)
        if self.student == START:
            start = assembly.load(place / START / MODEL)[0]
            return assembly.predictions(start, tested).astype(np.float64)
        model = assembly.load(place / MODEL)[0]
        if self.student:
            model = self._taught(assembly, rows, folds, place, problem.subset)
        return assembly.predictions(model, tested).astype(np.float64)

    def _taught(
        self, assembly: Assembly, rows: TrainingRows, folds: LabelFolds, place: Path, subset: int
    ) -> TaskModel:
        """The student, by cross-validation inside the labels as the product has it."""
        teaching = Teaching(
            assembly,
            self.student,
            lambda fold: assembly.load(place / (MODEL if fold is None else fold_model(fold))),
            rows,
            folds,
            derive_seed(subset, "consistency"),
            no_picture,
            lambda *_: Records(),
        ).weighed()
        validated, _ = teaching.cross_validate()
        return teaching.train(candidate=teaching.candidate(validated))[0]

    def _assembly(self, patches: pd.DataFrame, problem: Problem) -> Assembly:
        """The product's parts for this task."""
        params = changed_params(self.changes, description_of(self.encoder)["patch_px"])
        return assembly_of(params, patches, problem.task, torch.device(self.device))

    def _selects(self, assembly: Assembly) -> bool:
        """Whether models without each fold are needed: a student starts from them, or they select a candidate."""
        section = assembly.params.finetune_section(assembly.task.kind)
        has_one = isinstance(section, FinetuneRecipe) and len(section.interpolation_weights) == 1
        return bool(self.student) or not has_one

    def _finetuned(self, assembly: Assembly, rows: TrainingRows, folds: LabelFolds, problem: Problem) -> Path:
        """Folder of the fine-tuned network, of those without each fold, and of the linear model that it started from.

        They are saved so that students start from the same ones.
        """
        digest = self._digest(problem.real, problem.task, "")[:16]
        selects = self._selects(assembly)
        name = f"{len(problem.split.labeled)}-{problem.subset}-{problem.fold}{'' if selects else '-alone'}"
        place = problem.cache / "finetuned" / f"{problem.task.name}-{digest}" / name
        if place.is_dir():
            return place
        finetuning = Finetuning(
            assembly,
            self.encoder,
            rows,
            folds,
            derive_seed(problem.subset, "finetune"),
            no_picture,
            lambda *_: Records(),
        )
        validated, described = finetuning.cross_validate() if selects else (None, [])
        model, description, result = finetuning.train(candidate=finetuning.candidate(validated))
        with whole_folder(place) as draft:
            save_model(draft / MODEL, merged_state(model), description)
            for fold, about in enumerate(described):
                assert validated is not None
                save_model(draft / fold_model(fold), merged_state(validated.models[fold]), about)
            (draft / START).mkdir()
            if result.interpolation is not None:
                result.interpolation.move(1.0)
            save_model(draft / START / MODEL, merged_state(model), description)
        return place


def visible(problem: Problem) -> pd.DataFrame:
    """All patches of the dataset, split into train and test patients, without the labels outside the budget."""
    labeled, number = problem.split.labeled, np.arange(len(problem.patches))
    is_labeled = np.isin(number, labeled)
    return problem.patches.assign(
        label=problem.patches["label"].where(is_labeled, ""),
        score=problem.patches["score"].where(is_labeled),
        split=np.where(np.isin(number, problem.split.unlabeled), "train", "test"),
    )


def training_rows(patches: pd.DataFrame, problem: Problem) -> TrainingRows:
    """The rows that a training is given: no validation set, the labels select by cross-validation.

    Args:
        patches: see `visible`.
        problem: whose rows.
    """
    labeled, train = (
        patches.iloc[rows].reset_index(drop=True) for rows in (problem.split.labeled, problem.split.unlabeled)
    )
    return TrainingRows(labeled=labeled, train=train, unlabeled=train, validation=labeled.iloc[:0])


def changed_params(changes: Sequence[str], patch_px: int, file: Path = PARAMS) -> Params:
    """Params for own data, with changes.

    Args:
        changes: dotted key=value.
        patch_px: side of the encoder's patches.
        file: of the params that do not change.

    Raises:
        InputError: a change names no param, or a value is refused.
    """
    tree: dict[str, Any] = yaml.safe_load(file.read_text())
    tree |= {"source": "raw", "dataset": "own", "pretraining_dataset": "own", "patch_px": patch_px}
    for change in changes:
        dotted, _, value = change.partition("=")
        *sections, key = dotted.split(".")
        part: Any = tree
        for name in sections:
            part = part.get(name, {}) if isinstance(part, dict) else {}
        if key not in part:
            raise InputError(f"--set {change}: {file.name} has no {dotted}. Fix: name one of its params.")
        part[key] = yaml.safe_load(value)
    return parse_params(tree)


def assembly_of(params: Params, patches: pd.DataFrame, task: RealTask, device: torch.device) -> Assembly:
    """The product's parts for a task, with one thread and no reading processes."""
    environment = dataclasses.replace(read_environment(), device=device, workers=0, cpus=1)
    environment.use_cpus()
    classes = None if task.classes is None else list(task.classes)
    parts = Task(classes, patch_px=params.patch_px, device=device)
    reading = PatchReading(params.patch_px, classes, 0, device)
    return Assembly(params, environment, patches, parts, reading)


def no_picture(*_: Any) -> np.ndarray:
    """TensorBoard shows nothing of a benchmark."""
    return np.zeros((1, 1, 3), np.uint8)
