"""Every path that the pipeline reads or writes, relative to the project's root."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from histo_monai.pipeline.environment import queued_experiment
from histo_monai.utils.randomness import derive_seed
from histo_monai.utils.roles import FINETUNED, STUDENT

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
FOLDS = "folds"
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


def encoder_folder(method: str, encoder: int) -> Path:
    """Folder of `pretrain --method METHOD --pretraining-seed SEED`: encoder, description, metrics, curves, pictures."""
    return DATA / "models" / f"{method}-{encoder}"


def features_folder(method: str, encoder: int) -> Path:
    """What `features --method METHOD --pretraining-seed SEED` leaves: features of patches and whole slides."""
    return DATA / "features" / f"{method}-{encoder}"


class Run(NamedTuple):
    """What everything after the pretraining is run for, and where it is left.

    Attributes:
        method: of the pretraining.
        encoder: seed of the pretraining.
        seed: of everything after it, beside others of the same encoder.
        student: the semi-supervised method; empty for a fine-tuning, which all of them start from.
    """

    method: str
    encoder: int
    seed: int
    student: str = ""

    @property
    def name(self) -> str:
        """As DVC names it: `rsp-0-0`, or `rsp-0-paper-0` with a student."""
        parts = (self.method, self.encoder, self.student, self.seed)
        return "-".join(str(part) for part in parts if part != "")

    @property
    def derived_seed(self) -> int:
        """Seed of all that is drawn after the pretraining, the labels too: each encoder has draws of its own.

        That of encoder 0 is the run's seed itself; of seed 0 labels are drawn as the index stage wrote them.
        """
        return self.seed if self.encoder == 0 else derive_seed(self.encoder, "run", self.seed)

    @property
    def encoder_path(self) -> Path:
        """The encoder that it starts from."""
        return encoder_folder(self.method, self.encoder) / ENCODER

    @property
    def finetuned(self) -> Path:
        """What `finetune` leaves: model, its description, those of the folds, metrics, curves, pictures."""
        return DATA / "models" / self._replace(student="").name / FINETUNED

    @property
    def student_folder(self) -> Path:
        """What `consistency` leaves: the student, those of the folds, choice, metrics, curves, pictures."""
        return DATA / "models" / self.name / STUDENT

    @property
    def models(self) -> dict[str, Path]:
        """Name of a model -> its file, fine-tuned model and student."""
        return {FINETUNED: self.finetuned / MODEL, STUDENT: self.student_folder / MODEL}

    @property
    def choice(self) -> Path:
        """Which of the two to use."""
        return self.student_folder / CHOICE

    @property
    def evaluation(self) -> Path:
        """What `evaluate` leaves: predictions, metrics with intervals, a summary, plots."""
        return DATA / "evaluation" / self.name

    @property
    def folds(self) -> dict[str, Path]:
        """Name of a model -> folder of its models without a fold of the patients each."""
        return {FINETUNED: self.finetuned / FOLDS, STUDENT: self.student_folder / FOLDS}

    @property
    def heatmaps(self) -> Path:
        """What `heatmap` leaves: scores of cells, and per model maps, overlays, detections."""
        return DATA / "heatmaps" / self.name

    @property
    def diagnosis(self) -> Path:
        """What `aggregate` leaves: features, classifiers, predictions and metrics of slides."""
        return DATA / "diagnosis" / self.name

    @property
    def mil(self) -> Path:
        """What `mil` leaves: networks that learned from labels of slides, what slides are taken for, attention."""
        return DATA / "mil" / self._replace(student="").name

    @property
    def folders(self) -> dict[str, Path]:
        """Stage -> the one folder that it replaces when it ends."""
        return {
            "finetune": self.finetuned,
            "consistency": self.student_folder,
            "evaluate": self.evaluation,
            "heatmap": self.heatmaps,
            "aggregate": self.diagnosis,
            "mil": self.mil,
        }


def runs(methods: Iterable[str], students: Iterable[str], repeats: Iterable[tuple[int, int]]) -> list[Run]:
    """Every run of an experiment; `repeats`: encoder and seed (`Params.repeats`)."""
    return [
        Run(method, encoder, seed, student)
        for method, student, (encoder, seed) in itertools.product(methods, students, repeats)
    ]


def output_folder(stage: str, method: str = "", encoder: int = 0, student: str = "", seed: int = 0) -> Path:
    """The one folder that a stage replaces when it ends."""
    of_all = {"code": CODE, "phantom": PHANTOM, "index": INDEX, "check": CHECK, "compare": COMPARISON}
    of_all |= {"report": REPORT}
    of_all |= {"pretrain": encoder_folder(method, encoder), "features": features_folder(method, encoder)}
    return (of_all | Run(method, encoder, seed, student).folders)[stage]


def fold_model(fold: int) -> str:
    """Name of a model in a folder of `Run.folds`: without the patients of this fold."""
    return f"without-{fold}.safetensors"


def training_name(run: Run, fold: int | None = None) -> str:
    """Name of a training of a run, for its events and its checkpoint: with all labels, or without those of a fold."""
    return run.name if fold is None else f"{run.name}-without-{fold}"


def tensorboard_folder(stage: str, name: str) -> Path:
    """Event files of a training, data/tensorboard/<stage>/<name>; a log, not an artifact: DVC does not track it.

    Those of an experiment from the queue lie in the project that queued it, below data/tensorboard/<experiment>: the
    folder that DVC runs it in is removed.
    """
    queued = queued_experiment()
    root = queued.project / DATA / "tensorboard" / queued.name if queued else DATA / "tensorboard"
    return root / stage / name


def checkpoint_path(stage: str) -> Path:
    """State of an unfinished training; gone when the stage ends, and not tracked."""
    return DATA / "checkpoints" / f"{stage}.pt"


def lock_path(stage: str) -> Path:
    """Held by the process that runs a stage; see `utils.storage.claim`."""
    return DATA / "checkpoints" / f".{stage}.lock"


def unfinished_folder(stage: str) -> Path:
    """Slides that an unfinished stage is done with; gone when the stage ends, and not tracked."""
    return DATA / "checkpoints" / stage


def write_curves(
    path: Path, rows: Sequence[Mapping[str, float]], columns: Sequence[str] | None = None
) -> None:
    """One row per epoch; `columns` are needed where there may be none."""
    import pandas as pd  # half of what --help takes, which writes no table

    table = pd.DataFrame(rows, columns=None if columns is None else list(columns))
    table.to_csv(path, index=False, float_format="%.6g")
