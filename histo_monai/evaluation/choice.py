"""Do no harm: the student replaces the fine-tuned model only where validation shows that it is better."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import nn

from histo_monai.comparison.paired import mean_difference
from histo_monai.engines.prediction import predict
from histo_monai.engines.task import Task
from histo_monai.loading.labeled import LabeledLoader
from histo_monai.metrics import Estimate
from histo_monai.roles import FINETUNED, MODELS, STUDENT
from histo_monai.storage import read_json
from histo_monai.storage.shapes import Rule
from histo_monai.tables.tasks import dependence_groups


@dataclass(frozen=True)
class Choice:
    """Which model to use, and why.

    Attributes:
        chosen: "student" if the interval of the difference lies above zero, else "finetuned".
        measure: what was compared, larger is better: accuracy, or the negative squared error.
        difference: student minus fine-tuned, mean over the validation patches; over patients or slides, by the rule of
            `compare` (`mean_difference`).
    """

    chosen: str
    measure: str
    difference: Estimate

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"chosen": self.chosen, "measure": self.measure, "difference": self.difference.as_dict()}


CHOICE_SHAPE = {
    "chosen": Rule(" or ".join(MODELS), lambda value: value in MODELS),
    "measure?": str,
    "difference?": {"value": float, "low?": (float, None), "high?": (float, None)},
    "start_share?": float,
}


def read_choice(path: Path) -> dict[str, Any]:
    """What `Choice.as_dict` gave, from JSON.

    Raises:
        InputError: the file is missing, or is another; names it.
    """
    return read_json(path, "run the consistency stage again", CHOICE_SHAPE)


def choose(
    finetuned: nn.Module,
    student: nn.Module,
    task: Task,
    rows: pd.DataFrame,
    validation: LabeledLoader,
    *,
    seed: int,
) -> Choice:
    """Compare two models on the same validation patches by a paired interval.

    The fine-tuned model was selected on these patches and the student was not, so the comparison leans to the former.

    Args:
        finetuned: patches -> outputs.
        student: the same.
        task: what is predicted.
        rows: the validation patches.
        validation: their loader.
        seed: of the bootstrap.
    """
    goodness = [
        task.objective.right(predict(model, task, validation.loader), validation.targets).double().numpy()
        for model in (finetuned, student)
    ]
    difference = mean_difference(goodness[1], goodness[0], dependence_groups(rows), seed=seed)
    chosen = STUDENT if difference.low > 0 else FINETUNED
    return Choice(chosen, "accuracy" if task.classes else "negative squared error", difference)
