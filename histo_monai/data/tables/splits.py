"""Splits by patient: all slides and patches of a patient are in one split."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from histo_monai.data.tables.columns import SPLITS
from histo_monai.data.tables.counting import stable_order
from histo_monai.data.tables.texts import order_of
from histo_monai.utils.errors import InputError
from histo_monai.utils.randomness import generator

_ATTEMPTS = 50


def split_slides(
    table: pd.DataFrame, validation_fraction: float, generator: np.random.Generator
) -> pd.Series:
    """Split of each slide, "train" or "validation", random by patient, else by slide.

    Validation receives patients until it has at least `validation_fraction` of the slides. At least one patient remains
    for training.

    Args:
        table: Columns `slide_id`, `patient_id` (empty if unknown).
        validation_fraction: Fraction of the slides, 0..1.
        generator: Random generator of the order.

    Raises:
        InputError: There is only one patient.
    """
    group = table["patient_id"].where(table["patient_id"] != "", "slide " + table["slide_id"])
    names = np.array(sorted(group.unique()), dtype=object)
    if len(names) < 2:
        raise InputError(
            f"all {len(table)} slides are of one patient ({names[0]}), but validation needs another. "
            "Fix: add slides of another patient."
        )
    validation: set[str] = set()
    for name in generator.permutation(names)[:-1]:
        if group.isin(validation).sum() >= validation_fraction * len(table):
            break
        validation.add(name)
    return group.isin(validation).map({True: "validation", False: "train"})


def check_patients_apart(table: pd.DataFrame) -> None:
    """Refuse a user's split with one patient in two splits.

    Raises:
        InputError: Names the patient and the slides.
    """
    known = table[table["patient_id"] != ""]
    sides = known.groupby("patient_id")["split"].nunique()
    if (sides > 1).any():
        patient = sides[sides > 1].index[0]
        rows = known[known["patient_id"] == patient].drop_duplicates("split")
        where = " and ".join(f"{row.slide_id} in {row.split}" for row in rows.itertuples())
        raise InputError(
            f"patient {patient!r} is in two splits ({where}). Fix: give all slides of a patient one split."
        )


def random_splits(
    table: pd.DataFrame,
    validation_fraction: float,
    generator: np.random.Generator,
    *,
    within_patients: bool = False,
    twins: pd.Series | None = None,
) -> pd.Series:
    """Split of each labeled patch; patches without a split get train or validation by patient, else slide, else patch.

    Groups of one class are split within the class, for equal class proportions; mixed groups are split together.
    Validation receives random groups until it has at least `validation_fraction` of the patches. At least one group
    remains for training. If a class is missing on one side, the split is repeated, up to 50 times.

    Args:
        table: `columns.PATCH_COLUMNS`; given splits do not change.
        validation_fraction: Fraction of the rows without a split, 0..1.
        generator: Random generator; the order of the rows has no effect.
        within_patients: Whether patches of one patient may be on both sides.
        twins: Equal text for patches with equal pixels, or empty; they form a group if patient and slide are unknown.

    Raises:
        InputError: There is only one patient (or slide), or a class cannot be on both sides.
    """
    split = table["split"].copy()
    rows = table.loc[split == "", ["patch_id", "slide_id", "patient_id", "label"]]
    rows = rows.iloc[order_of(rows["patch_id"])]
    if rows.empty:
        return split
    number, first = _groups(rows, within_patients, twins)
    num_groups = int(number.max()) + 1
    if num_groups < 2:
        raise InputError(
            f"all {len(rows)} patches for training are of one {first}, but validation needs another. "
            "Fix: add patches, or set labels.own.validation_within_patients: true."
        )
    label = pd.factorize(rows["label"])[0]
    stratum = _strata_of_groups(number, label, num_groups)
    for attempt in range(_ATTEMPTS):
        # If splitting within classes fails, a patient may hold all patches of a class; split without classes.
        strata = stratum if attempt < _ATTEMPTS // 2 else np.zeros_like(stratum)
        chosen = _random_groups(number, strata, validation_fraction, generator)[number]
        sides = [set(label[chosen]), set(label[~chosen])]
        if sides[0] == sides[1]:
            break
    else:
        lacking = sorted(rows["label"].iloc[np.flatnonzero(label == min(sides[0] ^ sides[1]))[:1]])
        raise InputError(
            f"class {lacking[0]!r} is in so few patients or slides that training and validation cannot both "
            "have it. Fix: add patches of this class, or fill the column split."
        )
    split.loc[rows.index] = np.where(chosen, "validation", "train")
    return split


def _groups(
    rows: pd.DataFrame, within_patients: bool, twins: pd.Series | None
) -> tuple[NDArray[np.int64], str]:
    """Group number of each row, in order of first rows, and the name of the first group."""
    kinds = {} if within_patients else {"patient": rows["patient_id"], "slide": rows["slide_id"]}
    if twins is not None:
        kinds["pixels"] = twins.loc[rows.index]
    group, num_groups, first = np.full(len(rows), -1, np.int64), 0, f"patch {rows['patch_id'].iloc[0]}"
    for kind, names in kinds.items():
        of_kind = (names != "").to_numpy() & (group < 0)
        numbers, different = pd.factorize(names[of_kind])
        group[of_kind] = num_groups + numbers
        if of_kind[0]:
            first = f"{kind} {different[0]}"
        num_groups += len(different)
    alone = group < 0
    group[alone] = num_groups + np.arange(alone.sum())
    return pd.factorize(group)[0], first


def _strata_of_groups(number: np.ndarray, label: np.ndarray, num_groups: int) -> np.ndarray:
    """Class of each group, -1 for several classes, shape (groups,)."""
    low, high = np.full(num_groups, len(label)), np.full(num_groups, -1)
    np.minimum.at(low, number, label)
    np.maximum.at(high, number, label)
    return np.where(low == high, low, -1)


def _random_groups(
    number: np.ndarray, stratum: np.ndarray, fraction: float, generator: np.random.Generator
) -> np.ndarray:
    """Mask of the validation groups, shape (groups,), bool."""
    size = np.bincount(number, minlength=len(stratum))
    order = generator.permutation(len(stratum))
    order = order[stable_order(stratum[order])]
    starts = np.flatnonzero(np.r_[True, np.diff(stratum[order]) != 0])
    lengths = np.diff(np.r_[starts, len(order)])
    before = np.cumsum(size[order]) - size[order]
    before -= np.repeat(before[starts], lengths)
    total = np.repeat(np.add.reduceat(size[order], starts), lengths)
    is_last = np.zeros(len(order), dtype=bool)
    is_last[starts + lengths - 1] = True
    chosen = np.zeros(len(order), dtype=bool)
    chosen[order] = (before < fraction * total) & ~is_last
    return chosen


def in_order_of_splits(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of training, then validation, then test, each sorted by `patch_id`; index from 0.

    Args:
        table: `columns.PATCH_COLUMNS` with splits.
    """
    by_name = order_of(table["patch_id"])
    side = (
        pd.Index(SPLITS).get_indexer(pd.Index(table["split"]))[by_name].astype(np.int8)
    )  # sorted by counting
    return table.iloc[by_name[stable_order(side)]].reset_index(drop=True)


