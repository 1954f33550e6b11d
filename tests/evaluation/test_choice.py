from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from histo_monai.data.tables.tasks import dependence_groups, split_rows
from histo_monai.evaluation.choice import Choice, choose, read_choice
from histo_monai.evaluation.comparison.models import compare_models
from histo_monai.evaluation.metrics import Estimate
from tests.waves import WaveTask


def _choose(task: WaveTask, finetuned: torch.Tensor, student: torch.Tensor, seed: int = 0) -> Choice:
    """Of predictions of the validation patches."""
    rows = split_rows(task.patches, "validation")
    return choose(finetuned.numpy(), student.numpy(), task, rows, seed=seed)


def _difference(choice: Choice) -> Estimate:
    assert choice.difference is not None
    return choice.difference


@pytest.mark.parametrize(
    ("wrong_before", "wrong_after", "chosen"), [(20, 0, "student"), (0, 20, "finetuned"), (3, 2, "finetuned")]
)
def test_the_student_is_chosen_only_where_it_is_shown_to_be_better(
    wave_task: Callable[..., WaveTask], wrong_before: int, wrong_after: int, chosen: str
) -> None:
    task = wave_task(40)
    targets = task.in_order(split_rows(task.patches, "validation"), 7).targets

    def with_errors(count: int) -> torch.Tensor:
        outputs = nn.functional.one_hot(targets, 2).float()
        flipped = torch.linspace(0, 36, max(count, 1)).long()[:count]  # not as many of each patient
        outputs[flipped] = 1 - nn.functional.one_hot(targets[flipped], 2).float()
        return outputs

    choice = _choose(task, with_errors(wrong_before), with_errors(wrong_after))
    assert choice.chosen == chosen
    assert _difference(choice).value == pytest.approx((wrong_before - wrong_after) / 40)
    assert _difference(choice).n == 10  # patients


def test_the_choice_has_the_interval_of_the_comparison(wave_task: Callable[..., WaveTask]) -> None:
    task = wave_task(40)
    rows = split_rows(task.patches, "validation")
    targets = task.in_order(rows, 7).targets
    right = nn.functional.one_hot(targets, 2).float()
    some = torch.arange(40)[:, None] % 7 == 0
    choice = _choose(task, torch.where(some, 1 - right, right), right, seed=3)
    predictions = {
        "student": [right.softmax(1).double().numpy()],
        "finetuned": [torch.where(some, 1 - right, right).softmax(1).double().numpy()],
    }
    compared = compare_models({"": targets.numpy()}, predictions, dependence_groups(rows), seed=3)
    (test,) = (test for test in compared.tests if test.metric == "accuracy")
    assert _difference(choice).as_dict() == test.difference.as_dict()


def test_what_few_patients_show_by_chance_does_not_choose_the_student(
    wave_task: Callable[..., WaveTask],
) -> None:
    """Student and fine-tuned model are wrong equally often: in 5 % of draws the interval lies beside 0, half above."""
    task = wave_task(24)  # 6 patients of 4 patches
    rows = split_rows(task.patches, "validation")
    targets = task.in_order(rows, 24).targets
    right = nn.functional.one_hot(targets, 2).float()
    random = torch.Generator().manual_seed(0)

    def draw() -> torch.Tensor:
        wrong = torch.randn(6, 1, generator=random).repeat_interleave(4, 0)
        wrong = wrong + torch.randn(24, 1, generator=random) > 0.5
        return torch.where(wrong, 1 - right, right)

    def chosen() -> bool:
        return choose(draw().numpy(), draw().numpy(), task, rows, seed=0).chosen == "student"

    fraction = sum(chosen() for _ in range(200)) / 200
    assert fraction < 0.045  # percentiles of the bootstrap chose it in 0.075 of these draws


def test_scores_are_compared_by_their_squared_errors(wave_task: Callable[..., WaveTask]) -> None:
    task = wave_task(40, scores=True)
    targets = task.in_order(split_rows(task.patches, "validation"), 7).targets.unsqueeze(1)
    error = torch.linspace(0.1, 0.3, 40).unsqueeze(1)
    choice = _choose(task, targets + error * (targets < 0.5) - error * (targets >= 0.5), targets)
    assert choice.chosen == "student"
    assert _difference(choice).value == pytest.approx(float(error.square().mean()), rel=1e-4)
    assert choice.as_dict()["measure"] == "negative squared error"


@pytest.mark.parametrize("chosen", ["teacher", "", None, 1, ["student"], {"student": 1}])
def test_a_choice_that_lies_is_one_line(chosen: object, tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    path.write_text(json.dumps({"chosen": chosen}))
    with pytest.raises(ValueError, match=r"choice\.json: chosen is .*, expected finetuned or student"):
        read_choice(path)
    with pytest.raises(ValueError, match=r"nothing\.json: cannot be read .*Fix: run the consistency stage"):
        read_choice(tmp_path / "nothing.json")


def test_a_choice_is_read_as_it_was_written(tmp_path: Path) -> None:
    content = {"chosen": "student", "measure": "accuracy", "difference": {"value": 0.1}}
    (tmp_path / "choice.json").write_text(json.dumps(content))
    assert read_choice(tmp_path / "choice.json") == content


def test_a_choice_without_held_out_labels_states_the_reason(tmp_path: Path) -> None:
    content = Choice("finetuned", "", None, "one patient").as_dict()
    (tmp_path / "choice.json").write_text(json.dumps(content))
    assert read_choice(tmp_path / "choice.json") == {"chosen": "finetuned", "why": "one patient"}
