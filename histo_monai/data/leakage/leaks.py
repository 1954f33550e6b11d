"""Leaks between splits: common patients, slides, files and pixels of patches, whole slides and pretraining."""

from __future__ import annotations

import itertools

import pandas as pd

from histo_monai.data.tables.columns import SPLITS
from histo_monai.data.tables.manifests import first_five
from histo_monai.data.tables.tasks import grouping_key
from histo_monai.utils.errors import InputError

LEAK_COLUMNS = ("kind", "first", "first_split", "second", "second_split", "what")
PRETRAINING = "pretraining"
_KINDS = ("patient", "slide", "pixels")


def find_leaks(
    table: pd.DataFrame,
    corpus: pd.DataFrame,
    digests: pd.Series,
    *,
    whole_slides: pd.DataFrame,
    slides: pd.DataFrame,
    shared_ids: bool,
    within_patients: bool,
) -> pd.DataFrame:
    """Leaks: data that two splits have in common, and test data in the pretraining corpus.

    Compares patients, slides, pixels of image files, and thumbnails of slides, regardless of names.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits.
        corpus: Pretraining slides with `slide_id`, `path`, `patient_id`, `mpp`.
        digests: Image digests of the rows of `table` (`images.survey_images`).
        whole_slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS` with the splits of their patches. The slide classifier
            trains on validation slides too, so only test slides are separate; unlabeled slides outside the test are
            ignored.
        slides: Table of `views.look_at_slides` with every slide of the three tables.
        shared_ids: `corpus` and `table` are of one collection, where equal ids mean the same slide or patient.
        within_patients: Training and validation may have common patients and slides.

    Returns:
        `LEAK_COLUMNS`, one row per common patient, slide or image: kind "patient", "slide" or "pixels"; `first` and
        `second` are a patch_id of each split, or a slide_id of a whole slide or of the corpus (split "pretraining").
    """
    patches = _of_patches(table, digests, slides)
    teaching = whole_slides[(whole_slides["split"] == "test") | (whole_slides["label"] != "")]
    # Squares have no digest of their own: with common patients, only images must differ.
    taught = patches[patches["is_image"]].assign(patient="", slide="") if within_patients else patches
    learned = _firsts(taught)
    everything = pd.concat([_firsts(patches), _firsts(_of_slides(teaching, teaching["split"], slides))])
    pretraining = _of_slides(corpus, PRETRAINING, slides)
    if not shared_ids:
        pretraining[["patient", "slide"]] = ""
    parts = []
    for one, other in itertools.combinations(SPLITS, 2):
        of = learned if other == "validation" else everything
        parts.append(_shared(of[of["split"] == one], of[of["split"] == other]))
    parts.append(_shared(everything[everything["split"] == "test"], _firsts(pretraining)))
    leaks = pd.concat(parts, ignore_index=True)
    return leaks.drop_duplicates(["first", "second", "second_split"]).reset_index(drop=True)


def check_leaks(leaks: pd.DataFrame) -> None:
    """Refuse leaks of `find_leaks`.

    Raises:
        InputError: There is a leak; names up to five.
    """
    if leaks.empty:
        return
    named = [
        f"{row.what} is in {row.first_split} ({row.first}) and in {row.second_split} ({row.second})"
        for row in leaks.itertuples()
    ]
    counted = "1 leak" if len(leaks) == 1 else f"{len(leaks)} leaks"
    raise InputError(f"{counted} between splits: {first_five(named)}. Fix: remove or move one of each.")


def same_pixels_other_label(table: pd.DataFrame, digests: pd.Series) -> list[str]:
    """A warning if images with equal pixels have different labels or scores."""
    known = table.assign(digest=digests, answer=table["label"].where(table["score"].isna(), table["score"]))
    known = known[known["digest"] != ""]
    differs = known.groupby("digest")["answer"].transform("nunique") > 1
    if not differs.any():
        return []
    first, second = (
        known[known["digest"] == known["digest"][differs].iloc[0]].drop_duplicates("answer").index[:2]
    )
    return [
        f"{differs.sum()} images have equal pixels but different labels, "
        f"such as {table['path'][first]} and {table['path'][second]}"
    ]


