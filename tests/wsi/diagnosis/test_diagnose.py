from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from histo_monai.slides.annotations import Region
from histo_monai.slides.tiles.grid import Grid
from histo_monai.wsi.diagnosis.diagnose import Learning, cell_auc, diagnose, shuffled_control, slide_estimates
from histo_monai.wsi.heatmaps.heatmap import Heatmap

LEARNING = Learning("rbf", (0.1, 1.0, 10.0), (0.1, 1.0), 3, 0)


def _features(is_tumor: np.ndarray, shift: float, seed: int) -> pd.DataFrame:
    """Two features; the first is `shift` standard deviations higher on slides with tumor."""
    rng = np.random.default_rng(seed)
    useful = rng.normal(size=len(is_tumor)) + shift * is_tumor
    return pd.DataFrame({"useful": useful, "max_probability": rng.uniform(size=len(is_tumor))})


def _simulated(num: int, num_test: int) -> tuple[np.ndarray, pd.Series]:
    is_tumor = np.arange(num) % 2 == 0
    return is_tumor, pd.Series(["train"] * (num - num_test) + ["test"] * num_test)


def _alone(num: int) -> np.ndarray:
    """A patient for each slide."""
    return np.array([f"patient {number}" for number in range(num)], object)


def test_test_slides_teach_nothing() -> None:
    is_tumor, split = _simulated(40, 20)
    features = _features(is_tumor, 2.0, 0)
    _, scores = diagnose(features, None, is_tumor, split, LEARNING, _alone(40))
    turned = np.where(split == "test", ~is_tumor, is_tumor)
    pd.testing.assert_frame_equal(diagnose(features, None, turned, split, LEARNING, _alone(40))[1], scores)


def test_a_classifier_fitted_to_maps_of_training_slides_is_overconfident() -> None:
    """Simulated overfitting: on seen slides a useless feature tells the label, which on new slides says nothing."""
    is_tumor, split = _simulated(120, 60)
    honest = _features(is_tumor, 1.5, 1)
    seen = honest.copy()
    teaches = (split != "test").to_numpy()
    seen.loc[teaches, "max_probability"] = 0.5 + 0.4 * np.where(is_tumor[teaches], 1, -1)
    _, scores = diagnose(honest, seen, is_tumor, split, LEARNING, _alone(120))
    estimates = slide_estimates(is_tumor[~teaches], pd.Series([""] * 60), scores[~teaches], _alone(60))
    assert estimates["slide_auc"].value > estimates["slide_auc_by_seen"].value + 0.1


def test_shuffled_labels_give_an_auc_near_one_half_and_true_ones_do_not() -> None:
    is_tumor, split = _simulated(80, 40)
    features = _features(is_tumor, 2.0, 2)
    _, scores = diagnose(features, None, is_tumor, split, LEARNING, _alone(80))
    test = (split == "test").to_numpy()
    true = slide_estimates(is_tumor[test], pd.Series([""] * 40), scores[test], _alone(40))["slide_auc"]
    learning = Learning("rbf", (1.0,), (0.1,), 3, 0)
    control = shuffled_control(features, is_tumor, split, learning, _alone(80), 60)
    assert abs(control.value - 0.5) < 0.12
    assert control.n == 60
    assert true.value > 0.85
    assert true.low > control.value


def test_intervals_of_slide_aucs_are_by_patient() -> None:
    """Each slide five times over tells nothing more: the interval of 20 slides stays that of 20, not of 100."""
    is_tumor, _ = _simulated(20, 0)
    scores = _features(is_tumor, 1.0, 3).rename(columns={"useful": "score"})
    sizes = pd.Series(np.where(is_tumor, "macro", ""))
    once = slide_estimates(is_tumor, sizes, scores, _alone(20))
    times = np.repeat(np.arange(20), 5)
    repeated = slide_estimates(
        is_tumor[times],
        sizes[times].reset_index(drop=True),
        scores.loc[times].reset_index(drop=True),
        _alone(20)[times],
    )
    for name, estimate in once.items():
        assert repeated[name].n == 20
        assert (repeated[name].low, repeated[name].high) == pytest.approx((estimate.low, estimate.high))


def test_patients_are_kept_apart_in_the_folds_that_diagnose_makes() -> None:
    """A slide that is there twice is no slide held out: as two patients it looks far easier than as one."""
    is_tumor = np.repeat([True, False], 20)
    features = _features(is_tumor, 0.0, 4)
    times = np.repeat(np.arange(40), 2)
    twice = features.loc[times].reset_index(drop=True)
    split = pd.Series(["train"] * 80)
    learning = Learning("rbf", (100.0,), (10.0,), 5, 0)
    by_patient, _ = diagnose(twice, None, is_tumor[times], split, learning, _alone(40)[times])
    by_slide, _ = diagnose(twice, None, is_tumor[times], split, learning, _alone(80))
    assert by_patient.cv_auc < 0.7
    assert by_slide.cv_auc > 0.9


def test_a_size_is_measured_against_all_normal_slides() -> None:
    """By hand: macro beats both normal slides, micro one of two."""
    is_tumor = np.array([True, True, False, False])
    scores = pd.DataFrame(
        {"score": [4.0, 2.0, 1.0, 3.0], "score_by_seen": [1.0, 2.0, 3.0, 4.0], "max_probability": [1.0] * 4}
    )
    estimates = slide_estimates(is_tumor, pd.Series(["macro", "micro", "", ""]), scores, _alone(4))
    values = {name: estimate.value for name, estimate in estimates.items()}
    assert values == {
        "slide_auc": 0.75,
        "slide_auc_macro": 1.0,
        "slide_auc_micro": 0.5,
        "slide_auc_by_seen": 0.0,
        "slide_auc_max_probability": 0.5,
    }


def test_absent_sizes_and_maps_are_not_reported() -> None:
    scores = pd.DataFrame({"score": [1.0, 0.0], "max_probability": [1.0, 0.0]})
    estimates = slide_estimates(np.array([True, False]), pd.Series(["itc", ""]), scores, _alone(2))
    assert set(estimates) == {"slide_auc", "slide_auc_max_probability"}


def _map(values: list[float]) -> Heatmap:
    """A row of cells of 10 px."""
    cells = np.array([(0, column) for column in range(len(values))])
    numbers = np.array(values, np.float32)
    return Heatmap(
        Grid(10.0, 1.0, (10, 10 * len(values))), cells, np.ones(len(values), np.float32), {"m": numbers}
    )


def test_cells_inside_the_outline_are_ranked_against_all_others() -> None:
    """By hand: the cells 0 and 1 of the first slide are tumor; 0.4 loses to the 0.5 of the normal slide alone."""
    square = Region(np.array([(0, 0), (0, 20), (10, 20), (10, 0)], float))
    maps = {"a": _map([0.9, 0.4, 0.1]), "b": _map([0.5])}
    columns = {"a": "m", "b": "m"}
    assert cell_auc(maps, columns, {"a": [square], "b": []}) == pytest.approx(3 / 4)
    assert np.isnan(cell_auc(maps, columns, {"a": [], "b": []}))
