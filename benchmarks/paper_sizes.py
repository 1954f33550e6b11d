"""One iteration of every stage at the paper's sizes on simulated trees: time and peak memory of each.

    python benchmarks/paper_sizes.py [--dataset kather] [--methods rsp moco] [--folder somewhere]

params/paper.yaml as it is (256 px, 64 samples a step, 0.25 to 2 µm/px), except: the slides are simulated and few, the
training is one epoch of one batch, and MoCo's queue is no larger than that batch. Memory is the peak resident set of
the stage's process, its children not counted. Stages run on HISTO_MONAI_CPUS cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from histo_monai.pipeline.params.file import read_tree

CORPUS = {"breastpathq": "breastpathq", "camelyon16": "camelyon16", "kather": "camelyon16"}
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=sorted(CORPUS), default="camelyon16")
    parser.add_argument("--methods", nargs="+", default=["random", "vae", "moco", "rsp"])
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    tree = smallest(read_tree(ROOT / "params/paper.yaml"), arguments.dataset)
    (folder / "params.yaml").write_text(json.dumps(tree | {"pretraining_methods": arguments.methods}))
    stages = [["phantom"], ["index"]]
    for method in arguments.methods:
        stages.append(["pretrain", "--method", method])
        stages += [
            [stage, "--method", method, "--seed", "0"] for stage in ("finetune", "consistency", "evaluate")
        ]
    print(f"{arguments.dataset}: stage, seconds, peak GiB")
    for stage in [*stages, ["compare"]]:
        seconds, gib = measured(stage, folder)
        print(f"  {' '.join(stage):<40} {seconds:7.1f} {gib:7.2f}", flush=True)


def smallest(tree: Any, dataset: str) -> Any:
    """The paper's params with one batch to train on."""
    corpus = CORPUS[dataset]
    tree |= {"source": "phantom", "dataset": dataset, "pretraining_dataset": corpus, "alpha": 1.0}
    tree["phantom"] |= {"num_slides": 8, "num_test_slides": 2, "slide_side_px": 3072, "num_patches": 180}
    if dataset == "breastpathq":
        tree["phantom"] |= {"slide_mpp": 0.5, "num_patches": 60}
    tree["corpora"][corpus] |= {"num_train": 64, "num_validation": 8}
    tree["corpora"]["camelyon16"] |= {"num_normal": 1, "num_tumor": 1}
    counts = {"num_tumor": 8, "num_normal": 8}
    tree["labels"]["camelyon16"] |= dict.fromkeys(("train", "separate_validation", "test"), counts)
    for method in ("vae", "moco", "rsp"):
        tree["pretrain"][method] |= {"epochs": 1}
    tree["pretrain"]["moco"]["queue_size"] = tree["pretrain"]["moco"]["batch_size"]
    for stage in ("finetune", "consistency"):
        tree[stage]["paper"] |= {"epochs": 1, "milestones": []}
    return tree


def measured(stage: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak GiB of a stage; its output is printed when it fails."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "histo_monai", *stage], cwd=folder, env=environment, stdout=log, stderr=log
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit((folder / "log.txt").read_text()[-2000:])
    return time.perf_counter() - start, usage.ru_maxrss / 2**20


if __name__ == "__main__":
    main()
