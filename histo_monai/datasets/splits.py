"""Splits: patients are chosen first, slides follow; a patient is never on both sides."""

from __future__ import annotations

import numpy as np
import pandas as pd


def split_slides(
    table: pd.DataFrame, validation_fraction: float, generator: np.random.Generator
) -> pd.Series:
    """Draw train and validation by patient, or by slide where no patient is known.

    Patients are taken in random order until the validation part holds at least `validation_fraction` of the slides,
    and always leave at least one patient for training.

    Args:
        table: columns `slide_id`, `patient_id` (empty where unknown).
        validation_fraction: of the slides, 0..1.
        generator: decides the order.

    Returns:
        "train" or "validation" for every row.

    Raises:
        ValueError: there is only one patient: nothing could be kept for validation.
    """
    group = table["patient_id"].where(table["patient_id"] != "", "slide " + table["slide_id"])
    names = np.array(sorted(group.unique()), dtype=object)
    if len(names) < 2:
        raise ValueError(
            f"all {len(table)} slides are of one patient ({names[0]}): "
            "validation needs slides of a patient not trained on"
        )
    validation: set[str] = set()
    for name in generator.permutation(names)[:-1]:
        if group.isin(validation).sum() >= validation_fraction * len(table):
            break
        validation.add(name)
    return group.isin(validation).map({True: "validation", False: "train"})


def check_patients_apart(table: pd.DataFrame) -> None:
    """Refuse a split given by the user that has a patient on two sides.

    Raises:
        ValueError: names the patient and two of the slides.
    """
    known = table[table["patient_id"] != ""]
    sides = known.groupby("patient_id")["split"].nunique()
    if (sides > 1).any():
        patient = sides[sides > 1].index[0]
        rows = known[known["patient_id"] == patient].drop_duplicates("split")
        where = " and ".join(f"{row.slide_id} in {row.split}" for row in rows.itertuples())
        raise ValueError(
            f"patient {patient!r} is on two sides of the split ({where}); keep all of a patient's slides on one"
        )
