"""Which rows trainings use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from histo_monai.data.tables.label_folds import LabelFolds
from histo_monai.data.tables.patches import labeled_table, write_patches
from histo_monai.data.tables.splits import label_ranks, with_label_ranks
from histo_monai.pipeline import paths
from histo_monai.pipeline.context import Assembly
from histo_monai.pipeline.paths import Run
from histo_monai.utils.randomness import generator


@pytest.fixture
def assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Assembly:
    """Slides a and b with two training patches each, c with one for validation; an unlabeled patch on a, b and d."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"slide_id": slide, "label": label, "split": split, "label_rank": rank}
        for slide, split, rank in (("a", "train", 0.25), ("b", "train", 0.75), ("c", "validation", None))
        for label in ("normal", "tumor")
    ]
    rows += [{"slide_id": slide, "split": ""} for slide in "abd"]
    place = [{"patch_id": str(i), "path": row["slide_id"], "side_px": 8} for i, row in enumerate(rows)]
    table = labeled_table([row | at for row, at in zip(rows, place, strict=True)])
    paths.INDEX.mkdir(parents=True)
    write_patches(paths.UNLABELED_CSV, table[table["split"] == ""])
    patches = table[table["split"] != ""].reset_index(drop=True)
    params: Any = SimpleNamespace(alpha=1.0)
    nothing: Any = None
    return Assembly(params, nothing, patches, nothing, nothing)


def _slides(rows: pd.DataFrame) -> list[str]:
    return rows["slide_id"].tolist()


def test_students_learn_from_training_patches_and_from_those_without_labels(assembly: Assembly) -> None:
    rows = assembly.rows(0, with_unlabeled=True)
    assert _slides(rows.labeled) == ["a", "a", "b", "b"]
    assert _slides(rows.unlabeled) == ["a", "a", "b", "b", "a", "b", "d"]
    assert _slides(rows.validation) == ["c", "c"]
    assert (
        _slides(rows.train)
        == _slides(assembly.rows(0, with_unlabeled=False).unlabeled)
        == ["a", "a", "b", "b"]
    )


WITHOUT_B = LabelFolds({"slide a": 0, "slide b": 1})


def test_no_patch_of_a_fold_that_is_left_out_is_used_and_its_labels_are_held_out(assembly: Assembly) -> None:
    whole = assembly.rows(0, with_unlabeled=True)
    rows = whole.without(WITHOUT_B, 1)
    assert _slides(rows.labeled) == ["a", "a"]
    assert _slides(rows.train) == ["a", "a"]
    assert _slides(rows.unlabeled) == ["a", "a", "a", "d"]
    assert _slides(rows.validation) == ["c", "c"]  # separate validation stays
    counted = replace(whole, validation=whole.validation.iloc[:0]).without(WITHOUT_B, 1)
    assert _slides(counted.validation) == ["b", "b"]


def test_another_seed_is_another_draw_of_the_labels_and_of_nothing_else(assembly: Assembly) -> None:
    some = replace(assembly, params=SimpleNamespace(alpha=0.5))
    assert _slides(some.labeled(0)) == ["a", "a"]  # as the index has drawn
    drawn = [some.rows(seed, with_unlabeled=True) for seed in range(1, 25)]
    for rows in drawn:
        assert sorted(rows.labeled["label"]) == ["normal", "tumor"]
        pd.testing.assert_frame_equal(
            rows.unlabeled, drawn[0].unlabeled.assign(label_rank=rows.unlabeled["label_rank"])
        )
        assert _slides(rows.validation) == ["c", "c"]
    assert len({tuple(rows.labeled["patch_id"]) for rows in drawn}) == 4
    pd.testing.assert_frame_equal(some.rows(3, with_unlabeled=False).labeled, some.labeled(3))
    pd.testing.assert_frame_equal(some.rows(3, with_unlabeled=False).labeled, drawn[2].labeled)


def test_each_encoder_has_draws_of_its_own_and_those_of_encoder_0_are_those_of_the_seeds() -> None:
    runs = [Run("rsp", encoder, seed) for encoder in range(20) for seed in range(20)]
    assert len({run.derived_seed for run in runs}) == len(runs)
    assert [run.derived_seed for run in runs[:20]] == list(range(20))
    assert (
        Run("rsp", 4, 2).derived_seed == Run("random", 4, 2, "paper").derived_seed
    )  # methods and students are paired


def test_the_labels_of_a_fold_are_among_those_of_its_run(assembly: Assembly) -> None:
    some = replace(assembly, params=SimpleNamespace(alpha=0.5))
    for seed in range(9):
        of_run = some.labeled(seed)
        of_fold = some.rows(seed, with_unlabeled=True).without(WITHOUT_B, 1).labeled["patch_id"]
        assert set(of_fold) == set(of_run.loc[of_run["slide_id"] != "b", "patch_id"])


def test_no_seed_of_a_run_draws_what_a_seed_of_the_index_does(assembly: Assembly) -> None:
    """Else the seeds 0 and 5 of an experiment with index.seed 5 were given the same labels."""
    rows = pd.concat([assembly.patches] * 20, ignore_index=True)
    rows["patch_id"] = [f"{i:03d}" for i in range(len(rows))]
    for seed in (1, 5):
        of_index = label_ranks(rows, generator(seed, "label ranks"))
        assert not with_label_ranks(rows, seed)["label_rank"].equals(of_index)
