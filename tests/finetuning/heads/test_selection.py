"""`finetuning.heads.selection`: folds keep patients apart, calibration lowers loss, the module predicts the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from histo_monai.finetuning.heads import HEADS
from histo_monai.finetuning.heads.calibration import log_losses, mixture_weights, temperature_of
from histo_monai.finetuning.heads.features import (
    COLOR_NAME,
    CONCATENATED,
    FIELD_NAME,
    WITH_FIELD,
    standardizations,
)
from histo_monai.finetuning.heads.rows import LinearModel
from histo_monai.finetuning.heads.selection import Labels, clustered_error, select_head
from histo_monai.finetuning.heads.settings import SelectionSettings
from histo_monai.utils.errors import InputError

RNG = np.random.default_rng(1)
PATIENTS = np.repeat([f"patient {number}" for number in range(6)], 15)
CLASSES = RNG.integers(0, 3, 90)
SCORES = RNG.uniform(size=90)


def features_of(targets: np.ndarray, size: int, noise: float) -> np.ndarray:
    directions = np.random.default_rng(size).normal(size=(3, size))
    clean = directions[targets] if targets.dtype.kind == "i" else targets[:, None] * directions[0]
    return (5 + clean + RNG.normal(0, noise, (len(targets), size))).astype(np.float32)


DEPTHS = {"late": features_of(CLASSES, 30, 2.0), "early": features_of(CLASSES, 12, 4.0)}
SCORED = {"late": features_of(SCORES, 30, 0.3)}
LABELS = Labels(CLASSES, PATIENTS, 3)


def selected(**changes: Any) -> Any:
    return select_head(DEPTHS, LABELS, DEPTHS, replace(SelectionSettings(), **changes), 0)


@pytest.mark.parametrize("rule", ["best", "one_se", "average", "stack"])
def test_the_module_predicts_what_the_arrays_predict(rule: str) -> None:
    head = selected(rule=rule)
    side_by_side = torch.from_numpy(np.concatenate([DEPTHS["early"], DEPTHS["late"]], axis=1))
    np.testing.assert_allclose(
        torch.softmax(head.module()(side_by_side), dim=1), head.predict(DEPTHS), atol=2e-5
    )
    assert sum(part.weight for part in head.parts) == pytest.approx(1)


@pytest.mark.parametrize("rule", ["best", "one_se", "average", "stack"])
def test_the_module_of_scores_predicts_what_the_arrays_predict(rule: str) -> None:
    head = select_head(SCORED, Labels(SCORES, PATIENTS, None), SCORED, SelectionSettings(rule=rule), 0)
    predictions = head.predict(SCORED)
    np.testing.assert_allclose(head.module()(torch.from_numpy(SCORED["late"])), predictions, atol=2e-5)
    assert np.corrcoef(predictions[:, 0], SCORES)[0, 1] > 0.9


def test_a_module_is_saved_and_loaded_by_its_state() -> None:
    module = selected().module()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    other = selected().module()
    for tensor in other.state_dict().values():
        tensor.zero_()
    other.load_state_dict(state)
    rows = torch.from_numpy(np.concatenate([DEPTHS["early"], DEPTHS["late"]], axis=1))
    assert torch.equal(other(rows), module(rows))


def test_no_fold_predicts_a_patient_that_it_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is its own feature, so a head can record the patients that it learns from and predicts."""
    marks = {"marks": np.arange(90, dtype=np.float32)[:, None]}
    pairs: list[tuple[set[str], set[str]]] = []

    class Recorder(LinearModel):
        learned: set[str]

        def outputs(self, rows: np.ndarray) -> np.ndarray:
            pairs.append((self.learned, patients(rows)))
            return super().outputs(rows)

    def patients(rows: np.ndarray) -> set[str]:
        numbers = np.rint(rows[:, 0] * np.arange(90).std() + np.arange(90).mean()).astype(int)
        return set(PATIENTS[numbers])

    def fit(rows: np.ndarray, targets: Any, num_classes: int, weights: Any, grid: Any) -> list[Any]:
        model = Recorder(np.zeros((num_classes, 1)), np.zeros(num_classes))
        object.__setattr__(model, "learned", patients(rows))
        return [model for _ in grid]

    monkeypatch.setattr(HEADS["logistic"], "fit", fit)
    select_head(marks, LABELS, marks, SelectionSettings(class_heads=("logistic",)), 0)
    assert set().union(*(held_out for _, held_out in pairs)) == set(PATIENTS)
    assert all(learned and held_out and not learned & held_out for learned, held_out in pairs)


