from __future__ import annotations

import numpy as np

from histo_monai.training.pictures.predictions import RIGHT, WRONG, answers, weak_and_strong


def _pixels_of(picture: np.ndarray, color: str) -> int:
    wanted = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(picture.astype(int) - wanted).max(axis=-1) <= 2).sum())


def _says(classes: list[int]) -> np.ndarray:
    return np.eye(2)[classes] * 0.8 + 0.1


def test_right_answers_have_a_green_frame_and_wrong_ones_a_red_frame() -> None:
    patches = np.full((4, 3, 16, 16), 200, np.uint8)
    all_right = answers(patches, _says([0, 1, 0, 1]), [0, 1, 0, 1], ["normal", "tumor"])
    all_wrong = answers(patches, _says([1, 0, 1, 0]), [0, 1, 0, 1], ["normal", "tumor"])
    assert _pixels_of(all_right, WRONG) == 0 < _pixels_of(all_right, RIGHT)
    assert _pixels_of(all_wrong, RIGHT) == 0 < _pixels_of(all_wrong, WRONG)


def test_scores_have_no_frame_of_right_or_wrong() -> None:
    picture = answers(np.zeros((3, 3, 16, 16), np.uint8), np.full((3, 1), 0.5), [0.1, 0.5, 0.9], None)
    assert _pixels_of(picture, RIGHT) == _pixels_of(picture, WRONG) == 0
    assert picture.dtype == np.uint8


def test_pairs_on_which_teacher_and_student_differ_are_framed_in_red() -> None:
    views = np.full((3, 3, 16, 16), 0.5, np.float32)
    classes = ["normal", "tumor"]
    agree = weak_and_strong(views, views, _says([0, 1, 1]), _says([0, 1, 1]), classes)
    differ = weak_and_strong(views, views, _says([0, 1, 1]), _says([1, 0, 0]), classes)
    assert _pixels_of(agree, WRONG) == 0 < _pixels_of(agree, RIGHT)
    assert _pixels_of(differ, RIGHT) == 0 < _pixels_of(differ, WRONG)
