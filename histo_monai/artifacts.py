"""Every path that the pipeline reads or writes, relative to the project's root; files appear whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

DATA = Path("data")
PARAMS = Path("params.yaml")
PHANTOM = DATA / "phantom"
INDEX = DATA / "index"
COMPARISON = DATA / "comparison"
CURVES_OF_EXPERIMENTS = DATA / "curves"
SLIDES_CSV = INDEX / "slides.csv"
CENTERS_CSV = INDEX / "centers.csv"
SKIPPED_CSV = INDEX / "skipped.csv"
WHOLE_SLIDES_CSV = INDEX / "whole_slides.csv"
PATCHES_CSV = INDEX / "patches.csv"
LABELS_JSON = INDEX / "labels.json"
INDEX_METRICS = INDEX / "metrics.json"

# Names inside the folders below.
ENCODER = "encoder.safetensors"
MODEL = "model.safetensors"
METRICS = "metrics.json"
SUMMARY = "summary.json"
CHOICE = "choice.json"
CURVES = "curves.csv"
ANSWERS = "answers.png"
PAIRS = "pairs.png"
PREDICTIONS = "predictions.csv"
PLOTS = "plots"
FOLDS_CSV = "folds.csv"
MAPPED_CSV = "slides.csv"
SCORES = "scores"
FEATURES_CSV = "features.csv"


def dataset_folder(source: str, dataset: str) -> Path:
    """Where a dataset lies: `data/raw/<dataset>` (yours, read only) or `data/phantom/<dataset>` (simulated)."""
    return DATA / source / dataset


def model_folder(method: str) -> Path:
    """What `pretrain --method METHOD` leaves: encoder, its description, metrics, curves, pictures."""
    return DATA / "models" / method


def finetuned_folder(method: str, seed: int) -> Path:
    """What `finetune --method METHOD --seed SEED` leaves: model, its description, metrics, curves, pictures."""
    return DATA / "models" / f"{method}-{seed}" / "finetuned"


def student_folder(method: str, seed: int) -> Path:
    """What `consistency --method METHOD --seed SEED` leaves: the last student, choice, metrics, curves, pictures."""
    return DATA / "models" / f"{method}-{seed}" / "student"


def evaluation_folder(method: str, seed: int) -> Path:
    """What `evaluate --method METHOD --seed SEED` leaves: predictions, metrics with intervals, a summary, plots."""
    return DATA / "evaluation" / f"{method}-{seed}"


def folds_folder(method: str, seed: int) -> Path:
    """What `crossfit --method METHOD --seed SEED` leaves: which slide is in which fold, and two models per fold."""
    return DATA / "models" / f"{method}-{seed}" / "folds"


def heatmaps_folder(method: str, seed: int) -> Path:
    """What `heatmap --method METHOD --seed SEED` leaves: scores of cells, and per model maps, overlays, detections."""
    return DATA / "heatmaps" / f"{method}-{seed}"


def diagnosis_folder(method: str, seed: int) -> Path:
    """What `aggregate --method METHOD --seed SEED` leaves: features, classifiers, predictions and metrics of slides."""
    return DATA / "diagnosis" / f"{method}-{seed}"


def tensorboard_folder(stage: str) -> Path:
    """Event files to watch while a stage runs; a log, not an artefact: DVC does not track it."""
    return DATA / "tensorboard" / stage


def checkpoint_path(stage: str) -> Path:
    """State of an unfinished training; gone when the stage ends, and not tracked."""
    return DATA / "checkpoints" / f"{stage}.pt"


def unfinished_folder(stage: str) -> Path:
    """Slides that an unfinished stage is done with; gone when the stage ends, and not tracked."""
    return DATA / "checkpoints" / stage


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `folder` when the block ends well; on an error nothing of it remains."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON in one step, keys in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, path)


def write_curves(
    path: Path, rows: Sequence[Mapping[str, float]], columns: Sequence[str] | None = None
) -> None:
    """One row per epoch; `columns` are needed where there may be none."""
    table = pd.DataFrame(rows, columns=None if columns is None else list(columns))
    table.to_csv(path, index=False, float_format="%.6g")
