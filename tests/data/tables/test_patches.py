from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from histo_monai.data.tables.columns import PATCH_COLUMNS
from histo_monai.data.tables.patches import labeled_table, read_patches, write_patches


def _rows(num: int) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "patch_id": [f"normal_{i % 210:03d}-{i}" for i in range(num)],
            "path": [f"data/raw/camelyon16/training/normal/normal_{i % 210:03d}.tif" for i in range(num)],
            "slide_id": [f"normal_{i % 210:03d}" for i in range(num)],
            "y": generator.integers(0, 100_000, num),
            "x": generator.integers(0, 100_000, num),
            "mpp": 0.25,
            "side_px": 256,
            "label": "normal",
            "split": "train",
            "label_rank": generator.random(num),
        }
    )


def test_columns_not_given_are_empty_texts_or_missing_numbers() -> None:
    table = labeled_table([{"patch_id": "a", "path": Path("x/a.tif"), "side_px": 224, "label": "TUM"}])
    assert tuple(table.columns) == PATCH_COLUMNS
    row = table.iloc[0]
    assert (row["path"], row["slide_id"], row["patient_id"], row["split"]) == ("x/a.tif", "", "", "")
    assert table[["y", "x", "mpp", "score", "rater_a", "rater_b", "label_rank"]].isna().all(axis=None)
    assert table["side_px"].dtype == np.int32


def test_a_written_table_is_read_back_to_the_last_bit(tmp_path: Path) -> None:
    table = labeled_table(_rows(1000).assign(patient_id="NA", label=["nan", "01"] * 500))
    write_patches(tmp_path / "patches.csv", table)
    pd.testing.assert_frame_equal(read_patches(tmp_path / "patches.csv"), table, check_exact=True)


def test_a_table_without_rows_is_read_back(tmp_path: Path) -> None:
    write_patches(tmp_path / "patches.csv", labeled_table(_rows(1)).iloc[:0])
    assert read_patches(tmp_path / "patches.csv").empty


@pytest.mark.parametrize(
    ("text", "message"),
    [("patch_id,path\na,b\n", "it has no column 'slide_id'"), ("", "it is empty")],
)
def test_a_file_of_another_kind_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "patches.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        read_patches(tmp_path / "patches.csv")
    assert "\n" not in str(caught.value)


def test_the_error_for_a_missing_index_names_the_command_to_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"patches\.csv: not found\. Fix: run `dvc repro index`"):
        read_patches(tmp_path / "patches.csv")


def test_a_patch_id_that_comes_twice_is_named_with_both_files() -> None:
    rows = [{"patch_id": "a", "path": path, "side_px": 8} for path in ("1.tif", "2.tif")]
    with pytest.raises(ValueError, match=r"patch_id 'a' is given twice, for 1\.tif and 2\.tif"):
        labeled_table(rows)
    with pytest.raises(ValueError, match="no labeled patch"):
        labeled_table([])
    with pytest.raises(ValueError, match="unknown column 'stain'"):
        labeled_table([{**rows[0], "stain": "HE"}])
