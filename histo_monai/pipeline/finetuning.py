"""Fine-tuning with the settings of params: encoder and labels -> task model."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from histo_monai.data.loaders.labeled import LabeledLoader
from histo_monai.data.loaders.streams import for_statistics, shuffled
from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.data.tables.tasks import dependence_groups, training_mpp
from histo_monai.evaluation.cross_validation import CrossValidated
from histo_monai.finetuning.depth import select_depth
from histo_monai.finetuning.linear_start import probe_head
from histo_monai.finetuning.trainable import FixedStatistics
from histo_monai.finetuning.trainer import FinetuneResult, Picture, Tuning, finetune
from histo_monai.models.batchnorm import patches_for_statistics
from histo_monai.models.checkpoint import load_model
from histo_monai.models.task_model import (
    Content,
    TaskModel,
    describe_task_model,
    first_stages,
    from_encoder,
)
from histo_monai.pipeline.context import Assembly, TrainingRows, cross_validated, schedule_of
from histo_monai.pipeline.params.head_sections import FinetuneMode
from histo_monai.pipeline.params.sections import FinetuneRecipe, TrainingParams
from histo_monai.training.device import tensors_on
from histo_monai.training.fit import Records
from histo_monai.utils.randomness import derive_seed

_LOG = logging.getLogger(__name__)


def finetune_encoder(
    assembly: Assembly,
    encoder: Path,
    rows: TrainingRows,
    *,
    seed: int,
    picture: Picture,
    records: Records,
    selected: float | None = None,
    content: Content | None = None,
) -> tuple[TaskModel, dict[str, Any], FinetuneResult]:
    """Task model from a pretrained encoder, its description, and the training result.

    Args:
        encoder: encoder.safetensors of a pretraining.
        content: of this file, for trainings that share its memory.
        rows: training and validation patches.
        seed: of all random decisions.

    Raises:
        InputError: the encoder cannot be used, or the loss is not finite.
    """
    section = assembly.params.finetune_section(assembly.task.kind)
    schedule = schedule_of(section)
    predicted = assembly.params.evaluate.batch_size
    torch.manual_seed(derive_seed(seed, "initialisation"))
    start = from_encoder(encoder, assembly.task.num_outputs, content)
    has_weights = start[0].encoder.weights is not None
    num = patches_for_statistics(section.batchnorm_patches, has_weights=has_weights)
    statistics = for_statistics(assembly.reading, rows.train, num, predicted, seed)
    model, description = _start(assembly, start, rows, section, statistics)
    result = finetune(
        model,
        assembly.task,
        shuffled(
            assembly.reading,
            rows.labeled,
            section.batch_size,
            seed=seed,
            purpose="labeled",
            num_batches=schedule.steps_per_epoch,
        ),
        assembly.validation(rows.validation),
        schedule=schedule,
        seed=seed,
        picture=picture,
        records=records,
        tuning=tuning_of(section, assembly.params.finetune.mode, has_weights=has_weights),
        statistics=statistics,
        selected=selected,
    )
    params = assembly.params
    described = describe_task_model(
        description,
        classes=assembly.task.classes,
        patch_px=params.patch_px,
        mpp=training_mpp(assembly.patches, params.patch_px),
    )
    return model, described | {"dataset": params.dataset, "alpha": params.alpha}, result


@dataclass(frozen=True)
class Finetuning:
    """All trainings of a fine-tuning: with all labels, and without each fold.

    Attributes:
        encoder: encoder.safetensors of a pretraining.
        folds: patient folds.
        seed: of all random decisions.
        picture: draws validation patches with predictions.
        records: (fold, or None for all labels; candidate) -> logs and checkpoints.
    """

    assembly: Assembly
    encoder: Path
    rows: TrainingRows
    folds: LabelFolds
    seed: int
    picture: Picture
    records: Callable[[int | None, float | None], Records]

    def train(
        self, fold: int | None = None, candidate: float | None = None
    ) -> tuple[TaskModel, dict[str, Any], FinetuneResult]:
        """Fine-tune with all labels, or without a fold."""
        return finetune_encoder(
            self.assembly,
            self.encoder,
            self.rows if fold is None else self.rows.without(self.folds, fold),
            seed=self.seed if fold is None else derive_seed(self.seed, "fold", fold),
            picture=self.picture,
            records=self.records(fold, candidate),
            selected=candidate,
            content=self._content,
        )

    @cached_property
    def _content(self) -> Content | None:
        """Content of the encoder's file on the device, for modes with frozen layers: all trainings share its memory."""
        if self.assembly.params.finetune.mode == "all":
            return None
        tensors, description = load_model(self.encoder)
        return tensors_on(tensors, self.assembly.task.device), description

    def cross_validate(
        self,
    ) -> tuple[CrossValidated[TaskModel, FinetuneResult] | None, list[dict[str, Any]]]:
        """Models without each fold, and their descriptions; None without folds."""
        predict = self.assembly.predictions
        return cross_validated(self.assembly, self.folds, self.rows.labeled, self.train, predict)

    def candidate(self, validated: CrossValidated[Any, Any] | None) -> float | None:
        """Selected candidate of the final model; None if separate validation patches select."""
        if len(self.rows.validation):
            return None
        if validated is None:
            return without_validation(self.assembly.params.finetune_section(self.assembly.task.kind))
        _LOG.info(
            "finetune: cross-validation labels=%d selected=%g", len(self.rows.labeled), validated.selected
        )
        return validated.selected