def test_features_and_labels_of_other_patches_do_not_matter_but_for_the_standardization() -> None:
    changed = {name: np.concatenate([rows, rows]) for name, rows in DEPTHS.items()}
    again = select_head(DEPTHS, LABELS, changed, SelectionSettings(), 0)
    np.testing.assert_allclose(again.predict(DEPTHS), selected().predict(DEPTHS), atol=1e-6)


def test_a_class_of_one_patient_gives_the_default_head_with_a_reason() -> None:
    rows = np.flatnonzero((CLASSES != 2) | (PATIENTS == "patient 0"))
    few = {name: x[rows] for name, x in DEPTHS.items()}
    head = select_head(few, Labels(CLASSES[rows], PATIENTS[rows], 3), DEPTHS, SelectionSettings(), 0)
    assert [part.candidate.head for part in head.parts] == ["class_means"]
    assert "class '2'" in head.why_default
    assert not head.losses


def test_a_class_without_a_label_has_a_small_probability() -> None:
    rows = np.flatnonzero(CLASSES != 1)
    few = {name: x[rows] for name, x in DEPTHS.items()}
    head = select_head(few, Labels(CLASSES[rows], PATIENTS[rows], 3), DEPTHS, SelectionSettings(), 0)
    predictions = head.predict(DEPTHS)
    np.testing.assert_allclose(predictions.sum(axis=1), 1)
    np.testing.assert_allclose(predictions[:, 1], 1e-3 / (1 + 1e-3))
    side_by_side = torch.from_numpy(np.concatenate([DEPTHS["early"], DEPTHS["late"]], axis=1))
    np.testing.assert_allclose(torch.softmax(head.module()(side_by_side), dim=1), predictions, atol=2e-5)


def test_a_narrowed_head_reads_the_depths_of_its_parts_alone() -> None:
    noise = np.random.default_rng(5).normal(size=(90, 20)).astype(np.float32)
    depths = {"a": noise, "b": DEPTHS["late"], "c": noise[::-1].copy(), "d": DEPTHS["early"]}
    settings = SelectionSettings(rule="best", depths="each")
    whole = select_head(depths, LABELS, depths, settings, 0)
    head = whole.narrowed()
    assert head.depths == ("b",)
    outputs = head.module()(torch.from_numpy(depths["b"]))
    np.testing.assert_allclose(torch.softmax(outputs, dim=1), head.predict(depths), atol=2e-5)
    of_d = select_head({"d": depths["d"]}, LABELS, {"d": depths["d"]}, settings, 0)
    made = standardizations(depths, "each")["d"]
    more = [replace(part, standardization=made) for part in of_d.parts]
    both = replace(whole, parts=(*whole.parts, *more))
    both = replace(
        both, parts=tuple(replace(part, weight=1 / len(both.parts)) for part in both.parts)
    ).narrowed()
    assert both.depths == ("b", "d")
    side_by_side = torch.from_numpy(np.concatenate([depths["b"], depths["d"]], axis=1))
    outputs = both.module()(side_by_side)
    np.testing.assert_allclose(torch.softmax(outputs, dim=1), both.predict(depths), atol=2e-5)
    of_all = select_head(DEPTHS, LABELS, DEPTHS, replace(settings, depths="concatenated"), 0)
    np.testing.assert_array_equal(
        of_all.narrowed().parts[0].standardization.columns, of_all.parts[0].standardization.columns
    )


def test_color_is_used_beside_other_depths_alone() -> None:
    depths = {COLOR_NAME: DEPTHS["late"], "encoder": DEPTHS["early"]}
    head = select_head(depths, LABELS, depths, SelectionSettings(), 0)
    assert {candidate.depth for candidate in head.losses} == {"encoder", CONCATENATED}
    rows = np.flatnonzero((CLASSES != 2) | (PATIENTS == "patient 0"))
    few = {name: x[rows] for name, x in depths.items()}
    head = select_head(few, Labels(CLASSES[rows], PATIENTS[rows], 3), depths, SelectionSettings(), 0)
    assert head.narrowed().depths == ("encoder",)