def label_ranks(table: pd.DataFrame, generator: np.random.Generator) -> pd.Series:
    """Rank in [0, 1) of each training patch, NaN for other splits; a patch is labeled if `label_rank < alpha`.

    The labels of a smaller alpha are a subset of the labels of a larger one. A stratum is a class, or a tenth of the
    range of scores. In a stratum of n patches, the i-th in random order has rank (i + 0.5) / n. So alpha labels
    alpha · n patches, rounded.

    Args:
        table: `columns.PATCH_COLUMNS` with splits.
        generator: Random generator of the order; the order of the rows has no effect.
    """
    is_train = (table["split"] == "train").to_numpy()
    rows = table.loc[is_train, ["patch_id", "label", "score"]]
    by_name = order_of(rows["patch_id"])
    scored = rows["score"].notna().to_numpy()
    tenth = np.clip(np.floor(rows["score"].to_numpy() * 10), 0, 9)
    classes, names = pd.factorize(rows["label"].where(~scored, ""))
    stratum = np.where(scored, len(names) + tenth, classes).astype(np.int64)[by_name]
    order = np.argsort(generator.random(len(rows)))
    order = order[stable_order(stratum[order])]
    size = np.bincount(stratum)
    before = np.cumsum(size) - size
    of_order = stratum[order]
    rank = np.full(len(table), np.nan)
    places = np.flatnonzero(is_train)[by_name[order]]
    rank[places] = (np.arange(len(order)) - before[of_order] + 0.5) / size[of_order]
    return pd.Series(rank, index=table.index)


def with_label_ranks(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The table with the label ranks of a run's seed. Seed 0 uses the ranks of the index stage.

    Args:
        table: The complete table, `columns.PATCH_COLUMNS` with splits and ranks; a part would change the ranks.
    """
    if seed == 0:
        return table
    return table.assign(label_rank=label_ranks(table, generator(seed, "label ranks of a run")))


def labeled_rows(table: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Training patches with a used label; index from 0.

    Args:
        table: `columns.PATCH_COLUMNS` with splits and ranks.
        alpha: Fraction of the training labels, in (0, 1].

    Raises:
        InputError: A class has no label, or fewer than two patches have one.
    """
    train = table[table["split"] == "train"]
    chosen = train[train["label_rank"] < alpha].reset_index(drop=True)
    lowest = train.groupby("label")["label_rank"].min().sort_values(ascending=False)
    lacking = lowest[~lowest.index.isin(chosen["label"])]
    if len(lacking) and train["score"].isna().all():
        name, rank = lacking.index[0], float(lacking.iloc[0])
        raise InputError(
            f"alpha {alpha:g} leaves class {name!r} without a label: it selects none of "
            f"{(train['label'] == name).sum()} training patches. Fix: raise alpha to {_just_above(rank):g}."
        )
    if len(chosen) < 2:
        ranks = np.sort(train["label_rank"].to_numpy())
        advice = f"raise alpha to {_just_above(float(ranks[1])):g}" if len(ranks) > 1 else "add patches"
        raise InputError(
            f"alpha {alpha:g} leaves {len(chosen)} of {len(train)} training patches with a label. Fix: {advice}."
        )
    return chosen


def _just_above(rank: float) -> float:
    """Next larger number with three decimals, an alpha that labels the patch of this rank."""
    return float(np.floor(rank * 1000 + 1) / 1000)