def _start(
    assembly: Assembly,
    start: tuple[TaskModel, dict[str, Any]],
    rows: TrainingRows,
    section: TrainingParams | FinetuneRecipe,
    statistics: LabeledLoader | None,
) -> tuple[TaskModel, dict[str, Any]]:
    """Initial model, and the description of its encoder, at the depth and with the head that labels select."""
    task, (model, description) = assembly.task, start
    if not isinstance(section, FinetuneRecipe):
        return model, description
    labeled, groups = assembly.in_order(rows.labeled), dependence_groups(rows.labeled)
    if section.select_depth:
        stages, chosen = select_depth(model, task, labeled, groups, statistics)
        if chosen:
            _LOG.info("finetune: encoder depth=%s %s", stages or "all", chosen.as_dict())
        if stages is not None:
            model, description = first_stages(model, description, stages)
    if section.linear_init:
        probed = probe_head(model, task, labeled, groups, statistics)
        if probed:
            _LOG.info("finetune: linear initialization %s", probed.as_dict())
    return model, description


def tuning_of(section: TrainingParams | FinetuneRecipe, mode: FinetuneMode, *, has_weights: bool) -> Tuning:
    """Fine-tuning settings from a section of params.

    Args:
        has_weights: whether the encoder has given weights.
    """
    if mode == "head":
        raise ValueError("a head is not trained")
    fixed_statistics: FixedStatistics = "none"
    if section.batchnorm_patches is None:
        fixed_statistics = "all" if has_weights else "none"
    elif section.batchnorm_patches == 0 and mode != "all":
        fixed_statistics = "frozen"
    if not isinstance(section, FinetuneRecipe):
        return Tuning(
            unaugmented_fraction=section.unaugmented_fraction, mode=mode, fixed_statistics=fixed_statistics
        )
    return Tuning(
        section.backbone_lr_factor,
        section.unaugmented_fraction,
        section.stain_jitter,
        section.ema_decay,
        section.interpolation_weights,
        mode,
        fixed_statistics,
    )


def without_validation(section: TrainingParams | FinetuneRecipe) -> float:
    """Candidate without cross-validation: middle point of a recipe, else the last epoch."""
    if isinstance(section, FinetuneRecipe):
        return sorted(section.interpolation_weights)[len(section.interpolation_weights) // 2]
    return float(section.epochs)
