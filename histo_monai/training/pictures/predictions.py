"""Pictures of patches with predictions, for TensorBoard and `dvc plots`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from histo_monai.training.pictures.patches import NEUTRAL, RIGHT, WRONG, Sheet


def answers(
    patches: np.ndarray,
    predictions: np.ndarray,
    targets: Sequence[float],
    classes: list[str] | None,
    num: int = 24,
    columns: int = 8,
) -> np.ndarray:
    """Picture of patches with true and predicted labels; green frame: equal, red: different.

    Args:
        patches: Shape (n, 3, H, H), uint8.
        predictions: Shape (n, K): class probabilities, or the score.
        classes: names; None for scores, which have no colored frame.

    Returns:
        Shape (H, W, 3), uint8.
    """
    num = min(num, len(patches))
    sheet = Sheet(-(-num // columns), columns, lines=2)
    for i in range(num):
        predicted = _in_words(predictions[i], classes)
        patch, place = patches[i] / 255, divmod(i, columns)
        if classes is None:
            sheet.show(place, patch, f"true {targets[i]:.2f}\npredicted {predicted}")
            continue
        true = _short(classes[int(targets[i])])
        right = int(np.argmax(predictions[i])) == int(targets[i])
        sheet.show(
            place,
            patch,
            f"true {true}\npredicted {predicted}",
            color="black" if right else WRONG,
            frame=RIGHT if right else WRONG,
        )
    return sheet.pixels()


def weak_and_strong(
    weak: np.ndarray,
    strong: np.ndarray,
    teacher: np.ndarray,
    student: np.ndarray,
    classes: list[str] | None,
) -> np.ndarray:
    """Picture of view pairs: above, weak views with the teacher's predictions; below, strong views with the student's.

    Args:
        weak: Shape (n, 3, P, P), float32, 0..1.
        strong: views of the images in `weak`.
        teacher: predictions of the weak views, Shape (n, K).
        student: predictions of the strong views, Shape (n, K).
        classes: names; None for scores.

    Returns:
        Shape (H, W, 3), uint8; green frames where both agree on the class, red where not.
    """
    sheet = Sheet(2, max(len(weak), 2), lines=2)
    for i in range(len(weak)):
        agree = int(np.argmax(teacher[i])) == int(np.argmax(student[i]))
        color = NEUTRAL if classes is None else RIGHT if agree else WRONG
        for row, (name, views, predictions) in enumerate(
            (("teacher", weak, teacher), ("student", strong, student))
        ):
            sheet.show((row, i), views[i], f"{name}\n{_in_words(predictions[i], classes)}", frame=color)
    return sheet.pixels()


def _in_words(prediction: np.ndarray, classes: list[str] | None) -> str:
    if classes is None:
        return f"{float(prediction[0]):.2f}"
    best = int(np.argmax(prediction))
    return f"{_short(classes[best])} {prediction[best]:.2f}"


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"
