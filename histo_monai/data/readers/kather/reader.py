"""Kather's nine classes of colorectal tissue in their published folder tree (Kather et al. 2019, NCT-CRC-HE)."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pandas as pd

from histo_monai.data.tables.patches import LabeledDataset, labeled_table
from histo_monai.utils.errors import InputError
from histo_monai.utils.files.trees import find_tree, list_folders, list_images

CLASSES = ("ADI", "BACK", "DEB", "LYM", "MUC", "MUS", "NORM", "STR", "TUM")
PATCH_PX, PATCH_MPP = 224, 0.5
TEST = "CRC-VAL-HE-7K"


def labeled_patches(root: Path, *, folder: str) -> LabeledDataset:
    """Patches of a training folder, not split yet, and patches of the test folder.

    Args:
        root: Contains the two folders, or their published zips.
        folder: Training folder: NCT-CRC-HE-100K or NCT-CRC-HE-100K-NONORM.

    Raises:
        InputError: A folder is missing, one of its nine classes is missing or empty, or it has another folder.
    """
    parts = [_classes(find_tree(root, folder), ""), _classes(find_tree(root, TEST), "test")]
    table = pd.concat(parts, ignore_index=True).assign(mpp=PATCH_MPP, side_px=PATCH_PX)
    about = (
        f"{folder} has no patient ids: training and validation can contain patches of one patient, so validation and "
        "cross-validation metrics may be too good; the test patients are different"
    )
    return LabeledDataset(labeled_table(table), about_patients=about)


def _classes(tree: Path, split: str) -> pd.DataFrame:
    unknown = [name for name in list_folders(tree) if name not in CLASSES]
    if unknown:
        raise InputError(f"{tree / unknown[0]}: no class of this name. Fix: use {', '.join(CLASSES)}.")
    names = list_images(tree)
    parts = [PurePosixPath(name).parts for name in names]
    for name, part in zip(names, parts, strict=True):
        if len(part) != 2:
            raise InputError(
                f"{tree / name}: lies in no class folder. Fix: move it to {tree}/<class>/<image>."
            )
    labels = [part[0] for part in parts]
    missing = [name for name in CLASSES if name not in set(labels)]
    if missing:
        raise InputError(f"{tree / missing[0]}: no image of this class. Fix: copy or download it again.")
    return pd.DataFrame(
        {
            "patch_id": [f"{tree.stem}/{name}" for name in names],
            "path": [f"{tree}/{name}" for name in names],
            "label": labels,
            "split": split,
        }
    )
