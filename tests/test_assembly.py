"""Which rows trainings use."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from histo_monai import artifacts
from histo_monai.assembly import Assembly
from histo_monai.tables.patches import labeled_table, write_patches


@pytest.fixture
def assembly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Assembly:
    """Slides a and b with two training patches each, c with one for validation; an unlabeled patch on a, b and d."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"slide_id": slide, "label": label, "split": split, "label_rank": rank}
        for slide, split, rank in (("a", "train", 0.25), ("b", "train", 0.75), ("c", "validation", None))
        for label in ("normal", "tumor")
    ]
    rows += [{"slide_id": slide, "split": ""} for slide in "abd"]
    place = [{"patch_id": str(i), "path": row["slide_id"], "side_px": 8} for i, row in enumerate(rows)]
    table = labeled_table([row | at for row, at in zip(rows, place, strict=True)])
    artifacts.INDEX.mkdir(parents=True)
    write_patches(artifacts.UNLABELED_CSV, table[table["split"] == ""])
    patches = table[table["split"] != ""].reset_index(drop=True)
    params: Any = SimpleNamespace(alpha=1.0)
    nothing: Any = None
    return Assembly(params, nothing, patches, nothing, nothing)


def _slides(rows: pd.DataFrame) -> list[str]:
    return rows["slide_id"].tolist()


def test_students_learn_from_training_patches_and_from_those_without_labels(assembly: Assembly) -> None:
    rows = assembly.rows()
    assert _slides(rows.labeled) == ["a", "a", "b", "b"]
    assert _slides(rows.unlabeled) == ["a", "a", "b", "b", "a", "b", "d"]
    assert _slides(rows.validation) == ["c", "c"]


def test_no_patch_of_a_slide_that_is_left_out_is_used(assembly: Assembly) -> None:
    rows = assembly.rows(without_slides={"b"})
    assert _slides(rows.labeled) == ["a", "a"]
    assert _slides(rows.unlabeled) == ["a", "a", "a", "d"]
