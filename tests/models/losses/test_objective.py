from __future__ import annotations

import math

import pytest
import torch

from histo_monai.models.losses import Classification, Regression

CLASSES = ["normal", "stroma", "tumor"]


def test_cross_entropy_of_known_probabilities() -> None:
    outputs = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]).log()
    measured = Classification(CLASSES).measure(outputs, torch.tensor([0, 1]))
    torch.testing.assert_close(measured["loss"], -torch.tensor([0.5, 0.1]).log())
    assert measured["accuracy"].tolist() == [1.0, 0.0]


def test_consistency_is_cross_entropy_against_the_arg_max_of_the_teacher() -> None:
    teacher = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]).log()
    student = torch.tensor([[0.2, 0.7, 0.1], [0.25, 0.25, 0.5]]).log()
    loss = Classification(CLASSES).consistency(student, teacher)
    torch.testing.assert_close(loss, -torch.tensor([0.2, 0.5]).log())


def test_a_threshold_leaves_out_what_the_teacher_is_not_sure_of_but_counts_it_in_the_mean() -> None:
    teacher = torch.tensor([[0.6, 0.3, 0.1], [0.05, 0.05, 0.9]]).log()
    student = torch.tensor([[0.2, 0.7, 0.1], [0.25, 0.25, 0.5]]).log()
    loss = Classification(CLASSES).consistency(student, teacher, 0.8)
    torch.testing.assert_close(loss, torch.tensor([0.0, math.log(2)]))
    assert Classification(CLASSES).pseudo_measure(student, teacher, 0.8)["used"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("objective", [Classification(CLASSES), Regression()])
def test_consistency_sends_no_gradient_to_the_teacher(objective: Classification | Regression) -> None:
    width = 3 if objective.classes else 1
    student = torch.randn(4, width, requires_grad=True)
    teacher = torch.randn(4, width, requires_grad=True)
    objective.consistency(student, teacher).mean().backward()
    assert student.grad is not None
    assert teacher.grad is None


def test_regression_measures_squared_and_absolute_errors() -> None:
    measured = Regression().measure(torch.tensor([[0.5], [1.5]]), torch.tensor([0.25, 1.0]))
    torch.testing.assert_close(measured["loss"], torch.tensor([0.0625, 0.25]))
    torch.testing.assert_close(measured["absolute_error"], torch.tensor([0.25, 0.5]))
    consistency = Regression().consistency(torch.tensor([[0.5]]), torch.tensor([[0.2]]))
    torch.testing.assert_close(consistency, torch.tensor([0.09]))


def test_scores_are_cut_to_their_scale() -> None:
    outputs = torch.tensor([[-0.2], [0.4], [1.7]])
    assert Regression().predictions(outputs).squeeze(1).tolist() == pytest.approx([0.0, 0.4, 1.0])


def test_the_model_of_higher_accuracy_is_selected_and_of_equal_ones_that_of_lower_loss() -> None:
    rank = Classification(CLASSES).rank
    assert rank({"accuracy": 0.9, "loss": 2.0}) < rank({"accuracy": 0.8, "loss": 0.1})
    assert rank({"accuracy": 0.9, "loss": 1.0}) < rank({"accuracy": 0.9, "loss": 2.0})
    assert Regression().rank({"loss": 0.1, "absolute_error": 9.0}) < Regression().rank(
        {"loss": 0.2, "absolute_error": 0.0}
    )


def test_entropy_of_an_even_prediction_is_the_log_of_the_classes() -> None:
    even = torch.zeros(2, 3)
    measures = Classification(CLASSES).pseudo_measure(even, torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0]]))
    torch.testing.assert_close(measures["student_entropy"], torch.full((2,), math.log(3)))
    assert measures["agreement"].tolist() == [1.0, 0.0]


def test_one_class_is_no_classification() -> None:
    with pytest.raises(ValueError, match="at least two classes"):
        Classification(["tumor"])
