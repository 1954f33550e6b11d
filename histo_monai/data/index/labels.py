"""Build the table of labeled patches for fine-tuning, semi-supervised training and evaluation."""

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
from histo_monai.data.tables.splits import in_order_of_splits, label_ranks, random_splits
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator


@dataclass(frozen=True)
class Labels:
    """Labeled patches in the index.

    Attributes:
        table: `data.tables.columns.PATCH_COLUMNS`, sorted by split and patch_id.
        warnings: Data warnings for readers of the results, one line each.
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
    """The table of labeled patches: surveyed, split, ranked and audited for leaks.

    Args:
        around: Data to compare with; `within_patients` permits validation patches from training patients.
        validation_fraction: Fraction of the patches without a split. None: all patches outside the test train, and
            cross-validation inside the labels selects models.
        processes: Files read in parallel; does not affect the result.

    Raises:
        InputError: An image is unusable; training or separate validation lacks a class; two splits have a common
            patient, slide or image; or the corpus has a test slide.
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
        table["split"] = random_splits(
            table,
            validation_fraction,
            generator(seed, "label split"),
            within_patients=around.within_patients,
            twins=facts["digest"],
        )
        about_split = [*_check_classes(table, is_separate=True), *_shared_patients(table)]
    warnings = [*labeled.warnings, *about_split]
    warnings += [labeled.about_patients] if labeled.about_patients else no_patients(table)
    data_warnings, near = review(table, facts, around, processes)
    table = in_order_of_splits(table)
    table["label_rank"] = label_ranks(table, generator(seed, "label ranks"))
    return Labels(table, [*warnings, *data_warnings], near)


def without_labels(missing: Path, around: Surroundings, processes: int) -> Labels:
    """An empty table with its audit, for slides without labels, which can still be pretrained on and mapped.

    Args:
        missing: The absent table of labels, for the warning.

    Raises:
        InputError: The pretraining contains a test slide.
    """
    table = empty_table()
    facts = table[["side_px"]].assign(digest="", fingerprint="")
    data_warnings, near = review(table, facts, around, processes)
    what = f"{missing}: not found; fine-tuning and evaluation need labels"
    return Labels(table, [what, *data_warnings], near)


def count_patches(table: pd.DataFrame) -> dict[str, Any]:
    """Number of patches per split (`patches_train` ...), and per class and split under `classes`."""
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
        f"{num} patches with the split validation are used for training: cross-validation inside the labels selects "
        "models (labels.<dataset>.validation: labeled; set separate to exclude them)"
    ]


def _check_classes(table: pd.DataFrame, *, is_separate: bool = False) -> list[str]:
    """Check that training and separate validation have equal classes, and test no other; warn if test lacks some."""
    classes = {split: set(table.loc[table["split"] == split, "label"]) for split in SPLITS}
    for split in ("train", "validation") if is_separate else ("train",):
        if not classes[split]:
            raise InputError(
                f"no patch has the split {split}. Fix: mark some, or leave the column split empty."
            )
    if len(classes["train"]) == 1 and "" not in classes["train"]:
        raise InputError(
            f"all training patches are of class {classes['train'].pop()!r}. Fix: add a second class."
        )
    pairs = (("train", "validation"), ("validation", "train")) if is_separate else ()
    for split, other in (*pairs, ("test", "train")):
        lacking = sorted(classes[split] - classes[other])
        if lacking:
            first = table[(table["split"] == split) & (table["label"] == lacking[0])].iloc[0]
            raise InputError(
                f"{first['slide_id'] or first['path']}: class {lacking[0]!r} is in {split} but not in {other}. "
                "Fix: correct its spelling, or add patches of it to both."
            )
    if not classes["test"]:
        figures = (
            "all results are of validation patches, which also selected the models, so they are too good"
            if is_separate
            else "results come from cross-validation inside the labels, which needs two patients of each class"
        )
        return [f"no patch has the split test: {figures}. Fix: mark test patients in the column split"]
    lacking = sorted(classes["train"] - classes["test"])
    return [f"no test patch is of class {', '.join(lacking)}"] if lacking else []


def _shared_patients(table: pd.DataFrame) -> list[str]:
    sides = {split: table[table["split"] == split] for split in ("train", "validation")}
    for column in ("patient_id", "slide_id"):
        shared = set(sides["train"][column]) & set(sides["validation"][column]) - {""}
        if shared:
            return [
                f"validation and training have common {column.removesuffix('_id')}s "
                f"({', '.join(sorted(shared)[:5])}): validation results may be too good"
            ]
    return []
