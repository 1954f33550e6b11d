"""The leak audit: nothing that the test is about may have been seen before, and nothing of validation in training."""

from __future__ import annotations

import itertools
import os

import pandas as pd

from histo_monai.datasets.pixels import thumbnail_digests
from histo_monai.datasets.tables import SPLITS, first_five

LEAK_COLUMNS = ("kind", "first", "first_split", "second", "second_split", "what")
PRETRAINING = "pretraining"


def find_leaks(
    table: pd.DataFrame,
    corpus: pd.DataFrame,
    digests: pd.Series,
    *,
    shared_ids: bool,
    within_patients: bool,
    processes: int,
) -> pd.DataFrame:
    """What two splits share, and which test slides are in the corpus of the pretraining.

    Compared are patients, slides, the pixels of image files, and thumbnails of the slides that patches are squares of.

    Args:
        table: `tables.PATCH_COLUMNS` with splits.
        corpus: slides of the pretraining: `slide_id`, `path`, `patient_id`, `mpp`.
        digests: of the rows of `table`, see `pixels.survey_images`.
        shared_ids: `corpus` and `table` are of one collection, so that the same id means the same slide or patient.
        within_patients: training and validation may share patients and slides.
        processes: slides read at the same time.

    Returns:
        `LEAK_COLUMNS`, one row for each patient, slide or picture that two splits share: kind "patient", "slide" or
        "pixels"; `first` and `second` are a patch_id of each split, or a slide_id of the corpus (split "pretraining").
    """
    squares = table[table["y"].notna()]
    by_thumbnail, in_corpus = _same_slides(squares, corpus, processes) if len(squares) else (None, None)
    parts = [
        _shared(table, table["patient_id"], "patient"),
        _shared(table, table["slide_id"], "slide"),
        by_thumbnail,
    ]
    if within_patients:
        parts = [None if part is None else part[part["second_split"] == "test"] for part in parts]
    parts += [_shared(table, digests, "pixels"), in_corpus]
    test = table[table["split"] == "test"]
    if shared_ids:
        for kind, column in (("patient", "patient_id"), ("slide", "slide_id")):
            parts.append(_in_corpus(test, test[column], corpus, corpus[column], kind))
    leaks = pd.concat([part for part in parts if part is not None], ignore_index=True)
    return leaks.drop_duplicates(["first", "second", "second_split"]).reset_index(drop=True)


def check_leaks(leaks: pd.DataFrame) -> None:
    """Refuse what `find_leaks` found.

    Raises:
        ValueError: there is a leak; names up to five.
    """
    if leaks.empty:
        return
    told = [
        f"{row.what} is in {row.first_split} ({row.first}) and in {row.second_split} ({row.second})"
        for row in leaks.itertuples()
    ]
    counted = "1 leak" if len(leaks) == 1 else f"{len(leaks)} leaks"
    raise ValueError(f"{counted} between splits: {first_five(told)}. Remove one of each, or move it")


def same_pixels_other_label(table: pd.DataFrame, digests: pd.Series) -> list[str]:
    """A warning, if images with the same pixels have different labels or scores."""
    known = table.assign(digest=digests, answer=table["label"].where(table["score"].isna(), table["score"]))
    known = known[known["digest"] != ""]
    differs = known.groupby("digest")["answer"].transform("nunique") > 1
    if not differs.any():
        return []
    first, second = (
        known[known["digest"] == known["digest"][differs].iloc[0]].drop_duplicates("answer").index[:2]
    )
    return [
        f"{differs.sum()} images have the pixels of another one but not its label, "
        f"such as {table['path'][first]} and {table['path'][second]}"
    ]


def _shared(table: pd.DataFrame, value: pd.Series, kind: str) -> pd.DataFrame:
    """Values that two splits share, each with the first patch of either."""
    told = table[["patch_id", "split"]].assign(value=value)
    told = told[told["value"] != ""].drop_duplicates(["value", "split"])
    pairs = []
    for one, other in itertools.combinations(SPLITS, 2):
        sides = [told[told["split"] == split] for split in (one, other)]
        pairs.append(sides[0].merge(sides[1], on="value", suffixes=("_1", "_2")))
    both = pd.concat(pairs, ignore_index=True)
    return _leaks(
        both["patch_id_1"], both["split_1"], both["patch_id_2"], both["split_2"], kind, both["value"]
    )


def _in_corpus(
    test: pd.DataFrame, value: pd.Series, corpus: pd.DataFrame, corpus_value: pd.Series, kind: str
) -> pd.DataFrame:
    """Values of test rows that slides of the corpus have too."""
    told = test[["patch_id"]].assign(value=value)
    told = told[told["value"] != ""].drop_duplicates("value")
    both = told.merge(corpus[["slide_id"]].assign(value=corpus_value).drop_duplicates("value"), on="value")
    return _leaks(both["patch_id"], "test", both["slide_id"], PRETRAINING, kind, both["value"])


def _same_slides(
    squares: pd.DataFrame, corpus: pd.DataFrame, processes: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Slides under several names (the same file, or the same thumbnail): in two splits, and in test and corpus."""
    files = pd.concat(
        [
            squares[["path", "slide_mpp"]].rename(columns={"slide_mpp": "mpp"}),
            corpus[["path", "mpp"]],
        ]
    ).drop_duplicates("path")
    files["real"] = [os.path.realpath(path) for path in files["path"]]
    each = files.drop_duplicates("real")
    digest_of = dict(zip(each["real"], thumbnail_digests(each, processes), strict=True))
    digest_of_path = {path: digest_of[real] for path, real in zip(files["path"], files["real"], strict=True)}
    # One name for what is the same slide: that of the first file that has its pixels.
    name_of = dict(zip(reversed(list(digest_of_path.values())), reversed(list(digest_of_path)), strict=True))
    slide = squares["path"].map(digest_of_path).map(name_of)
    in_corpus = corpus["path"].map(digest_of_path).map(name_of)
    test = squares["split"] == "test"
    return (
        _shared(squares, slide, "pixels"),
        _in_corpus(squares[test], slide[test], corpus, in_corpus, "pixels"),
    )


def _leaks(
    first: pd.Series,
    first_split: pd.Series | str,
    second: pd.Series,
    second_split: pd.Series | str,
    kind: str,
    value: pd.Series,
) -> pd.DataFrame:
    what = "the image of " + first if kind == "pixels" else f"{kind} " + value
    columns = (first, first_split, second, second_split, what)
    return pd.DataFrame(
        {"kind": kind, **dict(zip(LEAK_COLUMNS[1:], columns, strict=True))}, columns=list(LEAK_COLUMNS)
    )
