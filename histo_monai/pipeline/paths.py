"""Paths of the pipeline, relative to the project's root."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from histo_monai.pipeline.environment import queued_experiment
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.roles import FINETUNED, MODEL_FILE, STUDENT

DATA = Path("data")
RAW = DATA / "raw"
PARAMS = Path("params.yaml")
CODE = DATA / "code"
PHANTOM = DATA / "phantom"
INDEX = DATA / "index"
CHECK = DATA / "check"
COMPARISON = DATA / "comparison"
REPORT = DATA / "report"
CHOSEN = DATA / "models" / "chosen" / "chosen.json"
CURVES_OF_EXPERIMENTS = DATA / "curves"
SLIDES_CSV = INDEX / "slides.csv"
CENTERS_CSV = INDEX / "centers.csv"
SKIPPED_CSV = INDEX / "skipped.csv"
WHOLE_SLIDES_CSV = INDEX / "whole_slides.csv"
PATCHES_CSV = INDEX / "patches.csv"
UNLABELED_CSV = INDEX / "unlabeled.csv"
NEAR_COPIES_CSV = INDEX / "near_copies.csv"
LABELS_JSON = INDEX / "labels.json"

# Names in the folders below.
ENCODER = "encoder.safetensors"
MODEL = MODEL_FILE
METRICS = "metrics.json"
SUMMARY = "summary.json"
CHOICE = "choice.json"
CURVES = "curves.csv"
ANSWERS = "answers.png"
PAIRS = "pairs.png"
PREDICTIONS = "predictions.csv"
DOUBTFUL = "doubtful.csv"
PLOTS = "plots"
FOLDS = "folds"
FOLDS_CSV = "folds.csv"
MAPPED_CSV = "slides.csv"
SCORES = "scores"
FEATURES_CSV = "features.csv"


def dataset_folder(source: str, dataset: str) -> Path:
    """Folder of a dataset: `data/raw/<dataset>` (yours, read-only) or `data/phantom/<dataset>` (simulated)."""
    return DATA / source / dataset


def raw_folders() -> list[Path]:
    """Existing folders data/raw and data/raw/*, which no stage writes."""
    return [RAW, *sorted(RAW.iterdir())] if RAW.is_dir() else []


def encoder_folder(method: str, encoder: int) -> Path:
    """Output of `pretrain`: encoder, description, metrics, curves, pictures."""
    return DATA / "models" / f"{method}-{encoder}"


def features_folder(method: str, encoder: int) -> Path:
    """Output of the stage `features`: features of patches and of every slide."""
    return DATA / "features" / f"{method}-{encoder}"


class Run(NamedTuple):
    """Run of the stages after pretraining, and its output paths.

    Attributes:
        method: pretraining method.
        encoder: pretraining seed.
        seed: training seed.
        student: semi-supervised method; empty for the fine-tuning, which all students start from.
    """

    method: str
    encoder: int
    seed: int
    student: str = ""

    @property
    def name(self) -> str:
        """Name in DVC: `rsp-0-0`, or `rsp-0-paper-0` with a student."""
        parts = (self.method, self.encoder, self.student, self.seed)
        return "-".join(str(part) for part in parts if part != "")

    @property
    def derived_seed(self) -> int:
        """Seed of all random decisions after pretraining, one per pretraining seed and training seed.

        For encoder 0 it equals `seed`; for seed 0 the label subset then is the index stage's.
        """
        return self.seed if self.encoder == 0 else derive_seed(self.encoder, "run", self.seed)

    @property
    def encoder_path(self) -> Path:
        """The run's pretrained encoder."""
        return encoder_folder(self.method, self.encoder) / ENCODER

    @property
    def finetuned(self) -> Path:
        """Output of `finetune`: model, description, fold models, metrics, curves, pictures."""
        return DATA / "models" / self._replace(student="").name / FINETUNED

    @property
    def student_folder(self) -> Path:
        """Output of `consistency`: student, fold models, choice, metrics, curves, pictures."""
        return DATA / "models" / self.name / STUDENT

    @property
    def models(self) -> dict[str, Path]:
        """Model name -> file, for fine-tuned model and student."""
        return {FINETUNED: self.finetuned / MODEL, STUDENT: self.student_folder / MODEL}

    @property
    def choice(self) -> Path:
        """File with the selected model, fine-tuned or student."""
        return self.student_folder / CHOICE

    @property
    def evaluation(self) -> Path:
        """Output of `evaluate`: predictions, metrics with intervals, summary, plots."""
        return DATA / "evaluation" / self.name

    @property
    def folds(self) -> dict[str, Path]:
        """Model name -> folder of models trained without one patient fold each."""
        return {FINETUNED: self.finetuned / FOLDS, STUDENT: self.student_folder / FOLDS}

    @property
    def heatmaps(self) -> Path:
        """Output of `heatmap`: scores of cells; maps, overlays and detections per model."""
        return DATA / "heatmaps" / self.name

    @property
    def diagnosis(self) -> Path:
        """Output of `aggregate`: features, classifiers, predictions and metrics of slides."""
        return DATA / "diagnosis" / self.name

    @property
    def mil(self) -> Path:
        """Output of `mil`: networks trained on slide labels, slide predictions, attention."""
        return DATA / "mil" / self._replace(student="").name

    @property
    def folders(self) -> dict[str, Path]:
        """Stage -> its output folder."""
        return {
            "finetune": self.finetuned,
            "consistency": self.student_folder,
            "evaluate": self.evaluation,
            "heatmap": self.heatmaps,
            "aggregate": self.diagnosis,
            "mil": self.mil,
        }


def runs(methods: Iterable[str], students: Iterable[str], repeats: Iterable[tuple[int, int]]) -> list[Run]:
    """All runs of an experiment; `repeats`: pairs of `Params.repeats`."""
    return [
        Run(method, encoder, seed, student)
        for method, student, (encoder, seed) in itertools.product(methods, students, repeats)
    ]


def output_folder(stage: str, method: str = "", encoder: int = 0, student: str = "", seed: int = 0) -> Path:
    """Output folder of a stage."""
    of_all = {"code": CODE, "phantom": PHANTOM, "index": INDEX, "check": CHECK, "compare": COMPARISON}
    of_all |= {"report": REPORT}
    of_all |= {"pretrain": encoder_folder(method, encoder), "features": features_folder(method, encoder)}
    return (of_all | Run(method, encoder, seed, student).folders)[stage]


def fold_model(fold: int) -> str:
    """Name of the model without a fold, in a folder of `Run.folds`."""
    return f"without-{fold}.safetensors"


def training_name(run: Run, fold: int | None = None) -> str:
    """Name of a training for event files and checkpoint: with all labels, or without a fold."""
    return run.name if fold is None else f"{run.name}-without-{fold}"


def tensorboard_folder(stage: str, name: str) -> Path:
    """Event files of a training, data/tensorboard/<stage>/<name>, not tracked by DVC.

    A queued experiment writes them to its project, data/tensorboard/<experiment>, as DVC removes its folder.
    """
    queued = queued_experiment()
    root = queued.project / DATA / "tensorboard" / queued.name if queued else DATA / "tensorboard"
    return root / stage / name


def checkpoint_path(stage: str) -> Path:
    """Checkpoint of an unfinished training, deleted when the stage finishes."""
    return DATA / "checkpoints" / f"{stage}.pt"


def lock_path(stage: str) -> Path:
    """Lock file of a running stage."""
    return DATA / "checkpoints" / f".{stage}.lock"


def unfinished_folder(stage: str) -> Path:
    """Finished slides of an unfinished stage, deleted when the stage finishes."""
    return DATA / "checkpoints" / stage


def write_curves(
    path: Path, rows: Sequence[Mapping[str, float]], columns: Sequence[str] | None = None
) -> None:
    """Write one row per epoch; `columns` are required if there are no rows."""
    import pandas as pd  # importing pandas would double the time of --help

    table = pd.DataFrame(rows, columns=None if columns is None else list(columns))
    table.to_csv(path, index=False, float_format="%.6g")


def plain_path(path: str | Path) -> Path:
    """A path without `..`; the real path where a linked folder before `..` leads elsewhere."""
    plain, real = Path(os.path.normpath(path)), os.path.realpath(path)
    return plain if ".." not in Path(path).parts or os.path.realpath(plain) == real else Path(real)