def test_the_field_is_used_beside_the_encoder_and_not_beside_color() -> None:
    noise = np.random.default_rng(6).normal(size=(90, 40)).astype(np.float32)
    depths = {COLOR_NAME: noise, FIELD_NAME: DEPTHS["late"], "encoder": DEPTHS["early"]}
    head = select_head(depths, LABELS, depths, SelectionSettings(), 0)
    assert {each.depth for each in head.losses} == {"encoder", CONCATENATED, WITH_FIELD}
    made = standardizations(depths, "both")
    assert made[CONCATENATED].names == (COLOR_NAME, "encoder")
    assert made[WITH_FIELD].names == (FIELD_NAME, "encoder")
    side_by_side = np.concatenate([depths[name] for name in sorted(depths)], axis=1)
    for each in made.values():
        expected = np.concatenate([depths[name] for name in each.names], axis=1)
        np.testing.assert_array_equal(side_by_side[:, each.columns], expected)
    head = select_head(depths, LABELS, depths, SelectionSettings(depths="concatenated", rule="best"), 0)
    narrow = head.narrowed()
    assert narrow.depths == (FIELD_NAME, "encoder")
    read = np.concatenate([depths[name] for name in narrow.depths], axis=1)
    outputs = narrow.module()(torch.from_numpy(read))
    np.testing.assert_allclose(torch.softmax(outputs, dim=1), head.predict(depths), atol=2e-5)


def test_without_cross_validation_the_field_is_not_used() -> None:
    depths = {FIELD_NAME: DEPTHS["late"], "encoder": DEPTHS["early"]}
    assert set(standardizations(depths, "both")) == {"encoder", WITH_FIELD}
    rows = np.flatnonzero((CLASSES != 2) | (PATIENTS == "patient 0"))
    few = {name: x[rows] for name, x in depths.items()}
    head = select_head(few, Labels(CLASSES[rows], PATIENTS[rows], 3), depths, SelectionSettings(), 0)
    assert head.depths == ("encoder",)


def test_labels_of_one_class_name_the_mend() -> None:
    with pytest.raises(InputError, match="Fix: label patches of another"):
        select_head(DEPTHS, Labels(np.zeros(90, np.int64), PATIENTS, 3), DEPTHS, SelectionSettings(), 0)


def test_one_standard_error_leads_to_the_default_where_nothing_can_be_predicted() -> None:
    noise = {"noise": RNG.normal(size=(90, 20)).astype(np.float32)}
    head = select_head(noise, LABELS, noise, SelectionSettings(rule="one_se"), 0)
    assert head.parts[0].candidate.head == "class_means"


def test_depths_side_by_side_weigh_equally() -> None:
    rows = standardizations(DEPTHS, "both")[CONCATENATED].of(DEPTHS)
    variances = rows.var(axis=0)
    np.testing.assert_allclose(variances[:12].sum(), variances[12:].sum(), rtol=1e-6)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-6)


def test_temperature_is_the_best_of_a_fine_grid() -> None:
    logits = RNG.normal(size=(90, 3)) * 4 + 2 * np.eye(3)[CLASSES]
    grid = np.exp(np.linspace(-3, 3, 4001))
    losses = [-log_softmax(logits / t, axis=1)[np.arange(90), CLASSES].mean() for t in grid]
    best = temperature_of(logits, CLASSES, np.ones(90))
    assert best == pytest.approx(grid[int(np.argmin(losses))], rel=5e-3)
    assert log_losses(logits, CLASSES, best).mean() <= min(losses) + 1e-9


def test_mixture_weights_are_the_best_of_a_fine_grid() -> None:
    likelihoods = RNG.uniform(0.05, 1, (200, 2))
    grid = np.linspace(0, 1, 2001)
    losses = [-np.log(likelihoods @ [w, 1 - w]).mean() for w in grid]
    weights = mixture_weights(likelihoods, np.ones(200))
    assert weights[0] == pytest.approx(grid[int(np.argmin(losses))], abs=5e-3)


def test_clustered_error_of_rows_alone_is_that_of_a_mean() -> None:
    values = RNG.normal(size=50)
    expected = values.std(ddof=1) / np.sqrt(50)
    assert clustered_error(values, np.arange(50), np.ones(50)) == pytest.approx(expected)
    repeated = clustered_error(np.repeat(values, 4), np.repeat(np.arange(50), 4), np.ones(200))
    assert repeated == pytest.approx(expected)
