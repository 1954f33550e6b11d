"""Labeled patches of each dataset -> the table that fine-tuning, consistency training and evaluation read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd

from histo_monai.datasets import breastpathq, camelyon16, kather, own
from histo_monai.datasets.audit import check_leaks, find_leaks, same_pixels_other_label
from histo_monai.datasets.labeled import LabeledDataset
from histo_monai.datasets.pixels import survey_images
from histo_monai.datasets.splits import draw_splits, label_ranks
from histo_monai.datasets.tables import SPLITS
from histo_monai.randomness import generator

LABELED: dict[str, Callable[..., LabeledDataset]] = {
    "breastpathq": breastpathq.labeled_patches,
    "camelyon16": camelyon16.labeled_patches,
    "kather": kather.labeled_patches,
    "own": own.labeled_patches,
}
"""Name -> function of the dataset's folder and of what is particular to it."""


def build_labels(
    labeled: LabeledDataset,
    *,
    corpus: pd.DataFrame,
    shared_ids: bool,
    validation_fraction: float,
    seed: int,
    within_patients: bool,
    processes: int,
) -> tuple[pd.DataFrame, list[str], dict[str, Any]]:
    """Look at every image, draw what is not split yet, rank the labels, and let nothing leak.

    Args:
        labeled: what the dataset offers.
        corpus: slides of the pretraining: `slide_id`, `path`, `patient_id`, `mpp`.
        shared_ids: `corpus` and `labeled` are of one collection, so that the same id means the same slide or patient.
        validation_fraction: of the patches without a split.
        seed: of splits and ranks.
        within_patients: validation may be drawn from the patients of the training patches.
        processes: files read at the same time; decides nothing.

    Returns:
        `tables.PATCH_COLUMNS`, sorted by split and patch_id; warnings; and how many patches each split and class has.

    Raises:
        ValueError: an image cannot be used, training or validation lacks a class, or two splits share a patient, a
            slide or an image, or the corpus has a test slide.
    """
    table = labeled.table
    facts = survey_images(table, processes)
    table = table.assign(side_px=facts["side_px"].astype("int32"))
    table["split"] = draw_splits(
        table,
        validation_fraction,
        generator(seed, "label split"),
        within_patients=within_patients,
        twins=facts["digest"],
    )
    warnings = [
        *labeled.warnings,
        *_check_classes(table),
        *same_pixels_other_label(table, facts["digest"]),
        *_shared_patients(table),
    ]
    leaks = find_leaks(
        table,
        corpus,
        facts["digest"],
        shared_ids=shared_ids,
        within_patients=within_patients,
        processes=processes,
    )
    check_leaks(leaks)
    table["label_rank"] = label_ranks(table, generator(seed, "label ranks"))
    order = table["split"].map(SPLITS.index)
    table = (
        table.assign(order=order).sort_values(["order", "patch_id"], ignore_index=True).drop(columns="order")
    )
    return table, warnings, count_patches(table)


def count_patches(table: pd.DataFrame) -> dict[str, Any]:
    """Patches of each split (`patches_train` ...), and below `classes` those of each class in each split."""
    counts: dict[str, Any] = {f"patches_{split}": int((table["split"] == split).sum()) for split in SPLITS}
    classes = sorted(table.loc[table["label"] != "", "label"].unique())
    of = table.groupby(["label", "split"]).size()
    return counts | {
        "classes": {label: {split: int(of.get((label, split), 0)) for split in SPLITS} for label in classes}
    }


def _check_classes(table: pd.DataFrame) -> list[str]:
    """Training and validation have the same classes, and test no other; a warning where test lacks some or all."""
    classes = {split: set(table.loc[table["split"] == split, "label"]) for split in SPLITS}
    for split in ("train", "validation"):
        if not classes[split]:
            raise ValueError(f"no patch has the split {split}; mark some, or leave the column split empty")
    if len(classes["train"]) == 1 and "" not in classes["train"]:
        raise ValueError(
            f"all training patches are of class {classes['train'].pop()!r}; give at least two classes"
        )
    for split, other in (("train", "validation"), ("validation", "train"), ("test", "train")):
        lacking = sorted(classes[split] - classes[other])
        if lacking:
            raise ValueError(
                f"class {lacking[0]!r} is in {split} but not in {other}; give patches of it to both"
            )
    if not classes["test"]:
        return [
            "no patch has the split test: all figures are of validation patches, by which models were chosen"
        ]
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
