"""Every path that the pipeline reads or writes, relative to the project's root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

DATA = Path("data")
RAW = DATA / "raw"
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
NEAR_COPIES_CSV = INDEX / "near_copies.csv"
LABELS_JSON = INDEX / "labels.json"

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


def raw_folders() -> list[Path]:
    """data/raw and every dataset in it, as far as they are there: yours, never written to."""
    return [RAW, *sorted(RAW.iterdir())] if RAW.is_dir() else []


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


def output_folder(stage: str, method: str = "", seed: int = 0) -> Path:
    """The one folder that a stage replaces when it ends."""
    of_run = {
        "finetune": finetuned_folder,
        "consistency": student_folder,
        "evaluate": evaluation_folder,
        "crossfit": folds_folder,
        "heatmap": heatmaps_folder,
        "aggregate": diagnosis_folder,
    }
    if stage in of_run:
        return of_run[stage](method, seed)
    if stage == "pretrain":
        return model_folder(method)
    return {"phantom": PHANTOM, "index": INDEX, "compare": COMPARISON}[stage]


def tensorboard_folder(stage: str) -> Path:
    """Event files to watch while a stage runs; a log, not an artifact: DVC does not track it."""
    return DATA / "tensorboard" / stage


def checkpoint_path(stage: str) -> Path:
    """State of an unfinished training; gone when the stage ends, and not tracked."""
    return DATA / "checkpoints" / f"{stage}.pt"


def lock_path(stage: str) -> Path:
    """Held by the process that runs a stage; see `storage.claim`."""
    return DATA / "checkpoints" / f".{stage}.lock"


def unfinished_folder(stage: str) -> Path:
    """Slides that an unfinished stage is done with; gone when the stage ends, and not tracked."""
    return DATA / "checkpoints" / stage


def write_curves(
    path: Path, rows: Sequence[Mapping[str, float]], columns: Sequence[str] | None = None
) -> None:
    """One row per epoch; `columns` are needed where there may be none."""
    table = pd.DataFrame(rows, columns=None if columns is None else list(columns))
    table.to_csv(path, index=False, float_format="%.6g")