def twins_in_training(table: pd.DataFrame, digests: pd.Series, slides: pd.DataFrame) -> list[str]:
    """A warning if cross-validation inside the labels can have equal pixels in two folds.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits.
        digests: Image digests of its rows (`images.survey_images`).
    """
    if (table["split"] == "validation").any():
        return []
    known = _of_patches(table, digests, slides).assign(group=grouping_key(table))
    known = known[(known["split"] == "train") & known["pixels"].notna() & (known["pixels"] != "")]
    twins = known[known.groupby("pixels")["group"].transform("nunique") > 1].drop_duplicates(
        ["pixels", "group"]
    )
    if twins.empty:
        return []
    named = [" and ".join(some["group"].iloc[:2]) for _, some in twins.groupby("pixels", sort=False)]
    return [
        f"the same pixels are in training under {len(twins)} patients, slides or patches: {first_five(named)}; "
        "cross-validation may train on one and measure on another. Fix: keep one of each, or give them one patient_id"
    ]


def twins_in_pretraining(corpus: pd.DataFrame, slides: pd.DataFrame) -> list[str]:
    """A warning if training and validation of the pretraining have slides of equal pixels."""
    known = corpus.assign(pixels=slides["digest"].reindex(corpus["path"]).to_numpy())
    known = known[known["pixels"] != ""].drop_duplicates(["pixels", "split"])
    sides = [known[known["split"] == split] for split in ("train", "validation")]
    both = sides[0].merge(sides[1], on="pixels")
    if both.empty:
        return []
    named = [f"{row.slide_id_x} and {row.slide_id_y}" for row in both.itertuples()]
    return [
        f"the pretraining's training and validation have {len(both)} slides of the same pixels: {first_five(named)}; "
        "its validation results are too good"
    ]


def _of_patches(table: pd.DataFrame, digests: pd.Series, slides: pd.DataFrame) -> pd.DataFrame:
    is_image = table["y"].isna()
    of_slide = pd.Series(slides["digest"].reindex(table["path"]).to_numpy(), index=table.index)
    return pd.DataFrame(
        {
            "name": table["patch_id"],
            "split": table["split"],
            "patient": table["patient_id"],
            "slide": table["slide_id"],
            "pixels": digests.where(is_image, of_slide),
            "is_image": is_image,
        }
    )


def _of_slides(some: pd.DataFrame, split: pd.Series | str, slides: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": some["slide_id"],
            "split": split,
            "patient": some["patient_id"],
            "slide": some["slide_id"],
            "pixels": slides["digest"].reindex(some["path"]).to_numpy(),
        }
    )


def _firsts(some: pd.DataFrame) -> pd.DataFrame:
    """The first row of each patient, slide and image per split, with columns `kind`, `what`, `split`, `name`."""
    parts = []
    for kind in _KINDS:
        first = some[["name", "split", kind]].drop_duplicates([kind, "split"]).rename(columns={kind: "what"})
        parts.append(first[first["what"].notna() & (first["what"] != "")].assign(kind=kind))
    return pd.concat(parts, ignore_index=True)


def _shared(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """Common values of two tables of `_firsts`, each with its first row on either side."""
    parts = []
    for kind in _KINDS:
        sides = [side[side["kind"] == kind].drop_duplicates("what") for side in (left, right)]
        both = sides[0].merge(sides[1], on="what", suffixes=("_1", "_2"))
        what = "the image of " + both["name_1"] if kind == "pixels" else f"{kind} " + both["what"].astype(str)
        columns = (both["name_1"], both["split_1"], both["name_2"], both["split_2"], what)
        parts.append(pd.DataFrame(dict(zip(LEAK_COLUMNS[1:], columns, strict=True))).assign(kind=kind))
    return pd.concat(parts, ignore_index=True)[list(LEAK_COLUMNS)]
