"""Heads on frozen features with the settings of params: stored features and labels -> task model, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.loaders.labeled import NUM_SHOWN, spread
from histo_monai.data.tables.columns import read_whole_slides
from histo_monai.data.tables.folds import training_diagnoses
from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.data.tables.tasks import grouping_key, task_targets, training_mpp
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.evaluation.doubtful import nearest_rows
from histo_monai.finetuning.depth import WHOLE
from histo_monai.finetuning.heads.features import standardizations
from histo_monai.finetuning.heads.selection import Labels
from histo_monai.finetuning.heads.unlabeled.self_training import (
    NO_DIAGNOSIS,
    HeadData,
    SelfTrained,
    SlideKinds,
    Unlabeled,
    labels_alone,
)
from histo_monai.models.checkpoint import read_description
from histo_monai.models.encoder import Encoder
from histo_monai.models.heads.mixture import Mixture
from histo_monai.models.settings import Depth
from histo_monai.models.task_model import (
    MIXTURE,
    TaskModel,
    describe_task_model,
    load_encoder,
    load_head,
)
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import Assembly, TrainingRows, cross_validated
from histo_monai.pipeline.environment import num_cpus
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import OF_DIAGNOSES
from histo_monai.pipeline.stored_features import OF_MODEL, HeadFeatures, StoredRows, predictions_of
from histo_monai.semisupervised import METHODS
from histo_monai.training.interpolation import Candidates, Measures
from histo_monai.training.pictures.predictions import answers
from histo_monai.utils.process.processes import map_over_processes, on_one_core
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.roles import FINETUNED

ONLY = 0.0
"""The only candidate of a head: nothing is interpolated, and no epoch is selected."""


@dataclass(frozen=True)
class HeadResult:
    """Result of fitting a head.

    Attributes:
        candidates: `ONLY`, with its means over the validation patches; empty without validation.
        is_start: whether a student's head is that of the fine-tuning, as its pseudo labels did not help.
        draw: makes `picture`, which reads patches: few results are looked at.
    """

    candidates: Candidates
    is_start: bool
    draw: Callable[[], NDArray[np.uint8]]
    curves: list[dict[str, float]]
    best_epoch: int = 0
    interpolation: None = None
    selected: float = ONLY

    @property
    def picture(self) -> NDArray[np.uint8]:
        """Validation patches, or labeled patches without validation, with predictions, (H, W, 3) uint8."""
        return self.draw()

    @property
    def validation(self) -> Measures:
        """Means over the validation patches; empty without validation."""
        return self.candidates.get(ONLY, {})


class Fitted(NamedTuple):
    """A fitted head.

    Attributes:
        mixture: the head.
        depths: depths of the encoder that it reads.
        selection: `SelectedHead.as_dict`.
        pseudo_labels: `number`, and whether they are `accepted`.
    """

    mixture: Mixture
    depths: tuple[Depth, ...]
    selection: Mapping[str, Any]
    pseudo_labels: Mapping[str, Any]


def fit_head(student: str, settings: Any, data: HeadData) -> SelfTrained:
    """The head of a semi-supervised method, or, without a name, of the labels alone."""
    return METHODS[student].fit_head(data, settings) if student else labels_alone(data)


@dataclass(frozen=True)
class HeadTraining:
    """All heads of a run: with all labels, and without each fold.

    Attributes:
        stored: features of all rows.
        folds: patient folds, with all patients that have a diagnosis, if the student reads diagnoses.
        seed: of all random decisions.
        student: semi-supervised method; empty for the fine-tuning.
        start: file of the fine-tuned model.
        diagnoses: `training_diagnoses`; None if the student reads none.
    """

    assembly: Assembly
    stored: StoredRows
    rows: TrainingRows
    folds: LabelFolds
    seed: int
    student: str
    start: Path
    diagnoses: pd.Series | None = None

    @classmethod
    def of_run(
        cls, assembly: Assembly, run: Run, rows: TrainingRows, folds: LabelFolds, student: str = ""
    ) -> Self:
        """Heads of the fine-tuning of a run, or of its student.

        Raises:
            InputError: the stored features are missing, or of another encoder, slide or patch; or the student lacks
                diagnoses.
        """
        stored = StoredRows.of_encoder(assembly.params, run.method, run.encoder)
        stored.check(pd.concat([rows.labeled, rows.unlabeled, rows.validation]))
        seed = derive_seed(run.derived_seed, "head")
        training = cls(assembly, stored, rows, folds, seed, student, run.models[FINETUNED])
        reads = bool(student) and assembly.params.consistency.methods[student].reads_diagnoses
        return training._with_diagnoses() if reads else training

    def _with_diagnoses(self) -> Self:
        """With the diagnoses of training slides, whose patients are in folds, so that no map is of a model's own."""
        task, others = self.assembly.task, _without_labels(self.rows)
        slides = read_whole_slides(paths.WHOLE_SLIDES_CSV)
        known = training_diagnoses(slides, others, self.assembly.params.positive_class, task.classes)
        keys = others.assign(patient=_patients(others)).drop_duplicates("slide_id").set_index("slide_id")
        patients = keys["patient"].loc[known.sort_values(kind="stable").index]
        return replace(self, diagnoses=known, folds=self.folds.with_others(patients.tolist()))

    def train(
        self, fold: int | None = None, candidate: float | None = None
    ) -> tuple[TaskModel, dict[str, Any], HeadResult]:
        """Fit a head with all labels, or without a fold; its model, description and result.

        Args:
            candidate: not used: a head has no candidates.

        Raises:
            InputError: all labels are of one class, or the method does not learn such labels.
        """
        assembly, params = self.assembly, self.assembly.params
        rows = self._rows_without(fold)
        self._fit([fold])
        mixture, depths, found, pseudo_labels = self._fitted[fold]
        encoder, description = self._encoder(depths)
        model = TaskModel(encoder, mixture, assembly.task.num_outputs)
        description = description | {"encoder": encoder.about(), "head": MIXTURE, MIXTURE: mixture.about()}
        described = describe_task_model(
            description,
            classes=assembly.task.classes,
            patch_px=params.input_px,
            mpp=training_mpp(assembly.patches, params.patch_px),
        )
        described |= {"dataset": params.dataset, "alpha": params.alpha}
        described |= {"selection": found, OF_MODEL: self.stored.encoder_sha256}
        described |= {"pseudo_labels": pseudo_labels} if self.student else {}
        described |= {OF_DIAGNOSES: params.positive_class} if self.diagnoses is not None else {}
        is_start = not pseudo_labels["accepted"]
        picture = partial(self._picture, model, rows)
        return model, described, HeadResult(self._measured(model, rows), is_start, picture, [])

    def _rows_without(self, fold: int | None) -> TrainingRows:
        return self.rows if fold is None else self.rows.without(self.folds, fold)

    def _fit(self, folds: Sequence[int | None]) -> None:
        """Fit the heads of some folds, None for all labels, in several processes; a fitted head stays."""
        folds = [fold for fold in folds if fold not in self._fitted]
        settings = self.assembly.params.consistency.methods[self.student] if self.student else None
        if settings and settings.is_finetuned_head and not METHODS.own_files(self.student):
            for fold in folds:
                self._fitted[fold] = self._finetuned(fold)
            return
        work = partial(on_one_core, fit_head, self.student, settings)
        # One fold in memory at a time.
        found: Iterable[SelfTrained] = (work(self._data(fold)) for fold in folds)
        if num_cpus() > 1 and len(folds) > 1:
            data = [self._data(fold) for fold in folds]
            found = map_over_processes(
                work, data, processes=num_cpus(), title="heads", unit="head", over_cluster=False
            )
        for fold, each in zip(folds, found, strict=True):
            head = each.head.narrowed()
            depths = tuple(self.stored.names[name] for name in head.depths)
            pseudo_labels = {"number": each.num_pseudo_labels, "accepted": each.is_accepted}
            self._fitted[fold] = Fitted(head.module(), depths, each.head.as_dict(), pseudo_labels)

    def _finetuned(self, fold: int | None) -> Fitted:
        """Head of the fine-tuning."""
        path = self.start if fold is None else self.start.parent / paths.FOLDS / paths.fold_model(fold)
        head, depths, _ = load_head(path)
        selection = read_description(path.with_suffix(".json"))["selection"]
        return Fitted(head, depths, selection, {"number": 0, "accepted": False})

    def _data(self, fold: int | None) -> HeadData:
        """Training data with all labels, or without a fold."""
        rows = self._rows_without(fold)
        labeled = self._features.of(rows.labeled)
        others = _without_labels(rows)
        return HeadData(
            labeled,
            Labels(self._targets(rows.labeled), _patients(rows.labeled), self.assembly.task.num_classes),
            Unlabeled(self._features.of(others), _patients(others), self._slide_kinds(others)),
            self.assembly.params.finetune.head.settings,
            self.seed if fold is None else derive_seed(self.seed, "fold", fold),
        )

    def _slide_kinds(self, rows: pd.DataFrame) -> SlideKinds | None:
        if self.diagnoses is None:
            return None
        assert self.assembly.task.classes is not None  # `training_diagnoses`
        positive = self.assembly.task.classes.index(self.assembly.params.positive_class)
        slides = rows["slide_id"].to_numpy(str)
        kinds = self.diagnoses.astype(np.int64).reindex(slides, fill_value=NO_DIAGNOSIS)
        return SlideKinds(slides, np.asarray(kinds, np.int64), positive)

    def cross_validate(
        self,
    ) -> tuple[CrossValidated[TaskModel, HeadResult] | None, list[dict[str, Any]]]:
        """Heads without each fold, and their descriptions; None without folds."""
        self._fit([None, *range(self.folds.num)])
        return cross_validated(self.assembly, self.folds, self.rows.labeled, self.train, self.predictions)

    def candidate(self, validated: CrossValidated[Any, Any] | None) -> None:
        """A head has no candidates."""

    def predictions(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Predictions of a head from stored features, (n, K): class probabilities or scores."""
        return predictions_of(model.head, model.encoder.depths, self.assembly.task, self._features, rows)

    def features(self, model: TaskModel, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Features that a model's head reads, (n, D)."""
        return self._features.at(rows, model.encoder.depths)

    def neighbors(self) -> NDArray[np.intp]:
        """The nearest labeled rows of each labeled row, by features standardized on all training patches."""
        labeled, unlabeled = (
            {WHOLE: self._features.deepest(rows)} for rows in (self.rows.labeled, self.rows.unlabeled)
        )
        return nearest_rows(standardizations(unlabeled, "each")[WHOLE].of(labeled))

    @property
    def read(self) -> list[Path]:
        """Files beside patches.csv that heads are made from."""
        slides = [] if self.diagnoses is None else [paths.WHOLE_SLIDES_CSV]
        return [paths.UNLABELED_CSV, self.stored.encoder, *slides]

    @cached_property
    def _fitted(self) -> dict[int | None, Fitted]:
        return {}

    @cached_property
    def _encoders(self) -> dict[tuple[Depth, ...], tuple[Encoder, dict[str, Any]]]:
        return {}

    def _encoder(self, depths: tuple[Depth, ...]) -> tuple[Encoder, dict[str, Any]]:
        """The frozen encoder at some depths, which the models of folds share, and its description."""
        if depths not in self._encoders:
            encoder, description = load_encoder(self.stored.encoder)
            encoder.end_at(depths)
            encoder.field = self.assembly.params.field
            self._encoders[depths] = encoder, description
        return self._encoders[depths]

    @cached_property
    def _features(self) -> HeadFeatures:
        """Features of all rows, which the heads of all folds read."""
        return self.stored.read(self.rows.labeled, self.rows.unlabeled, self.rows.validation)

    def _targets(self, rows: pd.DataFrame) -> NDArray[Any]:
        return task_targets(rows, self.assembly.task.classes).numpy()

    def _measured(self, model: TaskModel, rows: TrainingRows) -> Candidates:
        if rows.validation.empty:
            return {}
        outputs = model.head(torch.from_numpy(self._features.at(rows.validation, model.encoder.depths)))
        targets = task_targets(rows.validation, self.assembly.task.classes)
        measured = self.assembly.task.objective.measure(outputs, targets)
        return {ONLY: {name: float(values.double().mean()) for name, values in measured.items()}}

    def _picture(self, model: TaskModel, rows: TrainingRows) -> NDArray[np.uint8]:
        shown = rows.labeled if rows.validation.empty else rows.validation
        shown = shown.iloc[spread(len(shown), NUM_SHOWN)].reset_index(drop=True)
        patches, targets = self.assembly.in_order(shown).some(NUM_SHOWN)
        predictions = self.predictions(model, shown)
        return answers(patches.squeeze(1).numpy(), predictions, targets.tolist(), self.assembly.task.classes)


def _without_labels(rows: TrainingRows) -> pd.DataFrame:
    """Training patches without a label in the budget."""
    others = rows.unlabeled[~rows.unlabeled["patch_id"].isin(rows.labeled["patch_id"])]
    return others.reset_index(drop=True)


def _patients(rows: pd.DataFrame) -> NDArray[Any]:
    return grouping_key(rows).to_numpy(str)
