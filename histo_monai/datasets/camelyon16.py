"""Camelyon16: the official tree, read as published (Ehteshami Bejnordi et al. 2017)."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from histo_monai.datasets.tables import corpus_table

_NAME = re.compile(r"(normal|tumor)_(\d+)\.tif$", re.IGNORECASE)


def pretraining_slides(root: Path, num_normal: int, num_tumor: int) -> pd.DataFrame:
    """The first `num_normal` and `num_tumor` training slides by number; the paper takes 35 and 25.

    The other training slides are kept for fine-tuning, and test slides are never among these. Names may be written in
    upper or lower case; ids are lower case.

    Args:
        root: holds `training/normal/normal_001.tif` ... and `training/tumor/tumor_001.tif` ...
        num_normal: how many normal slides.
        num_tumor: how many tumour slides.

    Returns:
        See `tables.CORPUS_COLUMNS`.

    Raises:
        ValueError: a folder is missing, or holds fewer slides than asked for, or two files of one id.
    """
    rows = []
    for kind, wanted in (("normal", num_normal), ("tumor", num_tumor)):
        folder = root / "training" / kind
        found: dict[int, Path] = {}
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            match = _NAME.match(path.name)
            if match is None or match[1].lower() != kind:
                continue
            number = int(match[2])
            if number in found:
                raise ValueError(
                    f"{path}: a second file for slide {kind}_{number:03d}, beside {found[number].name}; keep one"
                )
            found[number] = path
        if len(found) < wanted:
            raise ValueError(
                f"{folder}: {len(found)} slides named {kind}_<number>.tif, "
                f"but corpora.camelyon16.num_{kind} asks for {wanted}"
            )
        rows += [{"slide_id": f"{kind}_{n:03d}", "path": found[n]} for n in sorted(found)[:wanted]]
    return corpus_table(rows)
