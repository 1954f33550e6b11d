"""The leakage audit in one call: errors for leaks, warnings for possible leaks."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from histo_monai.data.leakage.ids import named_missing, similar_ids
from histo_monai.data.leakage.leaks import (
    PRETRAINING,
    check_leaks,
    find_leaks,
    same_pixels_other_label,
    twins_in_pretraining,
    twins_in_training,
)
from histo_monai.data.leakage.near_copies import NEAR_COLUMNS, near_copies, near_copies_in_words
from histo_monai.data.leakage.second_look import of_same_tissue
from histo_monai.data.tables.columns import SPLITS

_APART_FROM_TEST = (("train", "test"), ("validation", "test"))


@dataclass(frozen=True)
class Surroundings:
    """Data that labeled patches are compared with.

    Attributes:
        corpus: Pretraining slides with `slide_id`, `path`, `patient_id`, `mpp`, `split`.
        whole_slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS` of the dataset; empty for a dataset of patches.
        slides: Table of `views.look_at_slides`.
        shared_ids: Corpus and dataset are of one collection, where equal ids mean the same slide or patient.
        within_patients: Training and validation may have common patients and slides.
    """

    corpus: pd.DataFrame
    whole_slides: pd.DataFrame
    slides: pd.DataFrame
    shared_ids: bool
    within_patients: bool


def review(
    table: pd.DataFrame, facts: pd.DataFrame, around: Surroundings, processes: int
) -> tuple[list[str], pd.DataFrame]:
    """Warnings and near copies (`near_copies.NEAR_COLUMNS`) of patches, whole slides and corpus.

    Args:
        table: `data.tables.columns.PATCH_COLUMNS` with splits; may be empty.
        facts: Facts of its rows (`images.survey_images`).
        processes: Does not affect the result.

    Raises:
        InputError: Data are in two splits; names up to five.
    """
    # Squares reduce to few slides; each slide is represented by its first patch.
    distinct = table.drop_duplicates(["slide_id", "path", "patient_id", "split"])
    whole_slides = with_splits_of_patches(around.whole_slides, distinct)
    check_leaks(
        find_leaks(
            distinct,
            around.corpus,
            facts["digest"].loc[distinct.index],
            whole_slides=whole_slides,
            slides=around.slides,
            shared_ids=around.shared_ids,
            within_patients=around.within_patients,
        )
    )
    near = _near(distinct, facts.loc[distinct.index], whole_slides, around, processes)
    warnings = [
        *same_pixels_other_label(table, facts["digest"]),
        *twins_in_training(distinct, facts["digest"].loc[distinct.index], around.slides),
        *twins_in_pretraining(around.corpus, around.slides),
        *_similar(distinct, around.corpus, whole_slides),
        *similar_ids(table["label"].unique(), "classes", "they are learned as two. Fix: use one spelling"),
    ]
    for kind in ("image", "slide"):
        warnings += near_copies_in_words(near[near["kind"] == kind], kind)
    return warnings, near


def with_splits_of_patches(whole_slides: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Whole slides with splits: a test slide stays in the test; others get the split of their patches.

    A slide without patches uses its own split, else the split of its patient's patches, else training.

    Args:
        whole_slides: `data.tables.columns.WHOLE_SLIDE_COLUMNS`; `split` may be empty.
        table: `data.tables.columns.PATCH_COLUMNS` with splits.
    """
    of_slide, of_patient = (
        {
            name: one
            for one in reversed(SPLITS)  # the first of them wins
            for name in table.loc[table["split"] == one, column].unique()
        }
        for column in ("slide_id", "patient_id")
    )
    split = []
    for row in whole_slides.itertuples():
        own = of_slide.get(row.slide_id) or row.split
        assigned = own or (of_patient.get(row.patient_id) if row.patient_id else None) or "train"
        split.append("test" if row.split == "test" else assigned)
    return whole_slides.assign(split=pd.Series(split, index=whole_slides.index, dtype=str))


def _near(
    table: pd.DataFrame, facts: pd.DataFrame, whole: pd.DataFrame, around: Surroundings, processes: int
) -> pd.DataFrame:
    within = () if around.within_patients else (("train", "validation"),)
    images = facts.assign(name=table["patch_id"], split=table["split"])[table["y"].isna()]
    squares = table[table["y"].notna()]
    columns = ["slide_id", "path", "mpp", "split"]
    slides = pd.concat(
        [
            squares.assign(mpp=squares["slide_mpp"])[columns],
            whole[columns],
            around.corpus.assign(split=PRETRAINING)[columns],
        ]
    ).drop_duplicates(["path", "split"])
    looks = around.slides.reindex(slides["path"])[["digest", "fingerprint"]]
    slides = slides.rename(columns={"slide_id": "name"}).assign(
        digest=looks["digest"].to_numpy(), fingerprint=looks["fingerprint"].to_numpy()
    )
    near = near_copies(slides, (*_APART_FROM_TEST, (PRETRAINING, "test")), "slide", processes)
    parts = [
        near_copies(images, (*within, *_APART_FROM_TEST), "image", processes),
        of_same_tissue(near, slides, processes),
    ]
    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame(columns=list(NEAR_COLUMNS))


def _similar(table: pd.DataFrame, corpus: pd.DataFrame, whole_slides: pd.DataFrame) -> list[str]:
    every = (table, corpus, whole_slides)
    slides, patients = (
        [one for some in every for one in some[column].unique()] for column in ("slide_id", "patient_id")
    )
    return [
        *named_missing(patients),
        *similar_ids(
            patients, "patients", "if they are one, its patches may be in two splits. Fix: use one spelling"
        ),
        *similar_ids(
            slides,
            "slides",
            "they may be one slide, and on a case-insensitive disk their maps would be one file. Fix: rename one",
        ),
    ]
