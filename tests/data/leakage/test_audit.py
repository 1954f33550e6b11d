from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.leakage.leaks import (
    LEAK_COLUMNS,
    check_leaks,
    find_leaks,
    same_pixels_other_label,
    twins_in_pretraining,
)
from histo_monai.data.leakage.views import look_at_slides
from histo_monai.data.tables.columns import whole_slide_table
from histo_monai.data.tables.patches import labeled_table

NO_SLIDES = pd.DataFrame({"slide_id": [], "path": [], "patient_id": [], "mpp": []}).astype(
    {"slide_id": str, "path": str, "patient_id": str}
)


def _patches(*rows: tuple[str, dict[str, Any]]) -> pd.DataFrame:
    """One image for each (split, what else is known)."""
    return labeled_table(
        [
            {"patch_id": f"{split}{i}", "path": f"{i}.png", "side_px": 9, "split": split, **known}
            for i, (split, known) in enumerate(rows)
        ]
    )


def _leaks(
    table: pd.DataFrame,
    digests: list[str] | None = None,
    corpus: pd.DataFrame = NO_SLIDES,
    whole_slides: pd.DataFrame | None = None,
    **changes: bool,
) -> pd.DataFrame:
    settings = {"shared_ids": True, "within_patients": False, **changes}
    given = pd.Series(digests or [""] * len(table), index=table.index)
    whole = whole_slide_table([]) if whole_slides is None else whole_slides
    squares = table[table["y"].notna()].assign(mpp=1.0)
    files = pd.concat([some[["path", "mpp"]] for some in (squares, corpus, whole)])
    looks = look_at_slides(
        files[files["path"].map(lambda path: Path(path).is_file()).astype(bool)], processes=1
    )
    return find_leaks(table, corpus, given, whole_slides=whole, slides=looks, **settings)


def test_splits_with_nothing_in_common_have_no_leak() -> None:
    table = _patches(
        ("train", {"patient_id": "a", "slide_id": "1"}),
        ("train", {"patient_id": "a", "slide_id": "1"}),
        ("validation", {"patient_id": "b", "slide_id": "2"}),
        ("test", {}),
        ("test", {}),
    )
    leaks = _leaks(table, ["x", "x", "y", "z", "z"])
    assert tuple(leaks.columns) == LEAK_COLUMNS
    assert leaks.empty
    check_leaks(leaks)


@pytest.mark.parametrize("splits", [("train", "validation"), ("train", "test"), ("validation", "test")])
@pytest.mark.parametrize("kind", ["patient", "slide", "pixels"])
def test_what_two_splits_share_is_found_and_named(splits: tuple[str, str], kind: str) -> None:
    known = {} if kind == "pixels" else {f"{kind}_id": "17"}
    table = _patches((splits[1], known), ("train", {}), (splits[0], known), (splits[0], known), ("test", {}))
    digests = ["same", "other", "same", "same", "third"] if kind == "pixels" else None
    leaks = _leaks(table, digests)
    what = {"patient": "patient 17", "slide": "slide 17", "pixels": f"the image of {splits[0]}2"}[kind]
    assert leaks.to_numpy().tolist() == [
        [kind, f"{splits[0]}2", splits[0], f"{splits[1]}0", splits[1], what],
    ]
    with pytest.raises(
        ValueError, match=rf"1 leak between splits: {what} is in {splits[0]} \({splits[0]}2\)"
    ):
        check_leaks(leaks)


def test_validation_within_patients_may_share_patients_and_slides_with_training_and_nothing_with_test() -> (
    None
):
    same = {"patient_id": "a", "slide_id": "1"}
    table = _patches(("train", same), ("validation", same))
    assert _leaks(table, within_patients=True).empty
    assert len(_leaks(table)) == 1  # two reasons, one pair of patches
    assert len(_leaks(table, ["x", "x"], within_patients=True)) == 1
    with_test = _patches(("train", same), ("validation", same), ("test", same))
    assert set(_leaks(with_test, within_patients=True)["second_split"]) == {"test"}


