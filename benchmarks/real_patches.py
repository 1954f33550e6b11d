"""Real labeled patches as `own`, for few_labels.py: training and test patients depend on the dataset seed.

`idc`: breast, invasive ductal carcinoma or not, two patients; trained on one and tested on the other, in turn.
`lung`: three tissues; 60, 15 and 25 % of the sources of each are trained on, validated on and tested on. Encoders are
pretrained on real slides of other tissues; two of these measure the pretraining.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

SLIDES = (
    ("skin", "cmu-1-small-region.svs", "", "validation"),
    ("head-and-neck", "tcga-cr-7395-01a-01-ts1.svs", "1.0", "train"),
    ("stomach", "stomach-metaplasia.tif", "", "train"),
    ("duodenum", "duodenum-adenoma.tif", "", "train"),
    ("oesophagus", "oesophagus-eosinophilic.tif", "", "train"),
    ("breast", "breast-lobular.tif", "", "validation"),
    ("lymph-node", "lymph-node.tif", "0.25", "train"),
)
"""Name, file, µm/px where the file does not know it, split."""
TABLES = {"idc": ("idc-patches.zip", "idc-patches/index.csv"), "lung": ("lung-patches.zip", "patches.csv")}
"""The zip of a dataset, and the table in it."""
TEST, VALIDATION = 0.25, 0.15
"""Parts of the sources of lung."""
CHANGES = {"idc": ["labels.own.validation_within_patients=true"], "lung": []}
"""Of params."""


def lay_out(place: Path, dataset: str, dataset_seed: int, real: Path) -> None:
    """Write data/raw/own of `place`: slides.csv, patches.csv and a link to the zip."""
    folder = place / "data" / "raw" / "own"
    folder.mkdir(parents=True, exist_ok=True)
    slides = [(name, str(real / file), name, mpp, split) for name, file, mpp, split in SLIDES]
    columns = ["slide_id", "path", "patient_id", "mpp", "split"]
    pd.DataFrame(slides, columns=columns).to_csv(folder / "slides.csv", index=False)
    archive, table = TABLES[dataset]
    with zipfile.ZipFile(real / archive) as opened:
        patches = pd.read_csv(io.BytesIO(opened.read(table)), dtype={"patient_id": str})
    if dataset == "idc":
        patches["path"] = archive + "/" + patches["path"]
        tested = sorted(patches["patient_id"].unique())[1 - dataset_seed % 2]
        patches["split"] = np.where(patches["patient_id"] == tested, "test", "")
    else:
        patches["split"] = _splits(patches, dataset_seed)
    patches.to_csv(folder / "patches.csv", index=False)
    link = folder / archive
    link.unlink(missing_ok=True)
    link.symlink_to(real / archive)


def _splits(patches: pd.DataFrame, seed: int) -> pd.Series:
    """Of each row; sources of each class are split by themselves."""
    random = np.random.default_rng(seed)
    split_of: dict[str, str] = {}
    for _, part in patches.groupby("label", sort=True):
        sources = random.permutation(sorted(part["patient_id"].unique()))
        tested = round(TEST * len(sources))
        validated = tested + round(VALIDATION * len(sources))
        for number, source in enumerate(sources):
            split_of[source] = "test" if number < tested else "validation" if number < validated else "train"
    return patches["patient_id"].map(split_of)
