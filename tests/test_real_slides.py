"""The pipeline's commands on real slides: trained on five tissues, validated on two never seen."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from histo_monai.pipeline.cli import main

SLIDES = [
    ("skin", "cmu-1-small-region.svs", "", "validation"),
    ("duodenum", "duodenum-adenoma.tif", "", "validation"),
    ("head-neck", "tcga-cr-7395-01a-01-ts1.svs", "1.0", "train"),
    ("stomach", "stomach-metaplasia.tif", "", "train"),
    ("oesophagus", "oesophagus-eosinophilic.tif", "", "train"),
    ("breast", "breast-lobular.tif", "", "train"),
    ("lymph-node", "lymph-node.tif", "0.25", "train"),
]


@pytest.mark.slow
@pytest.mark.learns
def test_rsp_learns_scale_that_holds_for_tissues_outside_training(
    root: Path, real_slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = yaml.safe_load((root / "params.yaml").read_text())
    params |= {
        "source": "raw",
        "dataset": "own",
        "pretraining_dataset": "own",
        "pretraining_methods": ["rsp"],
    }
    params["corpora"]["own"] |= {"num_train": 960, "num_validation": 120}
    params["pretrain"]["rsp"] |= {"epochs": 2, "batch_size": 16}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    folder = tmp_path / "data/raw/own"
    folder.mkdir(parents=True)
    table = pd.DataFrame(SLIDES, columns=["slide_id", "path", "mpp", "split"])
    table.assign(path=[real_slides / name for name in table["path"]]).to_csv(
        folder / "slides.csv", index=False
    )

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HISTO_MONAI_DEVICE", "cpu")
    assert main(["index"]) == 0
    assert main(["pretrain", "--method", "rsp"]) == 0
    metrics = json.loads((tmp_path / "data/models/rsp-0/summary.json").read_text())
    assert metrics["validation_accuracy"] > 0.35  # chance is 0.167; after 60 and 120 steps
