"""Labeled patches of each dataset -> the table that fine-tuning, consistency training and evaluation read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from histo_monai.data.index.images import survey_images
from histo_monai.data.leakage.ids import no_patients
from histo_monai.data.leakage.review import Surroundings, review
from histo_monai.data.tables.columns import SPLITS
from histo_monai.data.tables.patches import LabeledDataset, empty_table
from histo_monai.data.tables.splits import draw_splits, in_order_of_splits, label_ranks
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator


@dataclass(frozen=True)
class Labels:
    """Labeled patches as the index leaves them.

    Attributes:
        table: `data.tables.columns.PATCH_COLUMNS`, sorted by split and patch_id.
        warnings: what a reader of the results must know, one line each.
        near_copies: `audit.near_copies.NEAR_COLUMNS`.
    """

    table: pd.DataFrame
    warnings: list[str]
    near_copies: pd.DataFrame


def build_labels(
    labeled: LabeledDataset,
    *,
    around: Surroundings,
    validation_fraction: float | None,
    seed: int,
    processes: int,
) -> Labels:
    """Look at every image, draw what is not split yet, rank the labels, and let nothing leak.

    Args:
        around: what the patches are compared with; its `within_patients` lets validation be drawn from the patients of
            the training patches.
        validation_fraction: of the patches without a split. None: all patches outside the test are for training, and
            cross-validation inside the labels chooses.
        processes: files read at the same time; decides nothing.

    Raises:
        InputError: an image cannot be used, training or separate validation lacks a class, or two splits share a
            patient, a slide or an image, or the corpus has a test slide.
    """
    table = labeled.table
    facts = survey_images(table, processes)
    table = table.assign(side_px=facts["side_px"].astype("int32"))
    about_split = []
    if validation_fraction is None:
        about_split = _marked_validation(table)
        table["split"] = table["split"].replace({"": "train", "validation": "train"})
        about_split += _check_classes(table)
    else:
        table["split"] = draw_splits(
            table,
            validation_fraction,
            generator(seed, "label split"),
            within_patients=around.within_patients,
            twins=facts["digest"],
        )
        about_split = [*_check_classes(table, is_separate=True), *_shared_patients(table)]
    warnings = [*labeled.warnings, *about_split]
    warnings += [labeled.about_patients] if labeled.about_patients else no_patients(table)
    remarks, near = review(table, facts, around, processes)
    table = in_order_of_splits(table)
    table["label_rank"] = label_ranks(table, generator(seed, "label ranks"))
    return Labels(table, [*warnings, *remarks], near)


def without_labels(missing: Path, around: Surroundings, processes: int) -> Labels:
    """No patch at all: slides of your own can be pretrained on and mapped, and are compared all the same.

    Args:
        missing: the table that would hold the labels.
        processes: decides nothing.

    Raises:
        InputError: a whole slide to be tested is in the pretraining.
    """
    table = empty_table()
    facts = table[["side_px"]].assign(digest="", fingerprint="")
    remarks, near = review(table, facts, around, processes)
    what = f"{missing}: not found; without labels there is nothing to fine-tune or to evaluate"
    return Labels(table, [what, *remarks], near)


def count_patches(table: pd.DataFrame) -> dict[str, Any]:
    """Patches of each split (`patches_train` ...), and below `classes` those of each class in each split."""
    counts: dict[str, Any] = {f"patches_{split}": int((table["split"] == split).sum()) for split in SPLITS}
    classes = sorted(table.loc[table["label"] != "", "label"].unique())
    of = table.groupby(["label", "split"]).size()
    return counts | {
        "classes": {label: {split: int(of.get((label, split), 0)) for split in SPLITS} for label in classes}
    }


def _marked_validation(table: pd.DataFrame) -> list[str]:
    num = int((table["split"] == "validation").sum())
    if not num:
        return []
    return [
        f"{num} patches with the split validation are for training: cross-validation inside the labels chooses "
        "(labels.<dataset>.validation: labeled; separate would keep them apart)"
    ]


def _check_classes(table: pd.DataFrame, *, is_separate: bool = False) -> list[str]:
    """Training and separate validation have the same classes, and test no other; a warning where test lacks some."""
    classes = {split: set(table.loc[table["split"] == split, "label"]) for split in SPLITS}
    for split in ("train", "validation") if is_separate else ("train",):
        if not classes[split]:
            raise InputError(f"no patch has the split {split}; mark some, or leave the column split empty")
    if len(classes["train"]) == 1 and "" not in classes["train"]:
        raise InputError(
            f"all training patches are of class {classes['train'].pop()!r}; give at least two classes"
        )
    pairs = (("train", "validation"), ("validation", "train")) if is_separate else ()
    for split, other in (*pairs, ("test", "train")):
        lacking = sorted(classes[split] - classes[other])
        if lacking:
            raise InputError(
                f"class {lacking[0]!r} is in {split} but not in {other}; give patches of it to both"
            )
    if not classes["test"]:
        figures = (
            "all figures are of validation patches, by which models were chosen, and so somewhat too good"
            if is_separate
            else "figures come from cross-validation inside the labels, which needs two patients of each class"
        )
        return [f"no patch has the split test: {figures}; name patients to test on in the column split"]
    lacking = sorted(classes["train"] - classes["test"])
    return [f"the test patches have none of class {', '.join(lacking)}"] if lacking else []


def _shared_patients(table: pd.DataFrame) -> list[str]:
    sides = {split: table[table["split"] == split] for split in ("train", "validation")}
    for column in ("patient_id", "slide_id"):
        shared = set(sides["train"][column]) & set(sides["validation"][column]) - {""}
        if shared:
            return [
                f"validation has patches of the {column.removesuffix('_id')}s trained on "
                f"({', '.join(sorted(shared)[:5])}): its figures may be too good"
            ]
    return []
