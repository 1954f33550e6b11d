"""Your own slides: a folder with `slides.csv`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from histo_monai.datasets.tables import SPLITS, corpus_table, read_table

COLUMNS = ("slide_id", "path", "patient_id", "mpp", "label", "split")


def pretraining_slides(root: Path) -> pd.DataFrame:
    """The slides that `slides.csv` names, without those whose split is `test`.

    Columns: `slide_id`, `path` (absolute, or relative to the folder of slides.csv), and where you have them
    `patient_id`, `mpp` (µm per pixel of the full resolution: needed where the file holds none), `label`, `split`
    (train, validation or test: for all rows, or left out for all and drawn by patient).

    Returns:
        See `tables.CORPUS_COLUMNS`.

    Raises:
        ValueError: the file or a needed column is missing, a column is unknown, an id comes twice, or a value is not
            what its column holds; names file and row.
    """
    manifest = root / "slides.csv"
    if not manifest.is_file():
        raise ValueError(
            f"{manifest}: not found; list your slides there: slide_id,path[,patient_id,mpp,label,split]"
        )
    table = read_table(manifest, needed=("slide_id", "path"), known=COLUMNS)
    given = table["split"] if "split" in table else pd.Series("", index=table.index)
    if (given == "").any() and (given != "").any():
        bare = int((given == "").to_numpy().argmax()) + 2
        raise ValueError(
            f"{manifest}, row {bare}: no split, while other rows have one; fill the column split, or remove it"
        )
    rows = []
    records: list[dict[str, str]] = table.to_dict("records")  # type: ignore[assignment]  # all columns are text
    for number, row in enumerate(records, start=2):
        where = f"{manifest}, row {number}"
        if row.get("split", "") not in ("", *SPLITS):
            raise ValueError(f"{where}: split is {row['split']!r}; expected {', '.join(SPLITS)} or nothing")
        rows.append(
            {
                "slide_id": row["slide_id"],
                "path": root / row["path"],
                "patient_id": row.get("patient_id", ""),
                "mpp": _mpp(row.get("mpp", ""), where),
                "split": row.get("split", ""),
            }
        )
    return corpus_table([row for row in rows if row["split"] != "test"])


def _mpp(text: str, where: str) -> float | None:
    if not text:
        return None
    try:
        mpp = float(text)
    except ValueError:
        mpp = float("nan")
    if not 0.05 <= mpp <= 64.0:
        raise ValueError(
            f"{where}: mpp is {text!r}; expected µm per pixel, 0.05 to 64, or nothing where the file knows it"
        )
    return mpp
