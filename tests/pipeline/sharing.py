"""What the tests of all remotes look at: one model of the tiny pipeline, and the evaluation of a clone that pulled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

STUDENT = "data/models/rsp-0-spatial_neighbors-0/student"
MODEL, DESCRIPTION = f"{STUDENT}/model.safetensors", f"{STUDENT}/model.json"
READ_BY_EVALUATE = (
    "code phantom index pretrain@rsp-0 features@rsp-0 finetune@rsp-0-0 consistency@rsp-0-spatial_neighbors-0"
)


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def digests_of(folder: Path) -> dict[str, str]:
    """What a clone's dvc.lock says of each file: its MD5."""
    stages = yaml.safe_load((folder / "dvc.lock").read_text())["stages"].values()
    return {out["path"]: out["md5"] for stage in stages for out in stage["outs"]}


def digests_in_folders(clone: Path) -> set[str]:
    """MD5 of all files in the folders that a clone has pulled."""
    folders = clone.glob(".dvc/cache/files/md5/*/*.dir")
    return {entry["md5"] for path in folders for entry in json.loads(path.read_text())}


def evaluates_to_the_same_bytes(clone: Path, digests: Mapping[str, str], shell: Callable[..., str]) -> None:
    """A clone that has pulled what an evaluation reads comes to the metrics, and to the lock, that were committed."""
    assert not (clone / "data/models/random-0").exists()
    assert not (clone / "data/evaluation").exists()
    shell("python -m histo_monai evaluate --method rsp --seed 0", clone)
    for name in ("metrics.json", "predictions.csv", "summary.json"):
        path = f"data/evaluation/rsp-0-spatial_neighbors-0/{name}"
        assert md5(clone / path) == digests[path], name
    shell("dvc commit evaluate@rsp-0-spatial_neighbors-0", clone)
    assert "up to date" in shell("dvc status evaluate@rsp-0-spatial_neighbors-0", clone)
    assert shell("git status --porcelain", clone) == ""  # dvc.lock is what it was, pictures included