def test_the_first_five_leaks_are_named_and_the_others_counted() -> None:
    rows = [(split, {"patient_id": f"p{i}"}) for i in range(8) for split in ("train", "test")]
    with pytest.raises(ValueError, match=r"8 leaks between splits: .*; and 3 more") as caught:
        check_leaks(_leaks(_patches(*rows)))
    assert str(caught.value).count("patient p") == 5
    assert "\n" not in str(caught.value)


def _corpus(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"slide_id": ["c0", "c1"], "path": "", "patient_id": "", "mpp": 1.0, **columns})


@pytest.mark.parametrize("column", ["slide_id", "patient_id"])
def test_a_test_slide_or_patient_in_the_corpus_is_a_leak_of_one_collection(column: str) -> None:
    table = _patches(("train", {column: "9"}), ("validation", {column: "8"}), ("test", {column: "7"}))
    corpus = _corpus(**{column: ["9", "7"]})
    leaks = _leaks(table, corpus=corpus)
    assert leaks[["first", "second_split"]].to_numpy().tolist() == [["test2", "pretraining"]]
    assert leaks["second"].tolist() == [corpus["slide_id"][1]]
    assert _leaks(table, corpus=corpus, shared_ids=False).empty


@pytest.fixture
def slides(tmp_path: Path, write_slide: Callable[..., Path]) -> list[str]:
    paths = [write_slide(tmp_path / f"{seed}.tif", seed) for seed in range(4)]
    copy = shutil.copy(paths[2], tmp_path / "copy.tif")
    (tmp_path / "link.tif").symlink_to(paths[2])
    return [str(path) for path in (*paths, copy, tmp_path / "link.tif")]


def _squares(slides: list[str], *rows: tuple[str, int]) -> pd.DataFrame:
    known = [
        (split, {"slide_id": f"s{number}", "path": slides[number], "y": 9, "x": 9, "mpp": 1.0})
        for split, number in rows
    ]
    return _patches(*known)


@pytest.mark.parametrize("other", [4, 5])
def test_a_test_slide_under_another_name_is_found_by_its_file_or_its_thumbnail(
    slides: list[str], other: int
) -> None:
    table = _squares(slides, ("train", 0), ("validation", 1), ("test", 2))
    apart = _corpus(path=[slides[3], slides[0]])
    assert _leaks(table, corpus=apart).empty
    within = _corpus(path=[slides[3], slides[other]])
    leaks = _leaks(table, corpus=within, shared_ids=False)
    assert leaks[["kind", "first", "second", "second_split"]].to_numpy().tolist() == [
        ["pixels", "test2", "c1", "pretraining"]
    ]


def test_a_slide_in_two_splits_under_two_names_is_a_leak(slides: list[str]) -> None:
    leaks = _leaks(_squares(slides, ("train", 2), ("validation", 1), ("test", 4)))
    assert leaks[["kind", "first", "second"]].to_numpy().tolist() == [["pixels", "train0", "test2"]]
    in_training = _squares(slides, ("train", 2), ("validation", 4))
    assert len(_leaks(in_training)) == 1
    assert _leaks(in_training, within_patients=True).empty


def test_the_same_pixels_under_two_labels_are_a_warning() -> None:
    table = _patches(*[("train", {"label": label}) for label in ("a", "b", "a", "a")])
    (warning,) = same_pixels_other_label(table, pd.Series(["x", "x", "x", "y"]))
    assert warning.startswith("3 images have equal pixels but different labels")
    assert "0.png and 1.png" in warning
    assert same_pixels_other_label(table, pd.Series(["x", "z", "x", ""])) == []
    scores = _patches(*[("train", {"score": score}) for score in (0.1, 0.2, np.nan)])
    assert len(same_pixels_other_label(scores.iloc[:2], pd.Series(["x", "x"]))) == 1


