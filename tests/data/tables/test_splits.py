from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.splits import (
    check_patients_apart,
    in_order_of_splits,
    label_ranks,
    labeled_rows,
    random_splits,
    split_slides,
)


def _table(patients: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"slide_id": [f"s{i}" for i in range(len(patients))], "patient_id": patients})


def test_a_patient_is_never_on_both_sides() -> None:
    table = _table([f"p{i % 7}" for i in range(40)])
    for seed in range(20):
        split = split_slides(table, 0.25, np.random.default_rng(seed))
        assert split.groupby(table["patient_id"]).nunique().max() == 1
        assert 0.25 * 40 <= (split == "validation").sum() <= 0.25 * 40 + 6


def test_slides_without_a_patient_are_split_one_by_one() -> None:
    split = split_slides(_table([""] * 12), 0.25, np.random.default_rng(0))
    assert (split == "validation").sum() == 3


def test_one_patient_alone_cannot_be_split() -> None:
    with pytest.raises(ValueError, match=r"all 3 slides are of one patient \(a\)"):
        split_slides(_table(["a", "a", "a"]), 0.2, np.random.default_rng(0))


def test_training_keeps_a_patient_whatever_the_fraction() -> None:
    split = split_slides(_table(["a", "b"]), 0.9, np.random.default_rng(0))
    assert set(split) == {"train", "validation"}


def test_the_order_of_rows_does_not_change_the_split() -> None:
    table = _table([f"p{i}" for i in range(10)])
    split = split_slides(table, 0.3, np.random.default_rng(1))
    turned = split_slides(table[::-1], 0.3, np.random.default_rng(1))
    assert (split.sort_index() == turned.sort_index()).all()


def test_a_given_split_with_a_patient_on_two_sides_is_refused_by_name() -> None:
    table = _table(["a", "a", "b"]).assign(split=["train", "validation", "train"])
    with pytest.raises(ValueError, match=r"patient 'a' .*s0 in train and s1 in validation"):
        check_patients_apart(table)
    check_patients_apart(table.assign(split=["train", "train", "validation"]))


def _patches(num: int, **columns: object) -> pd.DataFrame:
    defaults = {"patient_id": "", "slide_id": "", "label": "x", "score": np.nan, "split": ""}
    ids = pd.Series([f"p{i:06d}" for i in range(num)])
    return pd.DataFrame({"patch_id": ids, **defaults, **columns})


def _draw(table: pd.DataFrame, fraction: float = 0.25, seed: int = 0, **options: object) -> pd.Series:
    return random_splits(table, fraction, np.random.default_rng(seed), **options)  # type: ignore[arg-type]


def test_patches_without_any_id_are_split_class_by_class_to_the_patch() -> None:
    table = _patches(1000, label=["a"] * 800 + ["b"] * 200)
    drawn = table.assign(split=_draw(table, 0.2))
    assert drawn.groupby(["label", "split"]).size().to_dict() == {
        ("a", "train"): 640,
        ("a", "validation"): 160,
        ("b", "train"): 160,
        ("b", "validation"): 40,
    }


@pytest.mark.parametrize("column", ["patient_id", "slide_id"])
def test_patches_of_a_patient_or_a_slide_stay_together(column: str) -> None:
    generator = np.random.default_rng(1)
    names = [f"g{i}" for i in generator.integers(0, 30, 600)]
    table = _patches(600, label=generator.choice(["a", "b"], 600), **{column: names})
    for seed in range(5):
        split = _draw(table, seed=seed)
        assert split.groupby(table[column]).nunique().max() == 1
        fraction = (split == "validation").mean()
        assert 0.25 <= fraction < 0.25 + 40 / 600  # at most one group more than asked for


def test_the_patient_decides_where_it_is_known_although_its_slides_differ() -> None:
    table = _patches(40, slide_id=[f"s{i}" for i in range(40)], patient_id=["p", "q", "r", ""] * 10)
    split = _draw(table)
    known = table["patient_id"] != ""
    assert split[known].groupby(table["patient_id"][known]).nunique().max() == 1


def test_patients_of_one_class_each_are_drawn_class_by_class() -> None:
    patients = [f"p{i // 10}" for i in range(400)]
    table = _patches(400, patient_id=patients, label=["rare"] * 40 + ["common"] * 360)
    for seed in range(10):
        split = _draw(table, seed=seed)
        assert (split[:40] == "validation").sum() == 10  # one of four patients
        assert (split[40:] == "validation").sum() == 90


def test_given_splits_stay_and_the_order_of_rows_decides_nothing() -> None:
    generator = np.random.default_rng(2)
    given = generator.choice(["", "test"], 200)
    table = _patches(200, split=given, slide_id=[f"s{i % 20}" for i in range(200)])
    split = _draw(table)
    assert ((split == "test") == (given == "test")).all()
    turned = table.sample(frac=1, random_state=0)
    assert (_draw(turned).sort_index() == split).all()
    assert not (_draw(table, seed=1) == split).all()


def test_images_with_the_same_pixels_stay_together_where_no_patient_decides() -> None:
    twins = pd.Series([f"d{i // 4}" if i < 80 else "" for i in range(160)])
    split = _draw(_patches(160), twins=twins)
    assert split[:80].groupby(twins[:80]).nunique().max() == 1
    assert split[80:].nunique() == 2


