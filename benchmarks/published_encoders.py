"""Published encoders through all stages on real slides, each step timed: heads, then two steps of training.

    python benchmarks/published_encoders.py DIR [--encoders resnet50 uni2-h ...]    # needs ../shared/real

resnet50 and uni2-h have random weights in their published layouts, efficientnet-lite0 has ImageNet's. uni2-h has
681 million parameters.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import timm
import torch
import torchvision
import yaml
from own_starts import REAL, _fields
from real_patches import SLIDES

from histo_monai.models.encoders.packaged import NAME

ENCODERS = ("resnet50", "efficientnet-lite0", "uni2-h")
USED = {"stomach": "train", "head-and-neck": "train", "duodenum": "validation", "skin": "test"}
"""Slides and their splits."""
SMALLEST = REAL / "cmu-1-small-region.svs"
RUN = ("--method", "pretrained", "--seed", "0")
OF_RUN = ("finetune", "consistency", "evaluate")
MODEL = "data/models/pretrained-0-0/finetuned/model.safetensors"
NUM_PER_CLASS = 3
TWO_STEPS = {"epochs": 1, "steps_per_epoch": 2, "batch_size": 4, "batchnorm_patches": 0}


def main() -> None:
    """All steps of the encoders, one after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=ENCODERS)
    parser.add_argument("--side", type=int, default=224, help="input side of the encoders, px")
    parser.add_argument("--depth", type=int, default=24, help="blocks of uni2-h: fewer need less memory")
    arguments = parser.parse_args()
    for name in arguments.encoders:
        before = Path.cwd()
        run(arguments.folder / name, name, arguments.side, arguments.depth)
        os.chdir(before)


def run(place: Path, name: str, side_px: int, depth: int) -> None:
    """All steps of one encoder."""
    timed = _Timed(name)
    if not (place / "params.yaml").exists():
        timed("init", "init", str(place), "--dataset", "own")
    os.chdir(place)
    write_data()
    write_params(name, side_px, depth)
    for stage in ("index", "check", "pretrain", "features"):
        timed(stage, stage, *(RUN[:2] if stage in ("pretrain", "features") else ()))
    for stage in OF_RUN:
        timed(f"head: {stage}", stage, *RUN)
    timed("head: map", "map", str(SMALLEST), "--model", MODEL, "--output", "maps")
    mode = "adapters" if name == "uni2-h" else "last"
    change(
        {
            "finetune.mode": mode,
            "semisupervised_methods": ["adabn"],
            "slide_level.semisupervised_methods": ["adabn"],
        }
    )
    for stage in (*OF_RUN, "heatmap", "aggregate", "mil"):
        timed(f"{mode}: {stage}", stage, *RUN)
    timed(f"{mode}: map", "map", str(SMALLEST), "--model", MODEL, "--output", "maps-trained")
    timed("export --trunk", "export", MODEL, "--trunk", "trunk.safetensors")
    timed("export --bundle", "export", MODEL, "--bundle", "bundle")
    for stage in ("compare", "report"):
        timed(stage, stage)


class _Timed:
    """Runs each step in a process of its own, so that its peak memory is its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, step: str, *words: str) -> None:
        began = time.perf_counter()
        child = subprocess.Popen([sys.executable, "-m", "histo_monai", *words])
        _, status, used = os.wait4(child.pid, 0)
        if status != 0:
            raise SystemExit(f"{self._name}: {step} failed")
        wall, cpu, peak_gb = time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6
        print(
            f"timed: {self._name}, {step}: {wall:.0f} s, processor {cpu:.1f} s, peak {peak_gb:.1f} GB",
            flush=True,
        )


def write_data() -> None:
    """data/raw/own: four slides, and of each its darkest and lightest squares of 256 µm, with a label."""
    slides = pd.DataFrame(SLIDES, columns=["slide_id", "path", "mpp", "split"])
    slides = slides[slides["slide_id"].isin(list(USED))]
    slides = slides.assign(
        path=[str(REAL / name) for name in slides["path"]],
        split=slides["slide_id"].map(USED),
        patient_id=slides["slide_id"],
    )
    own = Path("data/raw/own")
    slides.to_csv(own / "slides.csv", index=False)
    known = slides[["slide_id", "path", "mpp"]].itertuples(index=False, name=None)
    fields = pd.concat([_fields(slide, Path(path), mpp) for slide, path, mpp in known])
    fields = fields[fields["rank"] < NUM_PER_CLASS].assign(mpp=2.0)
    fields[["slide_id", "y", "x", "mpp", "label"]].to_csv(own / "patches.csv", index=False)


def write_params(name: str, side_px: int, depth: int) -> None:
    """Few patches, two steps of training, and the encoder's weights."""
    change(
        {
            "patch_px": 128,
            "encoder.side": side_px,
            "corpora.own": {"mpps": [2.0, 4.0, 8.0], "num_train": 3, "num_validation": 1},
            "labels.own.unlabeled": 8,
            "evaluate.batch_size": 8,
            "slide_level.pretraining_methods": [],
            "semisupervised_methods": ["self_training"],
            "slide_level.semisupervised_methods": ["self_training"],
            "finetune.mode": "head",
            "finetune.recipe.interpolation_weights": [0.0],
            "finetune.recipe.select_depth": False,
            "consistency.recipe.batchnorm_patches": 0,
            "consistency.recipe.match_class_proportions": False,
            "consistency.recipe.interpolation_weights": [0.0],
            "cross_validation.num_folds": 2,
            **{f"finetune.recipe.{key}": value for key, value in TWO_STEPS.items()},
        }
    )
    if name != NAME:
        path = Path("data/weights") / f"{name}.pth"
        if not path.exists():
            torch.save(random_weights(name, depth), path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        about: dict[str, Any] = {"name": name, "weights": str(path), "sha256": digest, "license": None}
        about |= {"arguments": {"depth": depth}} if name == "uni2-h" else {}
        change({f"encoder.{key}": value for key, value in about.items()})


def random_weights(name: str, depth: int) -> dict[str, Any]:
    """State dict as the publisher's code builds the network."""
    torch.manual_seed(0)
    if name == "resnet50":
        return dict(torchvision.models.resnet50().state_dict())
    network = timm.create_model(
        "vit_giant_patch14_224",
        **{"img_size": 224, "patch_size": 14, "depth": depth, "num_heads": 24, "embed_dim": 1536},
        **{"init_values": 1e-5, "mlp_ratio": 2.66667 * 2, "num_classes": 0, "no_embed_class": True},
        **{"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": torch.nn.SiLU, "reg_tokens": 8},
        dynamic_img_size=True,
    )
    return dict(network.state_dict())


def change(values: dict[str, Any]) -> None:
    """Set values of params.yaml, keys dotted."""
    path = Path("params.yaml")
    tree = yaml.safe_load(path.read_text())
    for dotted, value in values.items():
        *sections, key = dotted.split(".")
        part = tree
        for section in sections:
            part = part[section]
        part[key] = value
    path.write_text(yaml.safe_dump(tree))


if __name__ == "__main__":
    main()