def _whole(*rows: tuple[str, str, dict[str, str]]) -> pd.DataFrame:
    """A slide for each (slide_id, split, what else is known), labeled."""
    return whole_slide_table(
        [{"slide_id": name, "path": "", "split": split, "label": "x", **known} for name, split, known in rows]
    )


@pytest.mark.parametrize("kind", ["patient", "slide", "pixels"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_test_slide_without_patches_that_was_trained_on_is_a_leak(
    slides: list[str], kind: str, split: str
) -> None:
    of_patches = {"patient": {"patient_id": "p"}, "slide": {"slide_id": "s"}, "pixels": {}}[kind]
    of_slide = {"patient_id": "p"} if kind == "patient" else {}
    table = _patches(("test", {}), (split, {"path": slides[2], "y": 9, "x": 9, **of_patches}))
    whole = _whole(
        ("s" if kind == "slide" else "t", "test", {"path": slides[4 if kind == "pixels" else 3], **of_slide})
    )
    leaks = _leaks(table, whole_slides=whole)
    assert leaks[["kind", "first", "first_split", "second_split"]].to_numpy().tolist() == [
        [kind, f"{split}1", split, "test"]
    ]
    assert leaks["second"].tolist() == whole["slide_id"].tolist()


def test_test_slides_that_teach_the_classifier_or_the_encoder_are_leaks_and_others_are_none(
    slides: list[str],
) -> None:
    table = _patches(("train", {}), ("test", {}))
    taught = _whole(("a", "train", {"patient_id": "p"}), ("b", "test", {"patient_id": "p"}))
    assert _leaks(table, whole_slides=taught)["what"].tolist() == ["patient p"]
    unlabeled = taught.assign(label=["", "x"])
    assert _leaks(table, whole_slides=unlabeled).empty
    both_teach = taught.assign(split=["train", "validation"])
    assert _leaks(table, whole_slides=both_teach).empty
    test = _whole(("b", "test", {"patient_id": "9", "path": slides[4]}))
    for corpus, is_shared, what in (
        (_corpus(patient_id=["9", "8"]), True, "patient 9"),
        (_corpus(slide_id=["b", "c1"]), True, "slide b"),
        (_corpus(path=[slides[0], slides[2]]), False, "the image of b"),
    ):
        leaks = _leaks(table, corpus=corpus, whole_slides=test, shared_ids=is_shared)
        assert leaks[["what", "first_split", "second_split"]].to_numpy().tolist() == [
            [what, "test", "pretraining"]
        ]
    assert _leaks(table, corpus=_corpus(patient_id=["9", "8"]), whole_slides=test, shared_ids=False).empty


def test_the_same_slide_in_training_and_validation_of_the_pretraining_is_a_warning(slides: list[str]) -> None:
    looks = look_at_slides(pd.DataFrame({"path": slides, "mpp": np.nan}), processes=1)
    corpus = _corpus(path=[slides[2], slides[4]], split=["train", "validation"])
    (warning,) = twins_in_pretraining(corpus, looks)
    assert "1 slides of the same pixels: c0 and c1" in warning
    assert twins_in_pretraining(corpus.assign(split="train"), looks) == []
    assert twins_in_pretraining(corpus.assign(path=slides[:2]), looks) == []


def test_one_look_is_taken_of_each_file_and_what_cannot_be_read_is_named(
    slides: list[str], tmp_path: Path
) -> None:
    (tmp_path / "empty.tif").write_bytes(b"")
    files = pd.DataFrame({"path": [*slides, slides[0], str(tmp_path / "empty.tif")], "mpp": np.nan})
    looks = look_at_slides(files, processes=1)
    pd.testing.assert_frame_equal(look_at_slides(files, processes=2), looks)
    digest = looks["digest"]
    assert digest[slides[2]] == digest[slides[4]] == digest[slides[5]] != digest[slides[0]]
    assert "empty.tif: the file is empty" in looks.loc[str(tmp_path / "empty.tif"), "problem"]
    assert (looks.loc[slides, "problem"] == "").all()
