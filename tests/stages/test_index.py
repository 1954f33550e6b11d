"""The index stage on real slides and real labels, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from histo_monai.__main__ import main
from histo_monai.datasets.files import read_bytes
from histo_monai.datasets.labeled import read_patches

SLIDES = """slide_id,path,patient_id,split
skin,{0}/cmu-1-small-region.svs,s,train
breast,{0}/breast-lobular.tif,b,validation
"""


@pytest.fixture
def project(
    root: Path, real_slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """A project with two real slides to pretrain on; returns the folder of `own`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_CPUS", "1")

    def make(**changes: Any) -> Path:
        params = yaml.safe_load((root / "params.yaml").read_text())
        params |= {"source": "raw", "dataset": "own", "corpus": "own", "patch_px": 32}
        params["corpora"]["own"] |= {"num_train": 8, "num_validation": 4}
        params["labels"]["own"]["validation_within_patients"] = True
        (tmp_path / "params.yaml").write_text(yaml.safe_dump(params | changes))
        folder = tmp_path / "data/raw/own"
        folder.mkdir(parents=True)
        (folder / "slides.csv").write_text(SLIDES.format(real_slides))
        return folder

    return make


def _refused(capfd: pytest.CaptureFixture[str]) -> str:
    assert main(["index"]) == 1
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "error: " in line]
    assert not Path("data/index").exists()
    return line


def _metrics() -> dict[str, Any]:
    """Counts, and what is told of the labels."""
    found: dict[str, Any] = {}
    for name in ("metrics", "labels"):
        found |= json.loads(Path(f"data/index/{name}.json").read_text())
    return found


def test_real_labels_are_indexed_from_their_zip_one_patient_to_train_and_one_to_test(
    project: Callable[..., Path], real_slides: Path, tmp_path: Path
) -> None:
    folder = project()
    (folder / "idc-patches.zip").symlink_to(real_slides / "idc-patches.zip")
    (tmp_path / "given.csv").write_bytes(read_bytes(real_slides / "idc-patches.zip/idc-patches/index.csv"))
    given = pd.read_csv(tmp_path / "given.csv", dtype={"patient_id": str})
    given["path"] = "idc-patches.zip/" + given["path"]
    given["split"] = np.where(given["patient_id"] == "14306", "test", "")
    given.to_csv(folder / "patches.csv", index=False)
    assert main(["index"]) == 0
    patches = read_patches(Path("data/index/patches.csv"))
    assert len(patches) == 909
    assert patches["path"].str.startswith("data/raw/own/idc-patches.zip/idc-patches/").all()
    assert set(patches["side_px"]) == {50}
    assert patches.groupby("patient_id")["split"].unique().map(sorted).to_dict() == {
        "14082": ["train", "validation"],
        "14306": ["test"],
    }
    metrics = _metrics()
    assert metrics["patches_test"] == 431
    assert metrics["classes"]["idc"]["test"] == 167
    assert metrics["classes"]["idc"]["train"] + metrics["classes"]["idc"]["validation"] == 197
    assert len(metrics["warnings"]) == 1
    assert "patients trained on (14082)" in metrics["warnings"][0]


SQUARES = "slide_id,y,x,mpp,label,split\n" + "".join(
    f"{slide},{y},900,1,{label},{split}\n"
    for slide, split in (("skin", "train"), ("breast", "validation"))
    for y, label in ((500, "stroma"), (900, "gland"))
)


def test_labels_on_slides_keep_the_patient_of_the_slide(project: Callable[..., Path]) -> None:
    (project() / "patches.csv").write_text(SQUARES)
    assert main(["index"]) == 0
    patches = read_patches(Path("data/index/patches.csv"))
    assert patches["patient_id"].tolist() == ["s", "s", "b", "b"]
    assert patches["label_rank"].notna().tolist() == [True, True, False, False]
    assert _metrics()["warnings"] == [
        "no patch has the split test: all figures are of validation patches, by which models were chosen"
    ]


def test_a_test_slide_that_is_pretrained_on_fails_and_leaves_nothing(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = project()
    text = (
        SQUARES.replace("validation", "test")
        + "skin,700,900,1,gland,validation\nskin,700,700,1,stroma,validation\n"
    )
    (folder / "patches.csv").write_text(text)
    line = _refused(capfd)
    assert "1 leak between splits" in line
    assert "is in test (breast-row0000004) and in pretraining (breast)" in line


def test_slides_without_labels_can_be_pretrained_on(project: Callable[..., Path]) -> None:
    project()
    assert main(["index"]) == 0
    assert read_patches(Path("data/index/patches.csv")).empty
    metrics = _metrics()
    assert metrics["patches_train"] == 0
    assert "patches.csv: not found; without labels there is nothing to fine-tune" in metrics["warnings"][0]


def test_a_missing_dataset_says_where_to_put_it(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    project(dataset="kather")
    assert "data/raw/kather: not found; put or link the kather data there, or set `dataset`" in _refused(
        capfd
    )


def test_an_outside_patch_is_one_line_and_leaves_nothing(
    project: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    (project() / "patches.csv").write_text(SQUARES + "skin,5,900,1,gland,train\n")
    assert "patches.csv, row 6: the patch around y 5, x 900 of 32 px at 1 µm/px reaches outside" in _refused(
        capfd
    )
