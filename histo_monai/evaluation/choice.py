"""Selection between student and fine-tuned model: the student only where held-out labels show a gain."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray

from histo_monai.data.tables.tasks import dependence_groups, task_targets
from histo_monai.evaluation.comparison.paired import mean_difference
from histo_monai.evaluation.metrics import Estimate
from histo_monai.training.task import Task
from histo_monai.utils.roles import FINETUNED, MODELS, STUDENT
from histo_monai.utils.storage import read_json
from histo_monai.utils.storage.shapes import Rule


@dataclass(frozen=True)
class Choice:
    """Selected model and reason.

    Attributes:
        chosen: "student" if the interval of the difference lies above zero, else "finetuned".
        measure: compared measure, larger is better: accuracy, or the negative squared error.
        difference: student minus fine-tuned, mean over the held-out patches, with the interval of `mean_difference`
            over patients or slides. None without held-out labels.
        why: reason of a choice without a difference, in a line.
    """

    chosen: str
    measure: str
    difference: Estimate | None
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Content for JSON."""
        if self.difference is None:
            return {"chosen": self.chosen, "why": self.why}
        return {"chosen": self.chosen, "measure": self.measure, "difference": self.difference.as_dict()}


CHOICE_SHAPE = {
    "chosen": Rule(" or ".join(MODELS), lambda value: value in MODELS),
    "measure?": str,
    "difference?": {"value": float, "low?": (float, None), "high?": (float, None)},
    "why?": str,
    "interpolation_weight?": float,
}


def read_choice(path: Path) -> dict[str, Any]:
    """Content of `Choice.as_dict`, from JSON.

    Raises:
        InputError: the file is missing or has another content; names it.
    """
    return read_json(path, "run the consistency stage again", CHOICE_SHAPE)


def choose(
    finetuned: NDArray,
    student: NDArray,
    task: Task,
    rows: pd.DataFrame,
    *,
    seed: int,
) -> Choice:
    """Select a model by a paired interval on the held-out patches.

    The held-out labels also selected the weights of both models. The student has the fine-tuned model among its
    candidates, so selection on few labels favors the student by chance.

    Args:
        finetuned: predictions of the fine-tuned model, (n, K).
        student: predictions of the student, (n, K).
    """
    targets = task_targets(rows, task.classes)
    goodness = [
        task.objective.right(torch.from_numpy(predictions), targets).double().numpy()
        for predictions in (finetuned, student)
    ]
    difference = mean_difference(goodness[1], goodness[0], dependence_groups(rows), seed=seed)
    chosen = STUDENT if difference.low > 0 else FINETUNED
    return Choice(chosen, "accuracy" if task.classes else "negative squared error", difference)
