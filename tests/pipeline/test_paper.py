"""params/paper.yaml is a whole experiment for each of the paper's three datasets."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.pipeline.names import run_of

METHODS = ("random", "vae", "moco", "rsp")
OF_METHOD = (
    *("pretrain", "finetune", "consistency", "evaluate", "heatmap", "aggregate"),
    *("features", "mil"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "corpus"),
    [("breastpathq", "breastpathq"), ("camelyon16", "camelyon16"), ("kather", "camelyon16")],
)
def test_a_dry_run_goes_through_all_stages(
    dataset: str, corpus: str, root: Path, tmp_path: Path, shell: Callable[..., str]
) -> None:
    for name in ("dvc.yaml", ".dvcignore", "histo_monai", "own_methods", ".dvc/config"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (shutil.copytree if (root / name).is_dir() else shutil.copy)(root / name, tmp_path / name)
    params = yaml.safe_load((root / "params/paper.yaml").read_text())
    (tmp_path / "params.yaml").write_text(
        yaml.safe_dump(params | {"dataset": dataset, "pretraining_dataset": corpus})
    )
    for folder in {dataset, corpus}:
        (tmp_path / "data/raw" / folder).mkdir(parents=True)
    output = shell("git init -q && dvc repro --dry --force --keep-going --allow-missing", tmp_path)
    ran = set(re.findall(r"Running stage '([^']+)'", output))
    pairs = itertools.product(OF_METHOD, METHODS)
    runs = {run_of(stage, method, "paper") for stage, method in pairs}
    assert ran == runs | {"code", "phantom", "index", "check", "compare", "report"}
