"""Report section on training: curves of student, fine-tuning and pretraining, and example images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from histo_monai.reports.site import charts
from histo_monai.reports.site.blocks import Block, Chart, Lines, Picture, Pictures, Section, missing
from histo_monai.utils.roles import FINETUNED, STUDENT

WORDS = {
    "loss": "loss",
    "accuracy": "accuracy",
    "supervised": "loss of labeled patches",
    "unlabeled": "loss of unlabeled patches",
    "consistency": "loss of unlabeled patches",
    "confidence": "confidence of the pseudo labels",
    "used": "fraction of pseudo labels used",
    "agreement": "agreement of student and teacher",
    "teacher_accuracy": "teacher accuracy on labeled patches",
    "teacher_entropy": "entropy of the teacher's pseudo labels, nats",
    "student_entropy": "entropy of the student's predictions, nats",
    "by_sharpness": "accuracy of sharpness alone",
    "by_contrast": "accuracy of contrast alone",
    "contrast": "contrastive loss",
    "nearest": "nearest patch is the matching one",
    "pseudo_label_accuracy": "all pseudo labels",
    "used_pseudo_label_accuracy": "pseudo labels that are used",
    "pseudo_label_absolute_error": "mean absolute error of the pseudo labels",
    "mae": "mean absolute error",
}
_FRACTIONS = (
    *("accuracy", "confidence", "used", "agreement", "teacher_accuracy"),
    *("by_sharpness", "by_contrast", "nearest"),
)
_OF_PSEUDO_LABELS = ("pseudo_label_accuracy", "used_pseudo_label_accuracy", "pseudo_label_absolute_error")

PSEUDO_LABELS_IN_WORDS = (
    "Pseudo labels compared with labels that alpha excludes and no training uses. Decreasing accuracy, or used "
    "pseudo labels no better than all, indicate wrong training targets."
)
NO_STEP = "The student has no training step: its weights are the fine-tuned model's."
NO_PSEUDO_LABELS = "the method has no pseudo labels, or alpha excludes no label to compare with"


def training_section(
    student: pd.DataFrame | None, finetuned: pd.DataFrame | None, run: str, pairs: str, choice: Sequence[str]
) -> Section:
    """Section on a run's student and fine-tuned model.

    Args:
        student: one row per epoch, none if the method has no step; None without labeled patches.
        finetuned: curves of the fine-tuned model.
        run: name of the run.
        pairs: path of the picture of weak and strong views, relative to the page; empty without.
        choice: selected model, and the reason.
    """
    title = "Students and teachers"
    if student is None:
        return Section("training", title, [missing("No student was trained", "no patch is labeled")])
    blocks: list[Block] = [Lines([run, *choice])]
    blocks += course(student, "Student") if len(student) else [Lines([NO_STEP])]
    of_pseudo_labels = [student[f"train_{name}"] for name in _OF_PSEUDO_LABELS if f"train_{name}" in student]
    if len(student) and not any(column.notna().any() for column in of_pseudo_labels):
        blocks.append(missing("The accuracy of pseudo labels is unknown", NO_PSEUDO_LABELS))
    if finetuned is not None and not finetuned.empty:
        blocks += course(finetuned, "Fine-tuned model")
    if pairs:
        alt = "Weak and strong views of unlabeled patches, with predictions of teacher and student; red: they differ"
        blocks.append(Pictures("Views of unlabeled patches", [Picture(pairs, alt)], alt + ".", large=True))
    return Section("training", title, blocks)


def of_start(weight: float) -> list[str]:
    """Sentence on the fine-tuned model's weight in the student; empty for weight 0.

    Args:
        weight: interpolation weight of the fine-tuned model.
    """
    if weight == 1:
        return ["No student was better on held-out labels, so the student equals the fine-tuned model."]
    if weight > 0:
        return [
            f"Weight of the fine-tuned model in the student: {100 * weight:g} %, the best on held-out labels."
        ]
    return []


def pretraining_section(curves: dict[str, pd.DataFrame], pictures: Sequence[Picture]) -> Section:
    """Section on every encoder; `curves` by name, one row per epoch, none without training."""
    title = "Pretraining"
    trained = {name: table for name, table in curves.items() if not table.empty}
    blocks: list[Block] = []
    for name, table in trained.items():
        blocks += course(table, name)
    untrained = [name for name in curves if name not in trained]
    if untrained:
        blocks.append(Lines([f"Without training: {', '.join(untrained)}."]))
    if pictures:
        blocks.append(Pictures("Pretraining tasks and predictions", pictures, large=True))
    return Section("pretraining", title, blocks or [missing("No encoder", "see data/models")])


def course(table: pd.DataFrame, name: str) -> list[Block]:
    """Charts of training curves: losses, fractions (0 to 1), pseudo labels."""
    measured: dict[str, list[dict[str, Any]]] = {"losses": [], "fractions": [], "pseudo labels": []}
    for column in table.columns:
        part, _, measure = str(column).partition("_")
        if part not in ("train", "validation"):
            continue
        text = WORDS.get(measure, measure.replace("_", " "))
        kind = (
            "pseudo labels"
            if measure in _OF_PSEUDO_LABELS
            else "fractions"
            if measure in _FRACTIONS
            else "losses"
        )
        measured[kind] += [
            {
                "epoch": int(epoch),
                "name": text if kind == "pseudo labels" else f"{part}: {text}",
                "value": round(float(value), 6),
            }
            for epoch, value in zip(table["epoch"], table[column], strict=True)
            if pd.notna(value)
        ]
    when = f"each of {len(table)} epochs" if len(table) > 1 else "the only epoch"
    is_error = any("error" in row["name"] for row in measured["pseudo labels"])
    axes = {"losses": "loss", "fractions": "fraction", "pseudo labels": "error" if is_error else "accuracy"}
    blocks: list[Block] = []
    for what, rows in measured.items():
        if rows:
            title = f"{name}: {what}"
            words = (
                PSEUDO_LABELS_IN_WORDS if what == "pseudo labels" else f"{name}, {what} at the end of {when}."
            )
            blocks.append(Chart(title, charts.curves(rows, axes[what], len(table)), words))
    return blocks


def why_chosen(choice: Mapping[str, Any]) -> str:
    """One or two sentences with the selected model and the reason."""
    name = {FINETUNED: "the fine-tuned model", STUDENT: "the student"}[choice["chosen"]]
    if "difference" not in choice:
        return f"Selected model: {name}. {choice['why']}."
    difference = choice["difference"]
    ends = (
        f"{difference['low']:+.3f} to {difference['high']:+.3f}"
        if difference.get("low") is not None
        else "no interval"
    )
    return (
        f"On held-out labels, student minus fine-tuned is {difference['value']:+.3f} ({ends}) in {choice['measure']}. "
        f"Selected model: {name}. A student is selected only if this interval is above 0."
    )
