"""Patches with predictions of them; for TensorBoard and `dvc plots`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from histo_monai.pictures.patches import PLAIN, RIGHT, WRONG, frame, pixels, show


def answers(
    patches: np.ndarray,
    predictions: np.ndarray,
    targets: Sequence[float],
    classes: list[str] | None,
    num: int = 24,
    columns: int = 8,
) -> np.ndarray:
    """Patches with the true label and the predicted one; a green frame where they agree, a red one where not.

    Args:
        patches: Shape (n, 3, H, H), uint8.
        predictions: Shape (n, K): probabilities of the classes, or the score.
        targets: class numbers or scores.
        classes: names; None for scores, which have no frame of right or wrong.
        num: how many to draw.
        columns: side by side.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(num, len(patches))
    rows = -(-num // columns)
    figure = Figure(figsize=(columns * 1.45, rows * 1.8), dpi=110, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for i, axis in enumerate(axes.flat):
        if i >= num:
            axis.axis("off")
            continue
        show(axis, patches[i].transpose(1, 2, 0) / 255)
        predicted = _in_words(predictions[i], classes)
        if classes is None:
            axis.set_title(f"is {targets[i]:.2f}\nsaid {predicted}", fontsize=7)
            continue
        true = classes[int(targets[i])]
        right = int(np.argmax(predictions[i])) == int(targets[i])
        axis.set_title(f"is {true}\nsaid {predicted}", fontsize=7, color="black" if right else WRONG)
        frame(axis, RIGHT if right else WRONG)
    return pixels(figure)


def weak_and_strong(
    weak: np.ndarray,
    strong: np.ndarray,
    teacher: np.ndarray,
    student: np.ndarray,
    classes: list[str] | None,
) -> np.ndarray:
    """Pairs of views: above what the teacher saw and predicted, below what the student saw and predicted.

    Args:
        weak: Shape (n, 3, P, P), float32, 0..1.
        strong: of the same images.
        teacher: predictions of the weak views, Shape (n, K).
        student: predictions of the strong views, Shape (n, K).
        classes: names; None for scores.

    Returns:
        Shape (H, W, 3), uint8; green frames where the two agree on the class, red ones where not.
    """
    num = len(weak)
    figure = Figure(figsize=(max(num, 2) * 1.45, 3.6), dpi=110, layout="constrained")
    axes = figure.subplots(2, num, squeeze=False)
    for i in range(num):
        agree = int(np.argmax(teacher[i])) == int(np.argmax(student[i]))
        color = PLAIN if classes is None else RIGHT if agree else WRONG
        for row, (who, views, predictions) in enumerate(
            (("teacher", weak, teacher), ("student", strong, student))
        ):
            axis = axes[row, i]
            show(axis, views[i].transpose(1, 2, 0))
            axis.set_title(f"{who}: {_in_words(predictions[i], classes)}", fontsize=7)
            frame(axis, color)
    return pixels(figure)


def _in_words(prediction: np.ndarray, classes: list[str] | None) -> str:
    if classes is None:
        return f"{float(prediction[0]):.2f}"
    best = int(np.argmax(prediction))
    return f"{classes[best]} {prediction[best]:.2f}"
