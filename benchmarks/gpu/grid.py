"""The few-labels grid at 128 px, small, then every stage of whole slides in its first dataset: a row for each.

Simulated datasets of `few_labels.py` run at the same time, with params of this file. `--quick` has 32 px and few steps.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from few_labels import ROOT, seed_of
from turns import OURS, asked, is_time_up, row_of

DATASET, METHOD, STUDENT = "camelyon16", "rsp_moco", "spatial_neighbors"
FIRST = 10
"""Seed of the first simulated dataset; params.yaml was chosen on others."""
NUM_DATASETS = 2
STAGES = ("heatmap", "aggregate", "features", "mil")
SMALL: dict[str, Any] = {
    "patch_px": 128,
    "phantom.num_slides": 16,
    "phantom.num_test_slides": 12,
    "phantom.slide_side_px": 4096,
    "aggregate.num_permutations": 10,
}
SMALLEST: dict[str, Any] = {
    "patch_px": 32,
    "alpha": 0.25,
    "phantom.num_slides": 12,
    "phantom.num_test_slides": 4,
    "phantom.slide_side_px": 768,
    "corpora.camelyon16.num_train": 24,
    "corpora.camelyon16.num_validation": 6,
    "corpora.camelyon16.num_normal": 2,
    "corpora.camelyon16.num_tumor": 2,
    **{
        f"labels.camelyon16.{split}": {"num_tumor": 16, "num_normal": 16}
        for split in ("train", "separate_validation")
    },
    "labels.camelyon16.test": {"num_tumor": 16, "num_normal": 16},
    "labels.camelyon16.unlabeled": 24,
    f"pretrain.{METHOD}.epochs": 1,
    f"pretrain.{METHOD}.batch_size": 8,
    f"pretrain.{METHOD}.queue_size": 16,
    "pretrain.moco.queue_size": 16,
    **{
        f"{stage}.recipe.{key}": value
        for stage in ("finetune", "consistency")
        for key, value in (("epochs", 1), ("steps_per_epoch", 2), ("batch_size", 4))
    },
    "mil.num_folds": 2,
    "mil.epochs": 2,
    "aggregate.num_folds": 2,
    "aggregate.num_permutations": 3,
}


def main() -> None:
    options = asked()
    params = SMALLEST if options.quick else SMALL
    each = max(1, len(os.sched_getaffinity(0)) // NUM_DATASETS)
    cpus = {"HISTO_MONAI_CPUS": str(each), "HISTO_MONAI_WORKERS": str(each - 1)}
    changes = [
        word
        for key, value in params.items()
        for word in ("--set", f"{key}={yaml.safe_dump(value, default_flow_style=True).splitlines()[0]}")
    ]
    with tempfile.TemporaryDirectory() as name:
        folder, start = Path(name), time.perf_counter()
        grid = [sys.executable, str(ROOT / "benchmarks/few_labels.py")]
        running = {
            dataset_seed: subprocess.Popen(
                [
                    *grid,
                    "run",
                    name,
                    "--dataset",
                    DATASET,
                    "--dataset-seeds",
                    str(dataset_seed),
                    "--runs",
                    "0",
                    *changes,
                ],
                env=os.environ | cpus,
                stdout=sys.stderr,
            )
            for dataset_seed in range(FIRST, FIRST + NUM_DATASETS)
        }
        bad = [dataset_seed for dataset_seed, process in running.items() if process.wait()]
        if bad:
            raise SystemExit(_end_of(folder / f"{DATASET}-{bad[0]}/log"))
        write_row(f"few labels, {params['patch_px']} px, {NUM_DATASETS} datasets at the same time", start)
        report = subprocess.run([*grid, "report", name], capture_output=True, text=True, check=True).stdout
        print(report, file=sys.stderr)
        place = folder / f"{DATASET}-{FIRST}"
        write_slide_params(place)
        for stage in STAGES:
            if not is_time_up(f"stage {stage}"):
                run_stage(place, stage)


def write_slide_params(place: Path) -> None:
    """Ask for maps of slides, of the labels that the first run had."""
    path = place / "params.yaml"
    tree = yaml.safe_load(path.read_text())
    tree |= {
        "slide_level": {
            "pretraining_methods": [METHOD],
            "semisupervised_methods": [STUDENT],
            "num_encoders": None,
        },
        "semisupervised_methods": [STUDENT],
        "pretraining_methods": [METHOD],
    }
    path.write_text(yaml.safe_dump(tree))


def run_stage(place: Path, stage: str) -> None:
    """A row; raises SystemExit with the end of its log where it fails."""
    start = time.perf_counter()
    of = ["--method", METHOD]
    if stage != "features":
        of += ["--seed", str(seed_of(FIRST, 0))]
    if stage in ("heatmap", "aggregate"):
        of += ["--student", STUDENT]
    with (place / "log").open("ab") as log:
        command = [sys.executable, "-m", "histo_monai", stage, *of]
        if subprocess.run(command, cwd=place, stdout=log, stderr=log, check=False).returncode:
            raise SystemExit(f"{stage}: {_end_of(place / 'log')}")
    write_row(f"stage {stage}", start)


def write_row(what: str, start: float) -> None:
    """A row of seconds since `start`, start of processes and imports with it."""
    row_of(what, {OURS: [time.perf_counter() - start]}, clock="wall").write()


def _end_of(log: Path) -> str:
    """Its last line; those before it are printed to the errors."""
    lines = log.read_text(errors="replace").strip().splitlines()
    print("\n".join(lines[-60:]), file=sys.stderr)
    return lines[-1]


if __name__ == "__main__":
    main()