def test_a_single_patient_is_refused_unless_validation_may_come_from_it() -> None:
    table = _patches(40, patient_id="anna", label=["a", "b"] * 20)
    with pytest.raises(
        ValueError, match=r"all 40 patches .* of one patient anna.*validation_within_patients"
    ):
        _draw(table)
    split = _draw(table, within_patients=True)
    assert (split == "validation").sum() == 10


def test_a_class_of_a_single_patient_cannot_be_on_both_sides_and_is_named() -> None:
    table = _patches(60, patient_id=[f"p{i // 10}" for i in range(60)], label=["rare"] * 10 + ["common"] * 50)
    with pytest.raises(ValueError, match="class 'rare' is in so few patients"):
        _draw(table)


def test_two_mixed_patients_among_many_are_found_on_both_sides() -> None:
    label = ["common"] * 100
    label[3] = label[95] = "rare"
    table = _patches(100, patient_id=[f"p{i // 10}" for i in range(100)], label=label)
    for seed in range(5):
        split = _draw(table, seed=seed)
        assert {split[3], split[95]} == {"train", "validation"}


def test_a_hundred_thousand_slides_are_split_in_well_under_a_second() -> None:
    label = np.random.default_rng(0).choice(["a", "b", "c"], 100_000)
    table = _patches(100_000, slide_id=[f"s{i}" for i in range(100_000)], label=label)
    began = time.process_time()
    _draw(table)
    assert time.process_time() - began < 1  # 0.15 s on the machine this was written on


def _ranked(table: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    return table.assign(label_rank=label_ranks(table, np.random.default_rng(seed)))


def test_rows_stand_by_split_and_name() -> None:
    """Truth: pandas' sort of two columns."""
    random = np.random.default_rng(0)
    names = [f"slide {number % 7}-{number}" for number in random.permutation(500)]
    table = pd.DataFrame({"patch_id": names, "split": random.choice(["test", "train", "validation"], 500)})
    table["y"] = random.random(500)
    order = table["split"].map(["train", "validation", "test"].index)
    expected = table.assign(order=order).sort_values(["order", "patch_id"], ignore_index=True)
    pd.testing.assert_frame_equal(in_order_of_splits(table), expected.drop(columns="order"))


@pytest.mark.parametrize("alpha", [0.013, 0.1, 0.25, 0.333, 0.5, 1.0])
def test_alpha_takes_its_part_of_every_class_and_the_labels_of_a_smaller_alpha(alpha: float) -> None:
    label = np.repeat(["a", "b", "c"], [500, 1001, 77])
    table = _ranked(_patches(1578, label=label, split="train"))
    rows = labeled_rows(table, alpha)
    for name, size in (("a", 500), ("b", 1001), ("c", 77)):
        assert abs((rows["label"] == name).sum() - alpha * size) <= 0.5
    assert rows["patch_id"].is_unique
    assert set(rows["patch_id"]) >= set(labeled_rows(table, alpha * 0.9)["patch_id"])


def test_scores_are_ranked_in_ten_equal_bins_of_their_range() -> None:
    score = np.random.default_rng(0).random(5000) ** 3
    score[:300] = 1.0
    table = _ranked(_patches(5000, label="", score=score, split="train"))
    chosen = labeled_rows(table, 0.1)["score"].to_numpy()
    for low in np.arange(10) / 10:
        inside = [
            ((part >= low) & ((part < low + 0.1 - 1e-12) | (low == 0.9))).sum() for part in (score, chosen)
        ]
        assert abs(inside[1] - 0.1 * inside[0]) <= 0.5


def test_only_training_patches_have_a_rank_and_the_order_of_rows_does_not_matter() -> None:
    split = np.random.default_rng(0).choice(["train", "validation", "test"], 300)
    table = _patches(300, split=split, label=["a", "b", "c"] * 100)
    ranked = _ranked(table)
    assert (ranked["label_rank"].notna() == (split == "train")).all()
    assert ranked["label_rank"].dropna().between(0, 1, inclusive="left").all()
    turned = _ranked(table.sample(frac=1, random_state=1)).sort_index()
    pd.testing.assert_frame_equal(turned, ranked)
    assert not _ranked(table, seed=1).equals(ranked)


@pytest.mark.parametrize(("alpha", "size"), [(0.001, 10), (0.0004, 40), (0.02, 24)])
def test_the_error_for_an_alpha_that_leaves_a_class_without_a_label_states_a_sufficient_alpha(
    alpha: float, size: int
) -> None:
    table = _ranked(_patches(2000 + size, label=["NORM"] * 2000 + ["TUM"] * size, split="train"))
    message = (
        rf"alpha {alpha:g} leaves class 'TUM' without a label: .* {size} training patches.* raise alpha to"
    )
    with pytest.raises(ValueError, match=message) as caught:
        labeled_rows(table, alpha)
    enough = float(str(caught.value).rsplit(" ", 1)[1].rstrip("."))
    assert (labeled_rows(table, enough)["label"] == "TUM").sum() == 1
    assert enough <= 0.5 / size + 0.001


def test_an_alpha_that_leaves_fewer_than_two_scores_is_refused() -> None:
    table = _ranked(_patches(60, label="", score=np.linspace(0, 1, 60), split="train"))
    with pytest.raises(
        ValueError, match=r"alpha 0\.001 leaves 0 of 60 training patches with a label"
    ) as caught:
        labeled_rows(table, 0.001)
    assert len(labeled_rows(table, float(str(caught.value).rsplit(" ", 1)[1].rstrip(".")))) >= 2
