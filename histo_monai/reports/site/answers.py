"""Report section on correct and wrong predictions: confusion or scores, calibration, example patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from histo_monai.data.tables.predictions import Predictions
from histo_monai.evaluation.metrics import intraclass_correlation, reliability
from histo_monai.reports.figures import confusion_counts
from histo_monai.reports.site import charts
from histo_monai.reports.site.blocks import Block, Chart, Lines, Picture, Pictures, Section, missing, number
from histo_monai.utils.roles import FINETUNED, MODELS, STUDENT

NUM_CASES = 8
_IN_WORDS = {FINETUNED: "fine-tuned model", STUDENT: "student"}
_NUM_BINS = 15


@dataclass(frozen=True)
class Case:
    """Example patch.

    Attributes:
        row: of the predictions.
        caption: label and prediction.
    """

    row: int
    caption: str


def cases(part: Predictions) -> dict[str, list[Case]]:
    """Example patches of the student: confident and wrong, confident and correct, uncertain.

    Returns:
        Title -> cases, most typical first; of scores: largest and smallest errors.
    """
    given = part.predictions[STUDENT]
    if part.classes is None:
        known = next(iter(part.references.values()))
        off = np.abs(given - known)
        order = np.argsort(off, kind="stable")
        ids = {"Farthest off": order[::-1], "Nearest": order}
        return {
            title: [Case(int(i), f"{known[i]:.2f}, predicted {given[i]:.2f}") for i in rows[:NUM_CASES]]
            for title, rows in ids.items()
        }
    known = part.references[""]
    taken, sure = given.argmax(axis=1), given.max(axis=1)
    wrong, order = taken != known, np.argsort(-sure, kind="stable")
    kinds = {
        "Sure and wrong": order[wrong[order]],
        "Sure and right": _spread(order[~wrong[order]], known),
        "Not sure": order[::-1],
    }
    return {
        title: [
            Case(int(i), f"{part.classes[known[i]]}, predicted {part.classes[taken[i]]} ({sure[i]:.2f})")
            for i in rows[:NUM_CASES]
        ]
        for title, rows in kinds.items()
    }


def _spread(order: NDArray[np.int64], known: NDArray) -> NDArray[np.int64]:
    """Order with the classes alternating."""
    turns = np.zeros(len(order), np.int64)
    for label in np.unique(known[order]):
        of_label = known[order] == label
        turns[of_label] = np.arange(of_label.sum())
    return order[np.argsort(turns, kind="stable")]


def answers_section(part: Predictions | None, run: str, pictures: Mapping[str, Sequence[Picture]]) -> Section:
    """Section on the predictions of a run.

    Args:
        part: predictions of one split; None without labeled patches.
        run: name of the run.
        pictures: of the cases, by title.
    """
    title = "Correct and wrong predictions"
    if part is None:
        return Section("answers", title, [missing("No patch predictions", "no patch was labeled")])
    split = part.rows["split"].iloc[0]
    blocks: list[Block] = [Lines([f"{run}, {len(part.rows)} {split} patches."])]
    blocks += _of_scores(part) if part.classes is None else _of_classes(part, part.classes)
    blocks += [
        Pictures(name, some, "Patches at the network's resolution.") for name, some in pictures.items()
    ]
    return Section("answers", title, blocks)


def _of_classes(part: Predictions, classes: Sequence[str]) -> list[Block]:
    known = part.references[""]
    blocks: list[Block] = []
    for name in MODELS:
        counts = confusion_counts(known, part.predictions[name].argmax(axis=1), len(classes))
        right = np.trace(counts) / counts.sum()
        words = f"{right:.1%} are correct. Numbers: patches. Shade: fraction of the true class."
        blocks.append(Chart(f"Confusion, {_IN_WORDS[name]}", charts.confusion(counts, classes), words))
    bins = [
        {
            "name": _IN_WORDS[name],
            "confidence": round(each.confidence, 4),
            "accuracy": round(each.accuracy, 4),
            "patches": each.count,
        }
        for name in MODELS
        for each in reliability(known, part.predictions[name], _NUM_BINS)
        if each.count
    ]
    words = "Dashed line: calibrated. Points below it are overconfident. Marker area: number of patches."
    return [*blocks, Chart("Calibration", charts.reliability(bins), words, wide=True)]


def _of_scores(part: Predictions) -> list[Block]:
    blocks: list[Block] = []
    for ending, known in part.references.items():
        whose = f"score by pathologist {ending[1:].upper()}" if ending else "score by the pathologist"
        for name in MODELS:
            icc = intraclass_correlation(np.stack([known, part.predictions[name]], axis=1), form="ICC2")
            text = number(icc.value, icc.low, icc.high).text
            words = f"ICC(2,1) {text}. Dashed line: equal scores."
            spec = charts.scatter(known, part.predictions[name], whose)
            title = f"{_IN_WORDS[name][:1].upper()}{_IN_WORDS[name][1:]} against {whose}"
            blocks.append(Chart(title, spec, words))
    raters = list(part.references.values())
    if len(raters) == 2:
        icc = intraclass_correlation(np.stack(raters, axis=1), form="ICC2")
        agreed = number(icc.value, icc.low, icc.high).text
        text = f"Agreement of the two pathologists: {agreed}."
        blocks.insert(0, Lines([text]))
    return blocks


def path_of(title: str, number: int) -> Path:
    """Path of a case's picture, relative to the page."""
    return Path("cases", f"{title.lower().replace(' ', '-')}-{number}.png")
