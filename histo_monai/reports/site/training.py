"""How models came about: curves of the student, of the fine-tuning and of the pretraining, and what they were shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from histo_monai.reports.site import charts
from histo_monai.reports.site.blocks import Block, Chart, Lines, Picture, Pictures, Section, missing

WORDS = {
    "loss": "loss",
    "accuracy": "accuracy",
    "supervised": "loss of labeled patches",
    "unlabeled": "loss of unlabeled patches",
    "consistency": "loss of unlabeled patches",
    "confidence": "confidence of the guesses",
    "used": "part of the guesses that is used",
    "agreement": "student and teacher agree",
    "teacher_accuracy": "the teacher is right on labeled patches",
    "teacher_entropy": "entropy of the teacher's guesses, nats",
    "student_entropy": "entropy of the student's answers, nats",
    "by_sharpness": "accuracy of sharpness alone",
    "by_contrast": "accuracy of contrast alone",
    "contrast": "contrastive loss",
    "nearest": "own pair is the nearest",
    "guess_accuracy": "all guesses",
    "used_guess_accuracy": "guesses that are used",
    "guess_absolute_error": "mean absolute error of the guesses",
    "mae": "mean absolute error",
}
_SHARES = (
    *("accuracy", "confidence", "used", "agreement", "teacher_accuracy"),
    *("by_sharpness", "by_contrast", "nearest"),
)
_OF_GUESSES = ("guess_accuracy", "used_guess_accuracy", "guess_absolute_error")

GUESSES_IN_WORDS = (
    "What the student took unlabeled patches to be, held against labels that alpha left out; it learned nothing from "
    "these. Guesses that get worse by the epoch, or that are used and no better than all, teach it what is wrong."
)
NO_STEP = "The student took no step: its weights are the fine-tuned model's."
NO_GUESSES = (
    "the method guesses none, or no unlabeled patch has a label that alpha left out to hold a guess against"
)


def training_section(
    student: pd.DataFrame | None, finetuned: pd.DataFrame | None, run: str, pairs: str, choice: Sequence[str]
) -> Section:
    """Of a run: the student, what it was shown, and the fine-tuned model that it started from.

    Args:
        student: its curves, a row per epoch, none where its method takes no step; None where no patch is labeled.
        finetuned: those of the fine-tuned model.
        run: whose they are.
        pairs: path of the picture of what the student was shown, relative to the page; empty where there is none.
        choice: which of the two is kept, and why.
    """
    title = "Students and teachers"
    if student is None:
        return Section("training", title, [missing("No student was trained", "no patch is labeled")])
    blocks: list[Block] = [Lines([run, *choice])]
    blocks += course(student, "Student") if len(student) else [Lines([NO_STEP])]
    of_guesses = [student[f"train_{name}"] for name in _OF_GUESSES if f"train_{name}" in student]
    if len(student) and not any(column.notna().any() for column in of_guesses):
        blocks.append(missing("How right the guesses of unlabeled patches are is not known", NO_GUESSES))
    if finetuned is not None and not finetuned.empty:
        blocks += course(finetuned, "Fine-tuned model")
    if pairs:
        alt = "Unlabeled patches as teacher and student saw them, with the answers of both; red where they differ"
        blocks.append(Pictures("What the student was shown", [Picture(pairs, alt)], alt + ".", large=True))
    return Section("training", title, blocks)


def of_start(share: float) -> list[str]:
    """How much of a student is the fine-tuned model, in words; nothing where none is.

    Args:
        share: of its weights that are the fine-tuned model's.
    """
    if share == 1:
        return ["No student did better on held-out labels, so the student is the fine-tuned model as it was."]
    if share > 0:
        return [
            f"{100 * share:g} % of the student's weights are the fine-tuned model's: the best on held-out labels."
        ]
    return []


def pretraining_section(curves: dict[str, pd.DataFrame], pictures: Sequence[Picture]) -> Section:
    """Of every encoder: `curves` by its name, a row per epoch; nothing where it was not trained."""
    title = "Pretraining"
    trained = {name: table for name, table in curves.items() if not table.empty}
    blocks: list[Block] = []
    for name, table in trained.items():
        blocks += course(table, name)
    untrained = [name for name in curves if name not in trained]
    if untrained:
        blocks.append(Lines([f"Not trained, as it is: {', '.join(untrained)}."]))
    if pictures:
        blocks.append(Pictures("What encoders were asked, and what they answered", pictures, large=True))
    return Section("pretraining", title, blocks or [missing("No encoder", "see data/models")])


def course(table: pd.DataFrame, name: str) -> list[Block]:
    """Charts of a training's curves: losses in one, shares from 0 to 1 in the next, guesses in the last."""
    measured: dict[str, list[dict[str, Any]]] = {"losses": [], "shares": [], "guesses": []}
    for column in table.columns:
        part, _, measure = str(column).partition("_")
        if part not in ("train", "validation"):
            continue
        told = WORDS.get(measure, measure.replace("_", " "))
        kind = "guesses" if measure in _OF_GUESSES else "shares" if measure in _SHARES else "losses"
        measured[kind] += [
            {
                "epoch": int(epoch),
                "name": told if kind == "guesses" else f"{part}: {told}",
                "value": round(float(value), 6),
            }
            for epoch, value in zip(table["epoch"], table[column], strict=True)
            if pd.notna(value)
        ]
    when = f"each of {len(table)} epochs" if len(table) > 1 else "the only epoch"
    is_error = any("error" in row["name"] for row in measured["guesses"])
    axes = {"losses": "loss", "shares": "share", "guesses": "error" if is_error else "part that is right"}
    blocks: list[Block] = []
    for what, rows in measured.items():
        if rows:
            title = f"{name}: {'guesses of unlabeled patches' if what == 'guesses' else what}"
            words = GUESSES_IN_WORDS if what == "guesses" else f"{name}, {what} at the end of {when}."
            blocks.append(Chart(title, charts.curves(rows, axes[what], len(table)), words))
    return blocks
