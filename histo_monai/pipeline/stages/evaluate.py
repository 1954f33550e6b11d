"""Stage `evaluate`: fine-tuned model, student and fast baselines -> predictions, metrics, plots."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import image

from histo_monai.data.loaders.labeled import NUM_SHOWN, LabeledLoader, spread
from histo_monai.data.tables.label_folds import LabelFolds, read_folds
from histo_monai.data.tables.patch_features import PatchFeatures, distinct_patches
from histo_monai.data.tables.predictions import predictions_table, read_predictions, write_predictions
from histo_monai.data.tables.tasks import dependence_groups, of_one_group, split_rows, task_targets
from histo_monai.evaluation.baselines.colors import color_features
from histo_monai.evaluation.baselines.predictions import (
    LABELED,
    BaselinePredictions,
    out_of_folds,
    predict_baselines,
)
from histo_monai.evaluation.choice import read_choice
from histo_monai.evaluation.estimates import Predictions, differences, estimate, predict_splits
from histo_monai.finetuning.depth import WHOLE, DepthFeatures, depth_features
from histo_monai.finetuning.frozen import frozen_encoder, starts_from_file
from histo_monai.models.task_model import load_head
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import Assembly, TrainingRows
from histo_monai.pipeline.environment import num_cpus
from histo_monai.pipeline.params import Params, load_params
from histo_monai.pipeline.paths import Run
from histo_monai.pipeline.provenance import made_from, write_metrics
from histo_monai.pipeline.skip import NO_PATCHES, has_patches, leave_empty
from histo_monai.pipeline.stored_features import HeadFeatures, StoredRows, predictions_of, stored_features
from histo_monai.reports import figures
from histo_monai.training.pictures.predictions import answers
from histo_monai.training.task import Task
from histo_monai.utils.errors import InputError
from histo_monai.utils.process.processes import map_over_processes, on_one_core
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.roles import FINETUNED, MODELS, STUDENT
from histo_monai.utils.storage import read_json, whole_folder

_LOG = logging.getLogger(__name__)

SPLITS = ("validation", "test")
NUM_BINS = 10
HEADLINES = ("accuracy", "icc", "icc_a", "icc_b")
"""Metrics of each split in summary.json, for `dvc metrics show`; metrics.json holds all."""


def run(method: str, encoder: int, student: str, seed: int) -> None:
    """Write data/evaluation/<run>: predictions.csv, metrics.json, summary.json, plots/.

    Without separate validation patches, the labeled patches are the validation; models trained without its patient
    predict each. The outputs are empty if no patch is labeled.

    Raises:
        InputError: there are no test patches, and the labels cannot be cross-validated.
    """
    of_run = Run(method, encoder, seed, student)
    params = load_params(paths.PARAMS)
    if not has_patches():
        files, folders = (paths.PREDICTIONS,), (paths.PLOTS,)
        leave_empty(of_run.evaluation, params, NO_PATCHES, files=files, folders=folders)
        return
    assembly = Assembly.of(params)
    task, given = assembly.task, assembly.rows(of_run.derived_seed, with_unlabeled=False)
    of_folds = [folder / paths.PREDICTIONS for folder in of_run.folds.values()]
    folds = read_folds(of_run.folds[STUDENT] / paths.FOLDS_CSV) if given.validation.empty else LabelFolds({})
    rows = {"validation": given.validation, "test": split_rows(assembly.patches, "test")}
    read = [
        paths.PATCHES_CSV,
        paths.LABELS_JSON,
        *of_run.models.values(),
        of_run.choice,
        of_run.encoder_path,
        *(of_folds if folds.num else ()),
    ]
    provenance = made_from(params, read, [*rows.values(), given.labeled])
    choice = read_choice(of_run.choice)
    rows = {split: table for split, table in rows.items() if len(table)}
    loaders = {split: assembly.in_order(table) for split, table in rows.items()}
    stored = _features_of_heads(assembly, of_run, [given.labeled, *rows.values()])
    if stored is None:
        networks = predict_splits(assembly.load_run(of_run), task, loaders)
    else:
        heads = {name: load_head(path)[:2] for name, path in of_run.models.items()}
        networks = {
            split: {name: predictions_of(*head, task, stored, table) for name, head in heads.items()}
            for split, table in rows.items()
        }
    predictions, baselines = _with_baselines(assembly, of_run, given, rows, networks, folds, stored)
    if folds.num:
        rows = {"validation": given.labeled, **rows}
        loaders = {"validation": assembly.in_order(given.labeled), **loaders}
    if not rows:
        raise InputError(
            f"{paths.PATCHES_CSV}: no test patches, and too few patients for cross-validation. "
            "Fix: set split: test for some patients, or label patches of more patients"
        )
    metrics = _metrics(params, task, rows, predictions, choice, baselines)
    with whole_folder(of_run.evaluation) as draft:
        write_predictions(
            draft / paths.PREDICTIONS,
            [
                predictions_table(rows[split].assign(split=split), of_split, task.classes)
                for split, of_split in predictions.items()
            ],
        )
        last = next(split for split in reversed(SPLITS) if split in predictions)
        _draw(draft / paths.PLOTS, task, rows[last], loaders[last], predictions[last])
        write_metrics(draft, metrics, provenance, summary=summarize(metrics))
    for name, value in summarize(metrics).items():
        _LOG.info("evaluate: %s: %s", name, " ".join(f"{model}={x:.3f}" for model, x in value.items()))


def _with_baselines(
    assembly: Assembly,
    of_run: Run,
    given: TrainingRows,
    rows: Mapping[str, pd.DataFrame],
    networks: Mapping[str, Predictions],
    folds: LabelFolds,
    stored: HeadFeatures | None,
) -> tuple[dict[str, Predictions], BaselinePredictions]:
    """Predictions by split of all models and baselines, out of folds too; and the baselines of all labels."""
    colors = _colors(assembly, distinct_patches(given.labeled, *rows.values()))
    jobs = [_baselines(assembly, of_run, given, rows, networks, colors, stored)]
    if folds.num:
        finetuned = _finetuned_out_of_fold(of_run, given.labeled)
        jobs += _baselines_of_folds(assembly, of_run, given, folds, finetuned, colors, stored)
    # A process that ran a network cannot fork.
    baselines, *without_folds = _predicted(jobs, processes=num_cpus() if stored is not None else 1)
    predictions = {split: {**networks[split], **baselines.predictions[split]} for split in networks}
    if not folds.num:
        return predictions, baselines
    targets = task_targets(given.labeled, assembly.task.classes).numpy()
    in_order = out_of_folds(without_folds, folds.of(given.labeled), targets, assembly.task.num_classes)
    return {"validation": finetuned | in_order, **predictions}, baselines


_Colors = PatchFeatures[np.float64]


def _colors(assembly: Assembly, rows: pd.DataFrame) -> _Colors:
    """Color features of all patches, which baselines with all labels and without each fold use."""
    return PatchFeatures.of_rows(rows, color_features(assembly.in_order(rows).loader))


def _features_of_heads(
    assembly: Assembly, of_run: Run, tables: Sequence[pd.DataFrame]
) -> HeadFeatures | None:
    """Features that heads were fitted to, compared with models and patches; None for networks that train."""
    if assembly.params.finetune.mode != "head":
        return None
    stored = StoredRows.of_encoder(assembly.params, of_run.method, of_run.encoder)
    for path in of_run.models.values():
        stored.check_model(path)
    stored.check(pd.concat(tables))
    return stored.read(*tables)


def _baselines(
    assembly: Assembly,
    of_run: Run,
    given: TrainingRows,
    rows: Mapping[str, pd.DataFrame],
    networks: Mapping[str, Predictions],
    colors: _Colors,
    of_heads: HeadFeatures | None,
    fold: int | None = None,
) -> tuple[Any, ...]:
    """Arguments of `predict_baselines` for the labels of the run, or those outside a fold."""
    tables = {LABELED: given.labeled, **rows}
    encoded, depth = _encoded(assembly, of_run, given, tables, of_heads, fold)
    return (
        encoded,
        {name: colors.of(table) for name, table in tables.items()},
        task_targets(given.labeled, assembly.task.classes).numpy(),
        dependence_groups(given.labeled),
        assembly.task.num_classes,
        networks,
        depth,
    )


def _predicted(jobs: Sequence[tuple[Any, ...]], processes: int) -> list[BaselinePredictions]:
    work, columns = partial(on_one_core, predict_baselines), zip(*jobs, strict=True)
    here = partial(map_over_processes, title="baselines", unit="training", over_cluster=False)
    return list(here(work, *columns, processes=processes))


def _encoded(
    assembly: Assembly,
    of_run: Run,
    given: TrainingRows,
    tables: Mapping[str, pd.DataFrame],
    of_heads: HeadFeatures | None,
    fold: int | None,
) -> tuple[Mapping[str, DepthFeatures], str]:
    """Features of tables by the frozen encoder, and the depth of the fine-tuned one; stored features encode nothing."""
    if of_heads is not None:
        return {name: {WHOLE: of_heads.deepest(table)} for name, table in tables.items()}, WHOLE
    model = of_run.models[FINETUNED] if fold is None else of_run.folds[FINETUNED] / paths.fold_model(fold)
    depth = assembly.load(model)[0].encoder.stages
    num_statistics = assembly.params.finetune_section(assembly.task.kind).batchnorm_patches
    if depth is None and starts_from_file(of_run.encoder_path, num_statistics):
        stored = stored_features(assembly.params, of_run.method, of_run.encoder, tables)
        if stored is not None:
            return stored, WHOLE
    seed = derive_seed(of_run.derived_seed, "finetune")
    seed = seed if fold is None else derive_seed(seed, "fold", fold)
    encoder = frozen_encoder(
        of_run.encoder_path,
        assembly.task,
        assembly.reading,
        given.train,
        num_statistics,
        assembly.params.evaluate.batch_size,
        seed=seed,
    )
    encoded = {
        name: depth_features(encoder, assembly.task, assembly.in_order(table).loader)
        for name, table in tables.items()
    }
    return encoded, WHOLE if depth is None else encoder.ends[depth - 1]


def _finetuned_out_of_fold(of_run: Run, labeled: pd.DataFrame) -> Predictions:
    """Predictions of the labeled patches by fine-tuned models and students trained without their patients."""
    found: Predictions = {}
    for name, folder in of_run.folds.items():
        path = folder / paths.PREDICTIONS
        table = read_predictions(path)
        if table.rows["patch_id"].tolist() != labeled["patch_id"].tolist():
            raise InputError(
                f"{path}: its patches differ from the run's labeled patches. Fix: run its stage again"
            )
        found[name] = table.predictions[name].reshape(len(labeled), -1)
    return found


def _baselines_of_folds(
    assembly: Assembly,
    of_run: Run,
    given: TrainingRows,
    folds: LabelFolds,
    finetuned: Predictions,
    colors: _Colors,
    of_heads: HeadFeatures | None,
) -> Iterator[tuple[Any, ...]]:
    """Result of `_baselines` for each fold."""
    fold_of = folds.of(given.labeled)
    for fold in range(folds.num):
        rows = given.without(folds, fold)
        tables = {"validation": rows.validation}
        networks = {"validation": {name: values[fold_of == fold] for name, values in finetuned.items()}}
        yield _baselines(assembly, of_run, rows, tables, networks, colors, of_heads, fold)


def _metrics(
    params: Params,
    task: Task,
    rows: Mapping[str, pd.DataFrame],
    predictions: Mapping[str, Predictions],
    choice: Mapping[str, Any],
    baselines: BaselinePredictions,
) -> dict[str, Any]:
    """Content of metrics.json."""
    metrics: dict[str, Any] = {
        "choice": choice,
        "baselines": {name: chosen.as_dict() for name, chosen in baselines.chosen.items()},
    }
    for split, of_split in predictions.items():
        estimates = estimate(task, rows[split], of_split, seed=params.evaluate.seed)
        estimates["chosen"] = estimates[choice["chosen"]]
        estimates |= differences(task, rows[split], of_split, seed=params.evaluate.seed)
        metrics[split] = {
            model: {name: value.as_dict() for name, value in of_model.items()}
            for model, of_model in estimates.items()
        }
    metrics["warnings"] = [
        *read_json(paths.LABELS_JSON, "run the index stage again", {"warnings": [str]})["warnings"],
        *(warning for split, table in rows.items() for warning in of_one_group(table, split)),
    ]
    return metrics


def summarize(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Main numbers of every split: {"test_accuracy": {"student": 0.9, ...}, ...}."""
    return {
        f"{split}_{name}": {
            model: of_model[name]["value"]
            for model, of_model in metrics[split].items()
            if name in of_model and "_minus_" not in model
        }
        for split in SPLITS
        if split in metrics
        for name in HEADLINES
        if name in metrics[split][STUDENT]
    }


def _draw(
    folder: Path, task: Task, rows: pd.DataFrame, loader: LabeledLoader, predictions: Predictions
) -> None:
    """Write the plots of `dvc plots show` for the fine-tuned model and the student."""
    folder.mkdir()
    both = {name: predictions[name] for name in MODELS}
    targets = loader.targets.numpy()
    if task.classes:
        decided = {name: values.argmax(axis=1) for name, values in both.items()}
        image.imsave(folder / "confusion.png", figures.confusion(targets, decided, task.classes))
        image.imsave(folder / "reliability.png", figures.reliability_diagram(targets, both, NUM_BINS))
    else:
        raters = {f"pathologist {rater.upper()}": rows[f"rater_{rater}"].to_numpy() for rater in "ab"}
        if rows["rater_a"].isna().any():
            raters = {"score": targets}
        for name, values in both.items():
            image.imsave(folder / f"scores_{name}.png", figures.scores(values[:, 0], raters))
    patches, wanted = loader.some(NUM_SHOWN)
    answered = both[STUDENT][spread(len(rows), NUM_SHOWN)]
    picture = answers(patches.squeeze(1).numpy(), answered, wanted.tolist(), task.classes)
    image.imsave(folder / paths.ANSWERS, picture)
